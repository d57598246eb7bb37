"""`sharequeue pipeline archive`: copy a topic to Parquet or a Delta table, from where the last run ended, and trim the
log on request.

For Parquet, the driver cuts the log into segments of offsets, and runs them in waves: one task per segment. After each
wave it moves the files into place and replaces the manifest. A killed run loses one wave; `archiving` has the steps.
`table_archiver` does a run for a Delta table.
"""

import dataclasses
import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click
from pyspark.sql import SparkSession

from sharequeue.protocol.messages.topics import TopicDescription
from sharequeue_pipeline.archiving.manifest import Archive, Gap, Manifest, PartitionArchive, Segment
from sharequeue_pipeline.archiving.segments import SegmentTask, archive_segment, verify_segment
from sharequeue_pipeline.jobs.command_line import (
    echo_json,
    gateway_at,
    gateway_options,
    job,
    json_option,
    master_option,
    say,
    start,
)
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.jobs.table_archiver import TableArchiver
from sharequeue_pipeline.jobs.table_options import table_options
from sharequeue_pipeline.options import GatewayOptions, source_options
from sharequeue_pipeline.ranges import Range

WAVE: Final = 2
"""Segments of one wave, per task slot: after a crash, this much work is repeated."""


class Archiver:
    """One run over one topic: archive, then verify, then delete from the log."""

    def __init__(
        self, spark: SparkSession, target: GatewayOptions, archive: Archive, root: str, topic: TopicDescription
    ) -> None:
        self._spark = spark
        self._target = target
        self._archive = archive
        self._root = root
        self._topic = topic
        self._manifest: Manifest = archive.load(topic.topic_id)
        self._cleaned = archive.clean_up(self._manifest)
        self._new = {entry.partition: [0, 0] for entry in topic.partitions}
        """[records, files] of this run, by partition."""
        self._verified = 0

    @property
    def _wave(self) -> int:
        return WAVE * self._spark.sparkContext.defaultParallelism

    def _partition(self, partition: int) -> PartitionArchive:
        return self._manifest.partitions.setdefault(partition, PartitionArchive(next_offset=0))

    # Archiving

    def run(self, segment_records: int) -> None:
        """Archive the records from the end of the last run to the last stable offset."""
        segments = list(self._plan(segment_records))
        for wave in _cut(segments, self._wave):
            tasks = [SegmentTask(self._target, self._root, entry, self._archive.staging()) for entry in wave]
            found = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(archive_segment).collect()
            for task, (staged, segment) in zip(tasks, found, strict=True):
                self._archive.publish(staged, segment)
                partition = self._partition(task.entry.partition)
                partition.segments.append(segment)
                partition.next_offset = segment.last_offset + 1
                self._new[task.entry.partition][0] += segment.records
                self._new[task.entry.partition][1] += len(segment.files)
            self._archive.save(self._manifest)
        self._archive.save(self._manifest)
        self._archive.clean_up(self._manifest)

    def _plan(self, segment_records: int) -> Iterator[Range]:
        for entry in self._topic.partitions:
            known = self._partition(entry.partition)
            if entry.log_start_offset > known.next_offset:
                if known.segments or known.gaps:
                    known.gaps.append(Gap(first_offset=known.next_offset, last_offset=entry.log_start_offset - 1))
                    say(
                        f"sharequeue: {self._topic.name}-{entry.partition}: offsets {known.next_offset} to "
                        f"{entry.log_start_offset - 1} left the log before they were archived"
                    )
                known.next_offset = entry.log_start_offset
            for first in range(known.next_offset, entry.last_stable_offset, segment_records):
                last = min(first + segment_records, entry.last_stable_offset) - 1
                yield Range(self._topic.name, entry.partition, first, last)

    # Verifying

    def verify(self, before: dict[int, int] | None = None) -> None:
        """Compare the archive with the manifest, and with the records that the log still has.

        Args:
            before: by partition, only segments that end below this offset and not below the log start.
        Raises: PipelineError: a file differs.
        """
        starts = {entry.partition: entry.log_start_offset for entry in self._topic.partitions}
        compacted = self._topic.config["cleanup.policy"] == "compact"
        work: list[tuple[SegmentTask, Segment, bool]] = []
        for partition, known in sorted(self._manifest.partitions.items()):
            for segment in known.segments:
                if before is not None and not starts[partition] <= segment.last_offset < before.get(partition, 0):
                    continue
                whole = segment.first_offset >= starts[partition] and not compacted and segment.deleted_before is None
                entry = Range(self._topic.name, partition, segment.first_offset, segment.last_offset)
                work.append((SegmentTask(self._target, self._root, entry), segment, whole))
        for wave in _cut(work, 8 * self._wave):
            tasks = self._spark.sparkContext.parallelize(wave, len(wave))
            self._verified += sum(tasks.map(lambda each: verify_segment(*each)).collect())

    # Deleting

    def delete(self, gateway: OperatorClient) -> dict[int, int]:
        """Delete whole segments that are archived, verified and finished in every group. Returns: new log starts."""
        groups = gateway.start_offsets(self._topic.name, self._topic.topic_id)
        before = {}
        for entry in self._topic.partitions:
            known = self._partition(entry.partition)
            safe = min([known.next_offset, *groups.get(entry.partition, {}).values()])
            ends = [segment.last_offset + 1 for segment in known.segments if segment.last_offset < safe]
            if ends and ends[-1] > entry.log_start_offset:
                before[entry.partition] = ends[-1]
        if before:
            self.verify(before)
            gateway.delete_records(self._topic.name, before)
        return before

    # Reporting

    def report(self, deleted: dict[int, int]) -> dict[str, Any]:
        return {
            "topic": self._topic.name,
            "records": sum(records for records, _ in self._new.values()),
            "verified_records": self._verified,
            "removed_files": self._cleaned,
            "partitions": [
                {
                    "partition": partition,
                    "records": records,
                    "files": files,
                    "next_offset": self._partition(partition).next_offset,
                    "archived_records": sum(segment.records for segment in self._partition(partition).segments),
                    "gaps": [
                        {"first_offset": gap.first_offset, "last_offset": gap.last_offset}
                        for gap in self._partition(partition).gaps
                    ],
                    **({"deleted_before": deleted[partition]} if partition in deleted else {}),
                }
                for partition, (records, files) in sorted(self._new.items())
            ],
        }


def _cut(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (items[first : first + size] for first in range(0, len(items), size))


@click.command()
@click.argument("topic")
@click.option("--to", "root", required=True, metavar="DIRECTORY", help="a path, or a URI that pyarrow knows (s3://…)")
@click.option(
    "--segment-records",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="offsets per task, and per file if all records have the same date",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="Parquet files with a manifest, or a Delta table of the topic, which is the whole DIRECTORY",
)
@table_options
@click.option("--verify", is_flag=True, help="compare the whole archive with its manifest and with the log")
@click.option(
    "--delete-records",
    is_flag=True,
    help="then delete from the log the records that are archived, verified once more and finished in every group",
)
@master_option
@json_option
@gateway_options
@job
def command(
    topic: str,
    root: str,
    segment_records: int,
    kind: str,
    columns: dict[str, str],
    verify: bool,
    delete_records: bool,
    master: str | None,
    as_json: bool,
    url: str,
    token: str | None,
    timeout_s: int,
) -> None:
    """Copy TOPIC to Parquet or a Delta table, partitioned by date, from where the last run ended.

    After a crash, run it again with the same arguments. Parquet files are read back and compared after they were
    written.
    """
    if kind == "parquet" and columns:
        raise click.UsageError("the options of keys and values need --format delta")
    if delete_records and columns.get("valueFormat", "binary") != "binary":
        raise click.UsageError(
            "--delete-records needs --value-format binary: a typed table lacks fields that its schema does not name"
        )
    target = gateway_at(url, token, timeout_s)
    with OperatorClient(target) as gateway:
        described = gateway.describe(topic, first_try=True)
        if kind == "delta":
            options = dataclasses.replace(source_options({"topics": topic, **columns}), gateway=target)
            table = TableArchiver(start("archive", master), options, root, described, say)
            table.run(segment_records)
            if verify:
                table.verify(segment_records)
            deleted = table.deletable(gateway.start_offsets(topic, described.topic_id)) if delete_records else {}
            if deleted:
                table.verify(segment_records, deleted)
                gateway.delete_records(topic, deleted)
            report = table.report(deleted)
        else:
            archive = Archive(root, topic)
            with archive.locked():
                archiver = Archiver(start("archive", master), target, archive, root, described)
                archiver.run(segment_records)
                if verify:
                    archiver.verify()
                deleted = archiver.delete(gateway) if delete_records else {}
            report = archiver.report(deleted)
    if as_json:
        echo_json(report)
        return
    for entry in report["partitions"]:
        trimmed = f"; the log begins at {entry['deleted_before']}" if "deleted_before" in entry else ""
        click.echo(
            f"{topic}-{entry['partition']}: {entry['records']} records in {entry['files']} files, "
            f"archived up to {entry['next_offset']}{trimmed}"
        )
    if report.get("malformed_values"):
        click.echo(f"{report['malformed_values']} values do not fit the schema: the parts that do not fit are null")
    if verify or delete_records:
        click.echo(f"verified: {report['verified_records']} records")


if __name__ == "__main__":  # under spark-submit: tasks must be able to import the functions they run
    importlib.import_module("sharequeue_pipeline.jobs.archive").command()

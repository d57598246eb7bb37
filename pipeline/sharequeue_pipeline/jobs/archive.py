"""`sharequeue pipeline archive`: copy a topic to a Delta table, from where the last run ended, and trim the log on
request.

The driver asks the table how far it has each partition, cuts the log behind into segments of offsets, and runs them in
waves. Tasks write files that no reader sees, and one commit for a wave adds them and says how far their partitions are
archived now. A run that is killed loses one wave; its files are leftovers that VACUUM removes. Two runs at once write
both, and one of them fails at its commit.
"""

import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any, Final

import click
from pyspark.sql import SparkSession

from sharequeue.protocol.messages.topics import TopicDescription
from sharequeue_pipeline.archiving.delta_table import TopicTable
from sharequeue_pipeline.archiving.table_files import TableTask, WrittenSegment, verify_range, write_segment
from sharequeue_pipeline.jobs.command_line import echo_json, gateway_at, job, job_options, say, start
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.options import READ_FORMATS, REGISTRY_FORMATS, SourceOptions, source_options

WAVE: Final = 2
"""Segments of one wave, per task slot: after a crash, this much work is repeated."""


class Archiver:
    """One run over one topic: archive, then verify, then say what the log may lose."""

    def __init__(
        self, spark: SparkSession, options: SourceOptions, root: str, topic: TopicDescription, *, merge: bool = False
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._table = TopicTable(root, topic, options, merge=merge)
        self._new = {entry.partition: [0, 0] for entry in topic.partitions}
        """[records, files] of this run, by partition."""
        self._gaps = self._table.gaps()
        self._malformed = self._rescued = 0
        self._verified = 0

    @property
    def _wave(self) -> int:
        return WAVE * self._spark.sparkContext.defaultParallelism

    def run(self, segment_records: int) -> None:
        """Archive the records from the end of the last run to the last stable offset."""
        for partition, gap in self._gaps.items():
            say(
                f"sharequeue: {self._topic.name}-{partition}: offsets {gap['first_offset']} to {gap['last_offset']} left "
                "the log before they were archived"
            )
        tasks = self._table.missing(segment_records)
        for first in range(0, len(tasks), self._wave):
            wave = tasks[first : first + self._wave]
            self._commit(self._spark.sparkContext.parallelize(wave, len(wave)).map(write_segment).collect())

    def _commit(self, wave: Sequence[WrittenSegment]) -> None:
        reached = {each.entry.partition: each.entry.last_offset + 1 for each in wave}  # ascending
        ranges = [[each.entry.partition, each.entry.first_offset, each.entry.last_offset] for each in wave]
        gaps = [{"partition": place, **self._gaps[place]} for place in reached if place in self._gaps]
        self._table.commit(
            [file for each in wave for file in each.files],
            reached,
            {"topic": self._topic.name, "ranges": ranges, "gaps": gaps},
        )
        for each in wave:
            self._new[each.entry.partition][0] += each.records
            self._new[each.entry.partition][1] += len(each.files)
            self._malformed += each.malformed
            self._rescued += each.rescued

    def verify(self, segment_records: int, before: dict[int, int] | None = None) -> None:
        """Compare the table with the records that the log still has; with `before`, those below these offsets."""
        whole = self._topic.config["cleanup.policy"] != "compact"
        work: list[TableTask] = []
        for entry in self._topic.partitions:
            end = self._table.next_offset(entry.partition) if before is None else before.get(entry.partition, 0)
            work += self._table.tasks(entry.partition, entry.log_start_offset, end, segment_records)
        version = self._table.version
        for first in range(0, len(work), 8 * self._wave):
            part = work[first : first + 8 * self._wave]
            tasks = self._spark.sparkContext.parallelize(part, len(part))
            self._verified += sum(tasks.map(lambda task: verify_range(task, version, whole)).collect())

    def deletable(self, finished: dict[int, dict[str, int]]) -> dict[int, int]:
        """New log starts: what is archived, and below `finished` of every group, by partition and group."""
        before = {}
        for entry in self._topic.partitions:
            safe = min([self._table.next_offset(entry.partition), *finished.get(entry.partition, {}).values()])
            if safe > entry.log_start_offset:
                before[entry.partition] = safe
        return before

    def report(self, deleted: dict[int, int]) -> dict[str, Any]:
        return {
            "topic": self._topic.name,
            "records": sum(records for records, _ in self._new.values()),
            "malformed_values": self._malformed,
            "rescued_values": self._rescued,
            "verified_records": self._verified,
            "table_version": self._table.version,
            "partitions": [
                {
                    "partition": partition,
                    "records": records,
                    "files": files,
                    "next_offset": self._table.next_offset(partition),
                    "gaps": [self._gaps[partition]] if partition in self._gaps else [],
                    **({"deleted_before": deleted[partition]} if partition in deleted else {}),
                }
                for partition, (records, files) in sorted(self._new.items())
            ],
        }


@click.command()
@click.argument("topic")
@click.option(
    "--to",
    "root",
    required=True,
    metavar="DIRECTORY",
    help="of the table, which is the whole directory: a path, or a URI that pyarrow knows (s3://…)",
)
@click.option(
    "--segment-records",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="offsets per task, and per file if all records have the same date",
)
@click.option("--key-format", type=click.Choice(["binary", "string"]), help="of keys in the table; default: binary")
@click.option("--value-format", type=click.Choice(READ_FORMATS), help="of values in the table; default: binary")
@click.option(
    "--value-schema", metavar="ID", help="with avro and protobuf: the id of the schema that gives the columns"
)
@click.option(
    "--schema-registry", metavar="URL", help="with avro and protobuf: the registry, or a directory of schemas"
)
@click.option("--schema-registry-login", metavar="FILE", help="with user:password or a token, for a registry's URL")
@click.option("--value-message", metavar="NAME", help="with protobuf; default: the schema's first")
@click.option(
    "--merge-schema",
    is_flag=True,
    help="with avro and protobuf: add the columns of --value-schema that the table lacks",
)
@click.option("--verify", is_flag=True, help="compare the whole table with the records that the log still has")
@click.option(
    "--delete-records",
    is_flag=True,
    help="then delete from the log the records that are archived, verified once more and finished in every group",
)
@job_options
@job
def command(
    topic: str,
    root: str,
    segment_records: int,
    key_format: str | None,
    value_format: str | None,
    value_schema: str | None,
    schema_registry: str | None,
    schema_registry_login: str | None,
    value_message: str | None,
    merge_schema: bool,
    verify: bool,
    delete_records: bool,
    master: str | None,
    as_json: bool,
    url: str,
    timeout_s: int,
) -> None:
    """Copy TOPIC to a Delta table, partitioned by date, from where the last run ended.

    After a crash, run it again with the same arguments.
    """
    if delete_records and value_format not in (None, "binary"):
        raise click.UsageError(
            "--delete-records needs --value-format binary: a table of another format may lack parts of a value"
        )
    if merge_schema and value_format not in REGISTRY_FORMATS:
        raise click.UsageError("--merge-schema needs --value-format avro or protobuf: others have no columns to add")
    columns = {
        "keyFormat": key_format,
        "valueFormat": value_format,
        "valueSchema": value_schema,
        "schemaRegistry": schema_registry,
        "schemaRegistryLogin": schema_registry_login,
        "valueMessage": value_message,
        "onMalformed": "null" if value_format in REGISTRY_FORMATS else None,
    }
    given = {name: text for name, text in columns.items() if text is not None}
    target = gateway_at(url, timeout_s)
    with OperatorClient(target) as gateway:
        described = gateway.describe(topic, first_try=True)
        options = dataclasses.replace(source_options({"topics": topic, **given}), gateway=target)
        archiver = Archiver(start("archive", master), options, root, described, merge=merge_schema)
        archiver.run(segment_records)
        if verify:
            archiver.verify(segment_records)
        deleted = archiver.deletable(gateway.start_offsets(topic, described.topic_id)) if delete_records else {}
        if deleted:
            archiver.verify(segment_records, deleted)
            gateway.delete_records(described, deleted)
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
    if report["malformed_values"]:
        click.echo(f"{report['malformed_values']} malformed values are null")
    if report["rescued_values"]:
        click.echo(f"{report['rescued_values']} values have a part that no column took, in _rescued_data")
    if verify or delete_records:
        click.echo(f"verified: {report['verified_records']} records")


if __name__ == "__main__":  # under spark-submit: tasks must be able to import the functions they run
    importlib.import_module("sharequeue_pipeline.jobs.archive").command()

"""`sharequeue pipeline compact`: keep the last record of each key, for topics with cleanup.policy=compact.

    list batches and generations ─▶ read the log ─▶ remove superseded records ─▶ list again ─▶ remove tombstones

The gateway refuses a removal if the batch has another generation than was listed. Tombstones go last: if a run
is killed in between, the tombstones are still there, so no deleted key comes back.
"""

import importlib
import json
import time
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

import click
import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from sharequeue.protocol.messages.compaction import BatchReplacement, RecordBatchListing, RemovedRange
from sharequeue.protocol.messages.topics import TopicDescription
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.jobs.command_line import echo_json, gateway_at, job, job_options, start
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.options import GatewayOptions

REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Stored bytes of the batches in one request."""
REQUEST_BATCHES: Final = 500
REQUEST_RANGES: Final = 10_000
"""In one request, which has at most MAX_CALL_BYTES: a range takes up to 70 bytes."""
TASK_RECORDS: Final = 500_000
_COUNTS: Final = pa.schema([("partition", pa.int32()), ("records", pa.int64())])


class Listing(NamedTuple):
    """The batches of one partition that may be compacted, ascending. They are arrays because each task gets a copy."""

    base_offsets: "array[int]"
    generations: "array[int]"
    sizes: "array[int]"
    end_offset: int
    records: int
    aborted: list[RecordBatchListing]
    """Batches whose records belong to aborted transactions: they go whole."""


def list_batches(gateway: OperatorClient, topic: TopicDescription, now_ms: int) -> dict[int, Listing]:
    """The batches that may be compacted, by partition: those before the first young batch, without the newest."""
    lag_ms = int(topic.config["min.compaction.lag.ms"])
    listings = {}
    for entry in topic.partitions:
        bases, generations, sizes = array("q"), array("q"), array("q")
        end_offset, records = entry.log_start_offset, 0
        aborted, held = [], None
        for batch in gateway.batches(topic.name, entry.partition, entry.log_start_offset, entry.last_stable_offset):
            if held is not None:  # one batch behind, so that the newest stays
                bases.append(held.base_offset)
                generations.append(held.generation)
                sizes.append(held.size_bytes)
                end_offset, records = held.last_offset + 1, records + held.record_count
                if held.aborted and held.record_count:
                    aborted.append(held)
            held = batch
            young = lag_ms > 0 and batch.max_timestamp_ms > now_ms - lag_ms
            if young or batch.last_offset >= entry.last_stable_offset:
                break
        listings[entry.partition] = Listing(bases, generations, sizes, end_offset, records, aborted)
    return listings


def removable(records: DataFrame, expired_before_ms: int, starts: dict[int, int]) -> DataFrame:
    """The records to remove: (partition, offset, tombstone). Records without a key stay.

    Args:
        records: partition, offset, timestamp, key, value.
        expired_before_ms: tombstones with an older timestamp are removed, if every group has finished them.
        starts: the offset below which every group has finished all records, by partition.
    """
    latest = f.max("offset").over(Window.partitionBy("partition", "key"))
    keyed = (
        records.where("key IS NOT NULL")
        .select(
            "partition",
            "offset",
            "key",
            (f.col("value").isNull() & (f.col("timestamp") < f.timestamp_millis(f.lit(expired_before_ms)))).alias(
                "old"
            ),
        )
        .withColumn("latest", latest)
    )
    reached = f.lit(True)
    for partition, start_offset in starts.items():
        reached = reached & ((f.col("partition") != partition) | (f.col("offset") < start_offset))
    superseded = f.col("offset") < f.col("latest")
    return keyed.where(superseded | (f.col("old") & reached)).select(
        "partition", "offset", (~superseded).alias("tombstone")
    )


def replacing(
    target: GatewayOptions, topic: TopicDescription, listings: Any
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for mapInArrow: it removes sorted (partition, offset), and yields counts by partition."""

    def send(batches: Iterable[Any]) -> Iterator[Any]:
        counts: Counter[int] = Counter()
        with OperatorClient(target) as gateway:
            for partition, request in _requests(_rows(batches), listings.value):
                gateway.replace(topic, partition, request)
                counts[partition] += sum(
                    each.last_offset - each.first_offset + 1 for one in request for each in one.remove
                )
        yield pa.RecordBatch.from_arrays([[*counts], [*counts.values()]], schema=_COUNTS)

    return send


def _rows(batches: Iterable[Any]) -> Iterator[tuple[int, int]]:
    for batch in batches:
        yield from zip(*(batch.column(index).to_pylist() for index in range(2)), strict=True)


def _requests(
    rows: Iterator[tuple[int, int]], listings: dict[int, Listing]
) -> Iterator[tuple[int, list[BatchReplacement]]]:
    for partition, of_partition in groupby(rows, key=lambda row: row[0]):
        listing = listings[partition]
        request: list[BatchReplacement] = []
        size = ranges = 0
        place = partial(bisect_right, listing.base_offsets)
        for place_behind, of_batch in groupby((offset for _, offset in of_partition), key=place):
            index = place_behind - 1
            removed = _joined(of_batch)
            full = size + listing.sizes[index] > REQUEST_BYTES or ranges + len(removed) > REQUEST_RANGES
            if request and (full or len(request) == REQUEST_BATCHES):
                yield partition, request
                request, size, ranges = [], 0, 0
            base_offset, generation = listing.base_offsets[index], listing.generations[index]
            request.append(BatchReplacement(base_offset=base_offset, generation=generation, remove=removed))
            size += listing.sizes[index]
            ranges += len(removed)
        yield partition, request


def _joined(offsets: Iterator[int]) -> list[RemovedRange]:
    found: list[RemovedRange] = []
    for offset in offsets:
        if found and found[-1].last_offset + 1 == offset:
            found[-1].last_offset = offset
        else:
            found.append(RemovedRange(first_offset=offset, last_offset=offset))
    return found


class Compactor:
    """One run over one topic, whose cleanup.policy is compact."""

    def __init__(
        self, spark: SparkSession, gateway: OperatorClient, target: GatewayOptions, topic: TopicDescription
    ) -> None:
        self._spark = spark
        self._gateway = gateway
        self._target = target
        self._topic = topic
        self._now_ms = time.time_ns() // 1_000_000
        self._listings = list_batches(gateway, topic, self._now_ms)
        records = sum(listing.records for listing in self._listings.values())
        tasks = max(spark.sparkContext.defaultParallelism, records // TASK_RECORDS)
        spark.conf.set("spark.sql.shuffle.partitions", tasks)  # each one occupies a Python worker for a while

    def run(self, dry_run: bool) -> dict[str, Any]:
        """Compact. Returns: the report."""
        aborted = {place: sum(b.record_count for b in listing.aborted) for place, listing in self._listings.items()}
        if any(aborted.values()) and not dry_run:
            self._remove_aborted()
        gone = self._gone().persist(StorageLevel.DISK_ONLY)
        try:
            if dry_run:
                counted = gone.groupBy("partition", "tombstone").count().collect()
                removed = {(row["partition"], row["tombstone"]): row["count"] for row in counted}
            else:
                removed = self._replace(gone.where("NOT tombstone"), False)
                self._list_again()
                removed |= self._replace(gone.where("tombstone"), True)
        finally:
            gone.unpersist()
        return self._report(removed, aborted, dry_run)

    def _remove_aborted(self) -> None:
        for partition, listing in self._listings.items():
            rows = (
                (partition, offset)
                for batch in listing.aborted
                for offset in range(batch.base_offset, batch.last_offset + 1)
            )
            for _, request in _requests(rows, self._listings):
                self._gateway.replace(self._topic, partition, request)
        self._list_again()

    def _list_again(self) -> None:
        """Take the new generations of the same batches."""
        for place, now in list_batches(self._gateway, self._topic, self._now_ms).items():
            before = self._listings[place]
            found = dict(zip(now.base_offsets, now.generations, strict=True))
            old = zip(before.base_offsets, before.generations, strict=True)
            generations = [found.get(base, generation) for base, generation in old]
            self._listings[place] = before._replace(generations=array("q", generations))

    def _gone(self) -> DataFrame:
        starts = {str(entry.partition): entry.log_start_offset for entry in self._topic.partitions}
        ends = starts | {str(partition): listing.end_offset for partition, listing in self._listings.items()}
        options: dict[str, Any] = {
            **self._target.for_spark(),
            "topics": self._topic.name,
            "mode": "log",
            "isolationLevel": "read_committed",
            "startingOffsets": json.dumps({self._topic.name: starts}),
            "endingOffsets": json.dumps({self._topic.name: ends}),
            "failOnDataLoss": False,  # what was deleted since needs no compaction
        }
        records = self._spark.read.format("sharequeue").options(**options).load()
        expired_before_ms = self._now_ms - int(self._topic.config["delete.retention.ms"])
        finished = self._gateway.start_offsets(self._topic.name, self._topic.topic_id)
        return removable(
            records, expired_before_ms, {place: min(groups.values()) for place, groups in finished.items()}
        )

    def _replace(self, gone: DataFrame, tombstones: bool) -> dict[tuple[int, bool], int]:
        """Remove records from their batches. Returns: how many, by (partition, tombstones)."""
        context = self._spark.sparkContext
        listings = context.broadcast(self._listings)
        counts = (
            gone.select("partition", "offset")
            .repartition("partition")  # a stored batch has one task
            .sortWithinPartitions("partition", "offset")
            .mapInArrow(replacing(self._target, self._topic, listings), "partition int, records bigint")
            .groupBy("partition")
            .agg(f.sum("records").alias("records"))
            .collect()
        )
        return {(row["partition"], tombstones): row["records"] for row in counts}

    def _report(self, removed: dict[tuple[int, bool], int], aborted: dict[int, int], dry_run: bool) -> dict[str, Any]:
        partitions = []
        for partition, listing in sorted(self._listings.items()):
            partitions.append(
                {
                    "partition": partition,
                    "compacted_before": listing.end_offset,
                    "records": listing.records,
                    "superseded": removed.get((partition, False), 0),
                    "tombstones": removed.get((partition, True), 0),
                    "aborted": aborted[partition],
                }
            )
        return {"topic": self._topic.name, "dry_run": dry_run, "partitions": partitions}


@click.command()
@click.argument("topic")
@click.option("--dry-run", is_flag=True, help="count the records to remove, and change nothing")
@job_options
@job
def command(topic: str, dry_run: bool, master: str | None, as_json: bool, url: str, timeout_s: int) -> None:
    """Keep the last record of each key of TOPIC, whose cleanup.policy is compact. Offsets stay, and groups continue.

    Records of open transactions are not touched, and those of aborted ones go.

    A tombstone is removed when it is older than delete.retention.ms and every group has finished it.
    """
    target = gateway_at(url, timeout_s)
    with OperatorClient(target) as gateway:
        described = gateway.describe(topic, first_try=True)
        if described.config["cleanup.policy"] != "compact":
            raise PipelineError(f"topic {topic!r} cannot be compacted: its cleanup.policy is not compact")
        report = Compactor(start("compact", master), gateway, target, described).run(dry_run)
    if as_json:
        echo_json(report)
        return
    would = "would go" if dry_run else "gone"
    for entry in report["partitions"]:
        click.echo(
            f"{topic}-{entry['partition']}: of {entry['records']} records below {entry['compacted_before']}, "
            f"{would}: {entry['superseded']} superseded, {entry['tombstones']} tombstones, "
            f"{entry['aborted']} of aborted transactions"
        )


if __name__ == "__main__":  # under spark-submit: tasks must be able to import the functions they run
    importlib.import_module("sharequeue_pipeline.jobs.compact").command()

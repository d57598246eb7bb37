"""A record that fails whenever it is read: it ends as a dead letter, and the other records of its batch do not."""

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from sharequeue_pipeline import ranges
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.ranges import Range

from sharequeue.client.consuming.outcomes import Outcome
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_readers import options_of, stream_reader
from tests.pipeline.test_source import numbers, produce, settled

Place = tuple[int, int]
"""Partition and offset."""


class Queries:
    """A query that is started again after each failure. It calls the reader as Spark does, without Spark."""

    def __init__(self, stack: Stack, group: str, poison: Iterable[Place], **options: Any) -> None:
        self._stack, self._group, self._options = stack, group, options
        self._poison = set(poison)
        self.arrived: list[Place] = []
        self.failures = 0
        self.batches = 0
        self._end: dict[str, Any] | None = None
        """The planned batch, which the next query begins with."""
        self._finished: dict[str, Any] | None = None

    def run(self, release: Callable[[str, list[Range]], None]) -> bool:
        """Run one query until no record comes, or a batch fails. Returns: whether it failed.

        `release`: is called with the member and the ranges of a failed batch, in place of the listener.
        """
        reader = stream_reader(self._stack, self._group, parallelism=2, **self._options)
        try:
            if self._finished is None:
                self._finished = reader.initialOffset()
            while True:
                if self._end is None:
                    following = reader.latestOffset(self._finished, reader.getDefaultReadLimit())
                    if following == self._finished:
                        return False
                    self._end = following
                shares = reader.partitions(self._finished, self._end)
                read = [
                    (entry.partition, offset)
                    for share in shares
                    for entry in share.value[1]
                    for offset in range(entry.first_offset, entry.last_offset + 1)
                ]
                self.batches += 1
                if self._poison & set(read):
                    self.failures += 1
                    release(self._end["member_id"], ranges.decode(self._end["ranges"]))
                    return True
                self.arrived += read
                self._finished, self._end = self._end, None
        finally:
            reader.stop()

    def run_to_the_end(self, release: Callable[[str, list[Range]], None]) -> None:
        while self.run(release):
            assert self.failures < 100


@pytest.fixture
def release(stack: Stack, name: str) -> Callable[[str, list[Range]], None]:
    def release(member_id: str, failed: list[Range]) -> None:
        with GroupClient(options_of(stack, name).gateway) as to:
            to.settle(name, member_id, [(entry, Outcome("release", "fails")) for entry in failed])

    return release


def dead_letters(gateway: Gateway, group: str) -> list[Place]:
    letters = gateway.read(f"dlq.{group}", max_records=10_000)["records"]
    headers = [letter["headers"] for letter in letters]
    return sorted((int(each["__dlq.errors.partition"]), int(each["__dlq.errors.offset"])) for each in headers)


@pytest.mark.parametrize(
    ("partitions", "poison", "limit", "backoff_ms"),
    [
        (4, [(0, 3), (0, 4), (2, 24), (3, 0)], 5, ""),
        (2, [(1, 9)], 2, ""),
        (2, [(1, 9)], 4, "300"),
    ],
    ids=["several", "limit 2", "with backoff"],
)
def test_only_the_record_that_fails_becomes_a_dead_letter(
    stack: Stack,
    gateway: Gateway,
    name: str,
    release: Callable[[str, list[Range]], None],
    partitions: int,
    poison: list[Place],
    limit: int,
    backoff_ms: str,
) -> None:
    """With backoff, the records of a failed batch wait before they come again."""
    gateway.configure(name, share_delivery_count_limit=limit, share_retry_backoff_ms=backoff_ms)
    produce(gateway, name, 100, partitions=partitions)
    queries = Queries(stack, name, poison)

    def ended() -> bool:
        queries.run_to_the_end(release)
        return settled(gateway, name, name)

    wait_for(ended, "every record is read")
    wait_for(lambda: settled(gateway, name, name), "every record is settled")
    assert dead_letters(gateway, name) == sorted(poison)
    assert sorted(queries.arrived) == sorted(
        place for place in ((p, o) for p in range(partitions) for o in range(100 // partitions)) if place not in poison
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    ("limit", "options", "batches"),
    [(5, {}, 48), (10, {}, 36), (5, {"maxRecordsPerTrigger": 1000}, 35)],
    ids=["default", "limit 10", "1000 a batch"],
)
def test_the_micro_batches_that_one_poison_in_8000_costs(
    stack: Stack,
    gateway: Gateway,
    name: str,
    release: Callable[[str, list[Range]], None],
    limit: int,
    options: dict[str, int],
    batches: int,
) -> None:
    """The numbers of docs/pipeline.md: micro-batches that end. A batch that fails is run again by the next query."""
    gateway.configure(name, share_delivery_count_limit=limit)
    produce(gateway, name, 8000, partitions=4)
    queries = Queries(stack, name, [(1, 1389)], **options)

    def ended() -> bool:
        queries.run_to_the_end(release)
        return settled(gateway, name, name)

    wait_for(ended, "every record is read")
    assert (queries.batches - queries.failures, queries.failures) == (batches, limit)
    assert dead_letters(gateway, name) == [(1, 1389)]


def run(pipeline: Pipeline, frame: Any) -> int:
    """Run a query until it ends by itself; after each failure, start it again. Returns: the number of its batches."""
    for _ in range(30):
        query = pipeline.start(frame, availableNow=True)
        wait_for(lambda query=query: not query.isActive, "the query ends", timeout_s=600)
        if query.exception() is None:
            return len(list((pipeline.directory / "checkpoint/commits").glob("[0-9]*")))
    raise AssertionError("the query fails again and again")


def dies(poison: set[bytes]) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """A function for mapInArrow: the Python worker dies at some records."""

    def records(batches: Iterable[Any]) -> Iterable[Any]:
        for batch in batches:
            if poison & set(batch.column("value").to_pylist()):
                os._exit(1)
            yield batch

    return records


def failing(stream: DataFrame, kind: str, poison: Iterable[int]) -> DataFrame:
    stream = stream.select("value")
    texts = [str(number) for number in poison]
    if kind == "worker":
        return stream.mapInArrow(dies({text.encode() for text in texts}), "value binary")  # type: ignore[arg-type]
    bad = ", ".join(f"'{text}'" for text in texts)
    return stream.selectExpr(f"if(CAST(value AS STRING) IN ({bad}), raise_error('no use'), value) AS value")


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kind", "on_error", "records", "limit", "partitions", "poison"),
    [
        ("worker", "reject", 6, 2, 2, [0, 5]),
        ("jvm", "release", 100, 5, 4, [3, 4, 50, 99]),
    ],
)
def test_a_task_that_records_kill(
    pipeline: Pipeline,
    gateway: Gateway,
    name: str,
    kind: str,
    on_error: str,
    records: int,
    limit: int,
    partitions: int,
    poison: list[int],
) -> None:
    """Spark's tasks fail with an error in the JVM, or their Python worker dies. All other records arrive."""
    gateway.configure(name, share_delivery_count_limit=limit)
    produce(gateway, name, records, partitions=partitions)
    run(pipeline, failing(pipeline.stream(group=name, topics=name, onError=on_error, parallelism=2), kind, poison))
    wait_for(lambda: settled(gateway, name, name), "every record is settled")
    assert dead_letters(gateway, name) == sorted((number % partitions, number // partitions) for number in poison)
    assert numbers(pipeline.out()) == [number for number in range(records) if number not in poison]

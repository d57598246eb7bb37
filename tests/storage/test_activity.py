"""Counts for reports on their way to the database: written once despite retries, by the hour, and bounded."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sharequeue_gateway.leader.reports import activity as activity_module
from sharequeue_gateway.leader.reports.activity import Activity
from sharequeue_gateway.record_log import activity_store
from sharequeue_gateway.record_log.activity_store import ActivityTotal
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.store import HOUR_MS

from sharequeue.clock import Clock
from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.types import SharePartitionKey

TOPIC = "4799b8f4-4040-412c-b59e-000000000001"
FIRST = (0, "", "00000000-0000-0000-0000-000000000000", -1)


class TurnedClock(Clock):
    """Stands still until it is turned."""

    def __init__(self) -> None:
        super().__init__()
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms


class Lossy:
    """The database behind a proxy that may lose requests or answers."""

    def __init__(self, query: Callable[..., Any]) -> None:
        self._query = query
        self.loses: str | None = None

    async def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.loses == "requests":
            raise StorageError("lost")
        answer = await self._query(function, *arguments)
        if self.loses == "answers":
            raise StorageError("lost")
        return answer


class Counting:
    def __init__(self, query: Callable[..., Any]) -> None:
        self.clock = TurnedClock()
        self.line = Lossy(query)
        self.activity = Activity(self.line, self.clock, {TOPIC: "orders"}.get, flush_ms=1000, retention_ms=HOUR_MS)

    async def totals(self) -> list[ActivityTotal]:
        return await self.line(activity_store.totals, 0, 2**31 - 1, None, None, FIRST, 1000)

    async def produced(self) -> dict[int, int]:
        """By hour since the clock's first."""
        first = 1_700_000_000_000 // HOUR_MS
        return {total.hour - first: total.produced for total in await self.totals()}


@asynccontextmanager
async def counting_on(database_url: str) -> AsyncIterator[Counting]:
    database = await LogDatabase.open(database_url)
    try:
        yield Counting(database.query)
    finally:
        await database.close()


@pytest.mark.parametrize("loses", ["requests", "answers"])
async def test_a_repeated_write_counts_once(database_url: str, loses: str) -> None:
    async with counting_on(database_url) as counting:
        counting.activity.produced(TOPIC, 0, 3)
        counting.line.loses = loses
        await counting.activity.flush()
        counting.activity.produced(TOPIC, 0, 4)
        counting.line.loses = None
        await counting.activity.flush()
        await counting.activity.flush()
        (total,) = await counting.totals()
        assert (total.produced, total.topic, total.group_id) == (7, "orders", "")


async def test_a_late_write_counts_in_its_own_hour(database_url: str) -> None:
    async with counting_on(database_url) as counting:
        counting.activity.produced(TOPIC, 0, 3)
        await counting.activity.flush()
        counting.activity.produced(TOPIC, 0, 1)
        counting.line.loses = "requests"
        counting.clock.ms += HOUR_MS
        await counting.activity.flush()
        counting.activity.produced(TOPIC, 0, 5)
        counting.line.loses = None
        await counting.activity.flush()
        assert await counting.produced() == {0: 4, 1: 5}
        await counting.line(activity_store.remove_before, counting.clock.ms // HOUR_MS)
        assert await counting.produced() == {1: 5}


async def test_a_deleted_group_has_no_series_once_its_last_counts_are_written(database_url: str) -> None:
    led = cast(Any, SimpleNamespace(key=SharePartitionKey("g", TOPIC, 0)))
    async with counting_on(database_url) as counting:
        counting.activity.expired(led, 3)
        counting.activity.forget_group("g")
        await counting.activity.flush()
        assert [total.expired for total in await counting.totals()] == [3]
        assert counting.activity.totals["g", TOPIC].used_at_ms == 0
        counting.activity.expired(led, 1)
        await counting.activity.flush()
        assert counting.activity.totals["g", TOPIC].used_at_ms == counting.clock.ms


async def test_counts_of_many_share_partitions_are_split_into_parts_that_add_up(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with counting_on(database_url) as counting:
        monkeypatch.setattr(activity_module, "MOST_COUNTED", 2)
        for _ in range(3):
            for partition in range(4):
                counting.activity.produced(TOPIC, partition, 1)
            await counting.activity.flush()
        assert [(total.partition, total.produced) for total in await counting.totals()] == [(n, 3) for n in range(4)]


async def test_the_number_of_unwritten_counts_is_limited(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with counting_on(database_url) as counting:
        monkeypatch.setattr(activity_module, "MOST_UNWRITTEN", 3)
        counting.line.loses = "requests"
        for _ in range(10):
            for partition in range(2):
                counting.activity.produced(TOPIC, partition, 1)
            counting.clock.ms += HOUR_MS
            await counting.activity.flush()
        counting.line.loses = None
        await counting.activity.flush()
        assert len(await counting.totals()) <= 4
        assert max(await counting.produced()) == 9  # the newest are kept

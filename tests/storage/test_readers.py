"""The log's readers on PostgreSQL: rows are there before records are handed out, and rise only to what is durable.

A test pauses a transaction by holding the advisory lock of its partition, or a row, in a transaction of its own.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.removing import readers_store
from sharequeue_gateway.record_log.removing.readers import Beginning, Begun, Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor

from sharequeue.protocol.types import SharePartitionKey
from tests.storage.record_logs import PostgresRecordLogs, append, new_topic

HOLD_MS = 604_800_000


@asynccontextmanager
async def opened(database_url: str) -> AsyncIterator[tuple[PostgresRecordLog, Readers, Any]]:
    """A record log, its readers, and a connection of the test."""
    connection = await asyncpg.connect(database_url)
    try:
        async with PostgresRecordLogs(database_url).open() as log:
            yield log, Readers(log.database.query), connection
    finally:
        await connection.close()


async def begin(readers: Readers, beginnings: Sequence[Beginning]) -> dict[SharePartitionKey, Begun]:
    return await readers.begin(beginnings, HOLD_MS)


@asynccontextmanager
async def partition_locked(connection: Any, topic_id: str) -> AsyncIterator[None]:
    """Hold the lock of partition 0: whoever takes it next waits until this ends."""
    async with connection.transaction():
        await store.lock(connection, [(topic_id, 0)])
        yield


async def until_waiting(connection: Any, tasks: int = 1) -> None:
    """Wait until this many sessions wait for an advisory lock of this database."""
    waiting = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    while True:
        if await connection.fetchval(waiting) >= tasks:
            return
        await asyncio.sleep(0.005)


def key(topic_id: str, group_id: str = "g") -> SharePartitionKey:
    return SharePartitionKey(group_id, topic_id, 0)


def beginning(topic_id: str, start_offset: int, *, chosen: bool, epoch: int = 1, group_id: str = "g") -> Beginning:
    return Beginning(key(topic_id, group_id), epoch, start_offset, chosen)


async def rows(connection: Any, topic_id: str) -> dict[str, tuple[int, int]]:
    """State epoch and floor of each group at partition 0."""
    found = await connection.fetch(
        "SELECT group_id, state_epoch, floor FROM log.readers WHERE topic_id = $1 AND partition = 0", topic_id
    )
    return {row[0]: (row[1], row[2]) for row in found}


# Begin


async def test_rd_102_a_stored_start_is_the_floor_even_below_the_log_start(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (log, readers, _):
        await append(log, topic, range(10))
        await log.delete_records(topic, {0: 6})
        assert await begin(readers, [beginning(topic, 2, chosen=False)]) == {key(topic): Begun(2, 2, 10)}


async def test_rd_103_nothing_is_begun_before_the_row_is_durable(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (log, readers, connection):
        await append(log, topic, range(3))
        async with partition_locked(connection, topic):
            begun = asyncio.create_task(begin(readers, [beginning(topic, 0, chosen=True)]))
            await until_waiting(connection)
            assert not begun.done()
            assert await rows(connection, topic) == {}
        await begun
        assert await rows(connection, topic) == {"g": (1, 0)}


async def test_rd_105_a_later_life_takes_the_row_and_an_earlier_one_leaves_it(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (log, readers, connection):
        await append(log, topic, range(10))
        await begin(readers, [beginning(topic, 7, chosen=False, epoch=3)])
        await begin(readers, [beginning(topic, 2, chosen=False, epoch=4)])
        assert await rows(connection, topic) == {"g": (4, 2)}
        assert await begin(readers, [beginning(topic, 9, chosen=False, epoch=3)]) == {key(topic): Begun(9, 2, 10)}
        assert await rows(connection, topic) == {"g": (4, 2)}


async def test_rd_106_more_partitions_than_one_transaction_may_lock_begin(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (_, readers, connection):
        keys = [SharePartitionKey("g", topic, partition) for partition in range(1_500)]
        begun = await begin(readers, [Beginning(each, 1, 0, True) for each in keys])
        assert begun == dict.fromkeys(keys, Begun(0, 0, 0))
        assert await connection.fetchval("SELECT count(*) FROM log.readers WHERE topic_id = $1", topic) == 1_500


# Raise


async def test_rd_201_a_raise_changes_only_rows_of_its_own_life(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (log, readers, connection):
        await append(log, topic, range(10))
        await begin(readers, [beginning(topic, 2, chosen=False, epoch=4)])
        for epoch in 3, 5:
            assert await readers.raise_floors([Floor(key(topic), epoch, 9)]) == {key(topic)}
        assert await rows(connection, topic) == {"g": (4, 2)}
        await readers.raise_floors([Floor(key(topic), 4, 5)])
        await readers.raise_floors([Floor(key(topic), 4, 3)])
        assert await rows(connection, topic) == {"g": (4, 5)}, "a floor never goes down"


async def test_rd_202_a_raise_adds_no_row(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (_, readers, connection):
        assert await readers.raise_floors([Floor(key(topic), 1, 9)]) == set()
        assert await rows(connection, topic) == {}


async def test_rd_203_a_raise_waits_for_no_transaction(module_database: str) -> None:
    """Neither for the partition's lock nor for a row: it leaves the row out and says so."""
    topic = new_topic()
    async with opened(module_database) as (_, readers, connection):
        await begin(readers, [beginning(topic, 0, chosen=False), beginning(topic, 0, chosen=False, group_id="h")])
        async with partition_locked(connection, topic):
            await connection.execute("UPDATE log.readers SET floor = 1 WHERE topic_id = $1 AND group_id = 'g'", topic)
            raised = await readers.raise_floors([Floor(key(topic, group), 1, 5) for group in ("g", "h")])
            assert raised == {key(topic, "h")}
        assert await rows(connection, topic) == {"g": (1, 1), "h": (1, 5)}


async def test_rd_205_raises_keep_a_row_active(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (_, readers, connection):
        await begin(readers, [beginning(topic, 0, chosen=False)])
        age = "UPDATE log.readers SET active_at = now() - interval '2 hours' WHERE topic_id = $1"
        await connection.execute(age, topic)
        assert (await readers.find("g", [(topic, 0)]))[topic, 0].stale
        await readers.raise_floors([Floor(key(topic), 1, 0)])
        assert not (await readers.find("g", [(topic, 0)]))[topic, 0].stale
        await connection.execute(age, topic)
        await begin(readers, [beginning(topic, 0, chosen=False)])
        assert not (await readers.find("g", [(topic, 0)]))[topic, 0].stale


@pytest.mark.parametrize("forced", ["force_generic_plan", "force_custom_plan"])
async def test_rd_206_the_cost_of_a_raise_follows_its_rows_in_every_plan(module_database: str, forced: str) -> None:
    """After five runs PostgreSQL plans for the few rows that it expects; the first form took 25 s then."""
    topic, many = new_topic(), 5_000
    async with opened(module_database) as (_, _readers, connection):
        await connection.execute(
            """INSERT INTO log.readers (topic_id, partition, group_id, state_epoch, floor)
               SELECT $1, n % 50, 'group-' || n / 50, 1, 0 FROM generate_series(0, 4 * $2::int - 1) n""",
            topic,
            many,
        )
        await connection.execute("ANALYZE log.readers")
        await connection.execute(f"SET plan_cache_mode = {forced}")
        floors = [Floor(SharePartitionKey(f"group-{n // 50}", topic, n % 50), 1, 7) for n in range(many)]
        async with asyncio.timeout(20):
            assert len(await readers_store.raise_floors(connection, floors)) == many
            assert await readers_store.partitions_without_a_group(connection, topic, range(51)) == {50}


# Reset and delete


async def reserve(readers: Readers, topic_id: str, target: int, epoch: int) -> int:
    """Returns: the start, within the bounds of the log."""
    (reserved,) = await readers.reserve([Floor(key(topic_id), epoch, target)], HOLD_MS)
    return reserved.floor


@pytest.mark.parametrize(("target", "start", "floor"), [(0, 3, 3), (5, 5, 5), (9, 9, 6), (99, 10, 6)])
async def test_rd_401_a_reset_reserves_the_lower_floor_before_the_state_is_set(
    module_database: str, target: int, start: int, floor: int
) -> None:
    """Forward too: if the state is never set, the group still begins at its old start."""
    topic = new_topic()
    async with opened(module_database) as (log, readers, connection):
        await append(log, topic, range(10))
        await log.delete_records(topic, {0: 3})
        await begin(readers, [beginning(topic, 6, chosen=False)])
        assert await reserve(readers, topic, target, 2) == start
        assert await rows(connection, topic) == {"g": (2, floor)}
        await readers.raise_floors([Floor(key(topic), 1, 8)])
        assert await rows(connection, topic) == {"g": (2, floor)}, "the earlier life raises nothing any more"
        await readers.raise_floors([Floor(key(topic), 2, start)])
        assert await rows(connection, topic) == {"g": (2, start)}


async def test_rd_402_a_reset_of_a_group_that_never_read_holds_all_until_it_is_set(module_database: str) -> None:
    """A leader that read the state before the reset begins after it, at the log start,
    and the reset may never go on."""
    topic = new_topic()
    async with opened(module_database) as (log, readers, connection):
        await append(log, topic, range(10))
        await log.delete_records(topic, {0: 2})
        assert await reserve(readers, topic, 4, 1) == 4
        assert await rows(connection, topic) == {"g": (1, 2)}
        assert (await begin(readers, [beginning(topic, 0, chosen=True, epoch=0)]))[key(topic)] == Begun(2, 2, 10)
        await readers.raise_floors([Floor(key(topic), 1, 4)])
        assert await rows(connection, topic) == {"g": (1, 4)}


async def test_rd_405_a_late_deletion_leaves_the_row_of_a_new_life(module_database: str) -> None:
    """The coordinator was paused after it had deleted the state; meanwhile the group began again."""
    topic = new_topic()
    async with opened(module_database) as (log, readers, connection):
        await append(log, topic, range(10))
        await begin(readers, [beginning(topic, 6, chosen=False, epoch=3)])
        await begin(readers, [beginning(topic, 1, chosen=False, epoch=4)])
        await readers.remove([Floor(key(topic), 3, 0)])
        assert await rows(connection, topic) == {"g": (4, 1)}
        await readers.remove([Floor(key(topic), 4, 0)])
        assert await rows(connection, topic) == {}


# Housekeeping


async def test_rd_502_rows_of_groups_that_are_gone_are_removed_unless_active(module_database: str) -> None:
    topic = new_topic()
    async with opened(module_database) as (_, readers, connection):
        names = [f"{topic}-{number}" for number in range(3)]
        for name in names:
            await begin(readers, [beginning(topic, 0, chosen=False, group_id=name)])
        assert await readers.idle_groups(topic, 10) == []
        await connection.execute(
            "UPDATE log.readers SET active_at = now() - interval '2 hours' WHERE group_id = ANY($1)", names[:2]
        )
        assert await readers.idle_groups(topic, 10) == names[:2]
        assert await readers.idle_groups(names[0], 1) == names[1:2]
        for name in names[1:]:
            await readers.remove_idle(name)
        assert (await rows(connection, topic)).keys() == {names[0], names[2]}

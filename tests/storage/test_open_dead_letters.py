"""Open dead letters on PostgreSQL: they change in the transactions that write, redrive and remove their records."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sharequeue_gateway.record_log import backlog_store
from sharequeue_gateway.record_log.backlog_store import Backlog, Backlogs
from sharequeue_gateway.record_log.log import DeadLetterKey, DeadLetterRow
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.removing.compacting import Replacement
from sharequeue_gateway.record_log.retention_rule import RetentionRule

from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.types import SharePartitionKey
from tests.storage.record_logs import PostgresRecordLogs, append, dead_letter, new_topic

REDRIVEN = 2**31 - 1
END_A_WAITER = """SELECT pg_terminate_backend(pid) FROM pg_locks
                  WHERE relation = 'log.dead_letter_sources'::regclass AND NOT granted LIMIT 1"""


class Scene:
    """A dead-letter topic of one partition, `queue`, and a topic that the dead letters come from."""

    def __init__(self, log: PostgresRecordLog, connection: Any, group: str) -> None:
        self.log, self.connection, self.group = log, connection, group
        self.queue, self.topic = new_topic(), new_topic()

    async def write(self, *offsets: int, group: str | None = None, epoch: int = 1) -> None:
        rows = [dead_letter(self.topic, offset, group_id=group or self.group) for offset in offsets]
        await self.log.dead_letters.append(self.queue, 0, rows, leader_epoch=epoch)

    async def park(self, *offsets: int) -> None:
        await self.log.dead_letters.park([dead_letter(self.topic, each, group_id=self.group) for each in offsets], 1)

    async def redrive(self, *letters: int, group: str | None = None) -> int:
        """By their offsets in the dead-letter topic."""
        place = SharePartitionKey(group or self.group, self.queue, 0)
        return await self._redrive([(place, offset, 0) for offset in letters])

    async def redrive_parked(self, *offsets: int) -> int:
        """By the offsets of their records."""
        return await self._redrive([(SharePartitionKey(self.group, self.topic, 0), offset, 5) for offset in offsets])

    async def _redrive(self, keys: Sequence[tuple[SharePartitionKey, int, int]]) -> int:
        rows = [
            DeadLetterRow(source, REDRIVEN, offset, count, dead_letter(self.topic, offset).tail, 7, "")
            for source, offset, count in keys
        ]
        return await self.log.dead_letters.append(self.topic, 0, rows)

    def keys(self, *letters: int, group: str | None = None) -> list[DeadLetterKey]:
        place = SharePartitionKey(group or self.group, self.queue, 0)
        return [DeadLetterKey(place, REDRIVEN, offset, 0) for offset in letters]

    async def drop(self, *letters: int) -> int:
        return await self.log.dead_letters.close(self.keys(*letters))

    async def finish(self, consumer: str, floor: int) -> int:
        """Another group has durably finished the dead-letter topic up to `floor`."""
        await self.connection.execute(
            """INSERT INTO log.readers (topic_id, partition, group_id, state_epoch, floor) VALUES ($1, 0, $2, 1, $3)
               ON CONFLICT (topic_id, partition, group_id) DO UPDATE SET floor = excluded.floor""",
            self.queue,
            consumer,
            floor,
        )
        return await self.log.dead_letters.finish(self.group, self.queue, consumer)

    async def open(self, group: str | None = None) -> int:
        """How many are open."""
        return (await self.log.dead_letters.open_counts(group or self.group)).get((self.topic, 0), 0)

    async def ranges(self) -> list[tuple[int, int]]:
        """The open ones in the dead-letter topic, by their rows."""
        rows = await self.connection.fetch(
            """SELECT min(letter_offset), max(letter_offset) FROM (
                 SELECT letter_offset, letter_offset - row_number() OVER (ORDER BY letter_offset) AS same
                 FROM log.dead_letter_sources WHERE letter_topic_id = $1 AND open) numbered
               GROUP BY same ORDER BY 1""",
            self.queue,
        )
        return [tuple(row) for row in rows]


async def end_a_waiter(connection: Any) -> None:
    """End the session that waits for the table, as a crash would."""
    async with asyncio.timeout(20):
        while True:
            if await connection.fetchval(END_A_WAITER):
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def scene(database_url: str, name: str) -> AsyncIterator[Scene]:
    connection = await asyncpg.connect(database_url)
    try:
        async with PostgresRecordLogs(database_url).open() as log:
            yield Scene(log, connection, name)
    finally:
        await connection.close()


async def test_od_101_what_is_written_is_open_until_it_is_redriven(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        await it.write(10, 11, 12)
        await it.write(13)
        assert await it.open() == 4
        assert await it.ranges() == [(0, 3)]
        assert await it.redrive(1) == 1
        assert (await it.open(), await it.ranges()) == (3, [(0, 0), (2, 3)])
        assert await it.redrive(0, 1, 3) == 2
        assert (await it.open(), await it.ranges()) == (1, [(2, 2)])
        assert await it.redrive(2) == 1
        assert (await it.open(), await it.ranges()) == (0, [])


async def test_od_102_a_repeated_write_or_redrive_changes_no_count(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        for _ in range(2):
            await it.write(10, 11)
            assert await it.open() == 2
        await it.redrive(0)
        assert await it.redrive(0) == 0
        assert await it.open() == 1


async def test_od_103_each_group_has_its_own_in_a_shared_topic(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        other = f"{name}-other"
        await it.write(10, 11)
        await it.write(10, 11, group=other)
        await it.write(12)
        await it.redrive(1, 2)
        assert (await it.open(), await it.open(other)) == (2, 2), "a group closes none of another one"
        await it.redrive(2, group=other)
        assert (await it.open(), await it.open(other)) == (2, 1)


async def test_od_104_parked_dead_letters_are_open_until_they_are_redriven(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        for _ in range(2):
            await it.park(10, 11)
        await it.write(12)
        assert await it.open() == 3
        assert await it.redrive_parked(10) == 1
        assert await it.open() == 2
        assert (await it.log.dead_letters.parked_counts(name))[it.topic, 0].records == 1
        assert await it.redrive_parked(11) == 1
        assert await it.open() == 1


async def test_od_106_what_leaves_the_dead_letter_topic_is_open_no_more(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        await it.write(*range(10, 15))
        await it.redrive(1)
        await it.log.delete_records(it.queue, {0: 3})
        assert (await it.open(), await it.ranges()) == (2, [(3, 4)])
        await it.write(15)
        assert await it.ranges() == [(3, 5)]
        removed = await it.log.apply_retention(it.queue, [0], RetentionRule(retention_ms=0), 1_000)
        assert [each.log_start_offset for each in removed] == [6]
        assert (await it.open(), await it.ranges()) == (0, [])


async def test_od_107_those_of_a_deleted_dead_letter_topic_go_in_steps(
    module_database: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "STAGES", ())
    async with scene(module_database, name) as it:
        await it.write(*range(10, 15))
        await it.park(20)
        await it.redrive(0)
        await it.log.delete_topic(it.queue, 1)
        assert (await it.open(), await it.ranges()) == (5, [(1, 4)]), "not in the transaction of the deletion"
        steps = []
        for _ in range(4):
            steps.append(await it.log.database.query(purging.remove_letters, 2, 0))
            await it.log.database.query(purging.remove_rows, 10, 0)
            await it.log.database.query(purging.renew_marks, 10, 0)
            await it.log.database.query(purging.forget_deleted, 10, 0)
            assert await it.open() == sum(last - first + 1 for first, last in await it.ranges()) + 1
        assert steps == [2, 2, 1, 0], "the topic is not forgotten before"
        assert await it.open() == 1, "the parked one is in no topic"
        assert await it.connection.fetchval("SELECT count(*) FROM log.partitions WHERE topic_id = $1", it.queue) == 0


async def test_od_108_compaction_closes_what_it_removes(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        await it.write(*range(10, 15))
        await append(it.log, it.queue, ["newest"])
        await it.redrive(1)
        await it.log.compaction.replace(it.queue, 0, [Replacement(0, 0, [(0, 2)])])
        assert (await it.open(), await it.ranges()) == (2, [(3, 4)])
        await it.log.compaction.replace(it.queue, 0, [Replacement(0, 0, [(0, 2)])])
        assert await it.open() == 2


async def test_od_109_a_crash_before_the_commit_writes_nothing(
    module_database: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection dies when the records are inserted and their rows are not: the repeat writes them once."""
    monkeypatch.setattr(purging, "STAGES", ())
    async with scene(module_database, name) as it:
        await it.write(10, 9)
        for step in (lambda: it.write(11), lambda: it.redrive(0), lambda: it.park(12), lambda: it.drop(1)):
            before = await it.open(), await it.ranges()
            async with it.connection.transaction():
                await it.connection.execute("LOCK TABLE log.dead_letter_sources IN EXCLUSIVE MODE")
                running = asyncio.create_task(step())
                await end_a_waiter(it.connection)
            with pytest.raises(StorageError):
                await running
            assert (await it.open(), await it.ranges()) == before
            await step()
        assert (await it.open(), await it.ranges()) == (2, [(2, 2)])


async def test_od_110_redrives_retention_and_new_ones_at_once_lose_none(
    module_database: str, name: str, seed: int
) -> None:
    """Four tasks write, redrive, trim and redrive parked ones; none waits for another in a circle."""
    chance = random.Random(seed)
    async with scene(module_database, name) as it:
        await it.write(*range(50))

        async def writes() -> None:
            for offset in range(50, 80):
                await it.write(offset)
                await it.park(offset + 1000)

        async def redrives() -> None:
            for _ in range(30):
                await it.redrive(*sorted(chance.sample(range(50), 4)))

        async def parked() -> None:
            for offset in range(50, 80):
                await it.redrive_parked(offset + 1000)

        async def trims() -> None:
            for before in range(0, 30, 3):
                await it.log.delete_records(it.queue, {0: before})

        await asyncio.gather(writes(), redrives(), redrives(), parked(), trims())
        in_ranges = sum(last - first + 1 for first, last in await it.ranges())
        keys = await it.connection.fetchval(
            "SELECT count(*) FROM log.dead_letter_sources WHERE letter_topic_id = $1 AND NOT open", it.queue
        )
        assert in_ranges == 80 - 27 - keys


async def test_od_111_the_counts_of_all_groups_are_bounded(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        await it.connection.execute("TRUNCATE log.dead_letter_sources")
        groups = [f"{name}-{number}" for number in range(4)]
        for number, group in enumerate(groups):
            await it.write(*range(number + 1), group=group)
        await it.redrive(0, group=groups[0])
        found = await backlog_store.open_letters(it.connection, 2)
        assert found == Backlogs([Backlog(groups[3], it.topic, 4), Backlog(groups[2], it.topic, 3)], 9, 3)


async def test_od_112_those_of_a_deleted_source_topic_stay_open_until_they_are_closed(
    module_database: str, name: str
) -> None:
    async with scene(module_database, name) as it:
        await append(it.log, it.topic, range(3))
        await it.write(0, 1)
        await it.log.delete_topic(it.topic, 1)
        for stage, _ in purging.STAGES:
            while await it.log.database.query(stage, purging.AT_ONCE, 0) >= purging.AT_ONCE:
                pass
        assert (await it.open(), await it.ranges()) == (2, [(0, 1)])
        assert await it.drop(0, 1) == 2
        assert (await it.open(), await it.ranges()) == (0, [])


async def test_od_113_a_dropped_dead_letter_is_closed_and_never_redriven(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        await it.write(10, 11, 12)
        await it.write(10, group=f"{name}-other")
        assert [await it.drop(1, 3), await it.drop(1, 3)] == [1, 0]
        assert await it.redrive(0, 1) == 1
        assert (await it.open(), await it.open(f"{name}-other")) == (1, 1), "a group drops none of another one"
        outcomes = await it.log.dead_letters.outcomes(it.keys(0, 1, 2, 3))
        ends = {key.offset: end and (end.redriven_to, end.consumer_group) for key, end in outcomes.items()}
        assert ends == {0: ((it.topic, 0, 0), None), 1: (None, None), 2: None}, "the last one is of the other group"
        assert all(end is None or end.closed_at_ms > 0 for end in outcomes.values())
        await it.park(20)
        parked = DeadLetterKey(SharePartitionKey(name, it.topic, 0), REDRIVEN, 20, 5)
        assert [await it.log.dead_letters.close([parked]), await it.redrive_parked(20)] == [1, 0]
        assert await it.open() == 1


async def test_od_114_what_the_consumer_group_finished_is_closed(module_database: str, name: str) -> None:
    async with scene(module_database, name) as it:
        await it.write(10, 11, 12)
        await it.write(10, group=f"{name}-other")
        await it.write(13)
        assert await it.redrive(1) == 1
        assert [await it.finish("desk", 3), await it.finish("desk", 3)] == [2, 0]
        assert (await it.open(), await it.open(f"{name}-other")) == (1, 1)
        assert await it.redrive(0, 4) == 1, "only what the other group has not finished"
        (end,) = (await it.log.dead_letters.outcomes(it.keys(2))).values()
        assert end is not None
        assert (end.redriven_to, end.consumer_group) == (None, "desk")


async def test_od_115_a_record_leads_to_its_dead_letters_until_they_leave_their_topic(
    module_database: str, name: str
) -> None:
    async with scene(module_database, name) as it:
        await it.write(10, 11)
        await it.write(12)
        source = SharePartitionKey(name, it.topic, 0)

        async def letters(*offsets: int) -> list[tuple[int, int]]:
            found = await it.log.dead_letters.pointers(source, offsets)
            return [(pointer.record_offset, pointer.letter_offset) for pointer in found]

        await it.redrive(1)
        assert await letters(11, 12, 13) == [(11, 1), (12, 2)]
        await it.log.delete_records(it.queue, {0: 2})
        assert await letters(10, 11, 12) == [(12, 2)]

"""Trims beside groups that begin, raise their floors, are reset or go away: nothing that a group holds is removed.

A test pauses a transaction at the advisory lock of its partition, which the test takes first.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.removing.readers import Beginning
from sharequeue_gateway.record_log.removing.readers_store import Floor
from sharequeue_gateway.record_log.retention_rule import RetentionRule

from sharequeue.protocol.types import SharePartitionKey
from tests.storage.record_logs import append, batch_of, dead_letter, new_topic
from tests.storage.test_readers import HOLD_MS, opened

NOW_MS = 1_763_640_000_000
KEEP = RetentionRule(retention_ms=0, keep=True)
CLEAN = RetentionRule(cleanup=True)


class Scene:
    """A topic with batches of five records, and groups that read it."""

    def __init__(self, log, readers, connection) -> None:
        self.log, self.readers, self.connection = log, readers, connection
        self.topic = new_topic()

    def key(self, group: str, partition: int = 0) -> SharePartitionKey:
        return SharePartitionKey(group, self.topic, partition)

    async def fill(self, *partitions: int, batches: int = 4) -> None:
        for partition in partitions or (0,):
            for _ in range(batches):
                await append(self.log, self.topic, range(5), partition)

    async def begin(
        self, group: str, partition: int = 0, *, at: int = 0, epoch: int = 1, hold_ms: int = HOLD_MS
    ) -> int:
        """Returns: where the group begins."""
        key = self.key(group, partition)
        return (await self.readers.begin([Beginning(key, epoch, at, True)], hold_ms))[key].start_offset

    async def finish(self, group: str, floor: int, partition: int = 0, epoch: int = 1) -> None:
        await self.readers.raise_floors([Floor(self.key(group, partition), epoch, floor)])

    async def sweep(self, rule: RetentionRule = KEEP, partitions: Sequence[int] = (0,)) -> dict[int, int]:
        """Returns: the log starts that moved."""
        removed = await self.log.apply_retention(self.topic, partitions, rule, NOW_MS)
        return {each.partition: each.log_start_offset for each in removed}

    async def start(self, partition: int = 0) -> int:
        return (await self.log.offsets(self.topic, [partition]))[partition].log_start_offset

    async def age(self, group: str, interval: str) -> None:
        await self.connection.execute(
            f"UPDATE log.readers SET active_at = now() - interval '{interval}' WHERE topic_id = $1 AND group_id = $2",
            self.topic,
            group,
        )


@asynccontextmanager
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with opened(database_url) as parts:
        yield Scene(*parts)


# Which floors count


async def test_rt_101_keep_stops_at_the_slowest_group(module_database: str) -> None:
    async with scene(module_database) as it:
        await it.fill()
        for group, floor in ("fast", 18), ("slow", 7):
            await it.begin(group)
            await it.finish(group, floor)
        assert await it.sweep() == {0: 7}
        await it.finish("slow", 20)
        assert await it.sweep() == {0: 18}
        assert await it.sweep() == {}


async def test_rt_102_no_row_is_not_all_have_finished(module_database: str) -> None:
    """The limits remove, as Kafka's; cleaning does not."""
    async with scene(module_database) as it:
        await it.fill()
        assert await it.sweep(CLEAN) == {}
        assert await it.sweep(KEEP) == {0: 20}


async def test_rt_103_cleaning_needs_no_limit_and_stops_at_the_slowest_group(module_database: str) -> None:
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("a")
        await it.begin("b")
        await it.finish("a", 20)
        assert await it.sweep(CLEAN) == {}
        await it.finish("b", 11)
        assert await it.sweep(CLEAN) == {0: 11}
        assert await it.sweep(RetentionRule(keep=True)) == {}, "without a limit keep removes nothing"


async def test_rt_120_cleaning_keeps_what_an_open_dead_letter_without_a_copy_points_to(module_database: str) -> None:
    """Until it is redriven, or deleted from its topic; parked ones until they are redriven."""
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("g")
        letters, queue = it.log.dead_letters, new_topic()
        bare = [dead_letter(it.topic, offset)._replace(copied=False) for offset in (4, 7, 9)]
        await letters.append(queue, 0, [dead_letter(it.topic, 2), *bare], leader_epoch=1)
        parked = [dead_letter(it.topic, offset)._replace(copied=False) for offset in (11, 12)]
        await letters.park(parked, 1)
        await it.finish("g", 20)
        assert await it.sweep(CLEAN) == {0: 4}
        assert await it.sweep(CLEAN) == {}
        place = SharePartitionKey("g", queue, 0)
        redriven = dead_letter(it.topic, 0)._replace(source=place, state_epoch=-1, offset=1, delivery_count=0)
        await letters.append(it.topic, 0, [redriven])
        assert await it.sweep(CLEAN) == {0: 7}
        await it.log.delete_records(queue, {0: 3})
        assert await it.sweep(CLEAN) == {0: 9}
        await it.log.delete_topic(queue, 1)
        await it.log.database.query(purging.remove_letters, 1000, 0)
        assert await it.sweep(CLEAN) == {0: 11}
        await letters.append(it.topic, 0, [parked[0]._replace(state_epoch=-1)])
        assert await it.sweep(CLEAN) == {0: 12}
        await letters.append(it.topic, 0, [parked[1]._replace(state_epoch=-1)])
        assert await it.sweep(CLEAN) == {0: 20}
        left = "SELECT count(*) FROM log.dead_letter_sources WHERE topic_id = $1"
        assert await it.connection.fetchval(left, it.topic) == 0


async def test_rt_121_what_leaves_the_log_otherwise_is_pointed_to_no_more(module_database: str) -> None:
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("g")
        bare = [dead_letter(it.topic, offset)._replace(copied=False) for offset in (4, 7)]
        await it.log.dead_letters.append(new_topic(), 0, bare, leader_epoch=1)
        await it.log.delete_records(it.topic, {0: 10})
        assert await it.connection.fetchval("SELECT count(*) FROM log.dead_letter_sources WHERE keeps") == 0
        late = dead_letter(it.topic, 8)._replace(copied=False)
        await it.log.dead_letters.append(new_topic(), 0, [late], leader_epoch=1)
        await it.finish("g", 20)
        assert await it.sweep(CLEAN) == {0: 20}


@pytest.mark.parametrize("rule", [KEEP, CLEAN], ids=["keep", "clean"])
async def test_rt_104_a_group_holds_partitions_that_it_has_not_come_to(
    module_database: str, rule: RetentionRule
) -> None:
    """The topic has grown, or the group's first fetch there is still to come."""
    async with scene(module_database) as it:
        await it.fill(0, 1)
        await it.begin("new", 0)
        await it.finish("new", 20)
        await it.begin("old", 1)
        await it.finish("old", 20, 1)
        assert await it.sweep(rule, (0, 1)) == {}
        await it.begin("old", 0)
        await it.finish("old", 20)
        assert await it.sweep(rule, (0, 1)) == {0: 20}


async def test_rt_105_a_group_holds_while_it_is_used(module_database: str) -> None:
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("left")
        await it.begin("here")
        await it.finish("here", 15)
        await it.age("left", "6 days 23 hours")
        assert await it.sweep() == {}
        await it.age("left", "7 days 1 minute")
        (removed,) = await it.log.apply_retention(it.topic, [0], KEEP, NOW_MS)
        assert removed == (0, 15, 20, {"left": 15})
        await it.begin("left", epoch=1, at=15)
        await it.fill()
        await it.finish("here", 40)
        assert await it.sweep() == {}, "it is used again"


async def test_rt_106_a_group_that_may_not_hold_is_passed_over_and_one_that_always_does_is_not(
    module_database: str,
) -> None:
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("out", hold_ms=0)
        await it.begin("ever", hold_ms=-1)
        await it.finish("ever", 6)
        await it.age("ever", "10 years")
        assert await it.sweep() == {0: 6}
        await it.readers.set_hold("ever", 0)
        assert await it.sweep(CLEAN) == {}, "nobody holds it"
        assert await it.sweep() == {0: 20}


async def test_rt_107_what_is_removed_unfinished_is_counted_once(module_database: str) -> None:
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("g")
        await it.finish("g", 3)
        sized = RetentionRule(keep=True, max_bytes=1)
        (removed,) = await it.log.apply_retention(it.topic, [0], sized, NOW_MS)
        assert removed == (0, 15, 20, {"g": 12}), "the newest batch stays"
        await it.fill(batches=1)
        (removed,) = await it.log.apply_retention(it.topic, [0], sized, NOW_MS)
        assert removed == (0, 20, 25, {"g": 5})
        counted = "SELECT removed_unfinished, floor FROM log.readers WHERE topic_id = $1"
        assert tuple(await it.connection.fetchrow(counted, it.topic)) == (17, 3)


async def test_rt_108_the_ceiling_is_looked_at_in_each_sweep(module_database: str) -> None:
    async with scene(module_database) as it:
        await it.log.appender.append([batch_of(it.topic, ["x" * 1000]) for _ in range(1)])
        for _ in range(9):
            await append(it.log, it.topic, ["x" * 1000])
        await it.begin("g")
        assert await it.sweep(RetentionRule(keep=True, max_bytes=3500)) == {0: 7}


async def test_rt_109_a_reset_that_was_cut_off_makes_nothing_unfinished(module_database: str) -> None:
    """The group goes on from its old start, which no floor can say any more."""
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("g")
        await it.finish("g", 15)
        await it.readers.reserve([Floor(it.key("g"), 2, 20)], HOLD_MS)
        (removed,) = await it.log.apply_retention(it.topic, [0], RetentionRule(max_bytes=1), NOW_MS)
        assert removed == (0, 15, 20, {})


async def test_rt_110_deleting_records_goes_over_floors(module_database: str) -> None:
    async with scene(module_database) as it:
        await it.fill()
        await it.begin("g")
        assert await it.log.delete_records(it.topic, {0: 9}) == {0: 9}


# Pauses

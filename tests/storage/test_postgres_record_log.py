"""The record log on PostgreSQL beyond the common suite: group commit, holes, stale writers, keys, dead letters."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from sharequeue_gateway.record_log import append_store, key_store, postgres, store
from sharequeue_gateway.record_log.dead_letters import dead_letter_log, dead_letter_sources
from sharequeue_gateway.record_log.log import AppendResult, OffsetOutOfRange, Offsets
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing import purging, trimming

from sharequeue.protocol.errors import NotLeaderOrFollower, StorageError, UnknownTopicOrPartition
from tests.core.sparse_batches import sparse
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import (
    Heard,
    PostgresRecordLogs,
    append,
    batch_of,
    dead_letter,
    in_company,
    new_topic,
    read_all,
    tail,
)


async def commits_of(admin: Any, topic_id: str) -> list[int]:
    """The number of batches of each commit to partition 0, in order."""
    rows = await admin.fetch(
        """SELECT count(*) FROM log.record_batches WHERE topic_id = $1 AND partition = 0
           GROUP BY xmin::text ORDER BY min(base_offset)""",
        topic_id,
    )
    return [row[0] for row in rows]


async def test_appends_behind_refused_ones_share_a_commit_of_the_fast_path(module_database: str) -> None:
    """Else each of them is refused as well and takes the slow path, and so do the appends that follow it,
    without end."""
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["first"])
        await admin.execute("SELECT pg_advisory_lock($1)", store.lock_key(topic, 0))
        in_company(log)
        refused = [asyncio.create_task(append(log, topic, [number])) for number in range(3)]
        await waiting_for_a_lock(admin, "sharequeue-gateway-log")
        later = [asyncio.create_task(append(log, topic, [number])) for number in range(3, 40)]
        await append(log, new_topic(), ["a commit of the fast path"])
        await admin.execute("SELECT pg_advisory_unlock($1)", store.lock_key(topic, 0))
        assert set(await asyncio.gather(*refused)) == {1, 2, 3}
        assert await asyncio.gather(*later) == list(range(4, 41))
        assert (await read_all(log, topic, offset=4)) == list(range(3, 40))
        assert await commits_of(admin, topic) == [1, 1, 1, 1, 37]


async def test_a_partition_locked_by_another_does_not_stop_the_others(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for partition in (0, 1):
            await append(log, topic, ["first"], partition)
        await admin.execute("SELECT pg_advisory_lock($1)", store.lock_key(topic, 0))
        held = asyncio.create_task(append(log, topic, ["held"], 0))
        assert await append(log, topic, ["free"], 1) == 1
        assert not held.done()
        await admin.execute("SELECT pg_advisory_unlock($1)", store.lock_key(topic, 0))
        assert await held == 1


# What other gateways append


async def test_a_poll_of_the_log_finds_earlier_appends(module_database: str) -> None:
    topic, heard = new_topic(), Heard()
    async with (
        PostgresRecordLogs(module_database).open(listener=heard) as log,
        PostgresRecordLogs(module_database).open() as other,
    ):
        await append(log, topic, ["known"])
        heard.take_changes()
        for end in range(2, 12):
            await append(other, topic, ["theirs"])
            await log.look([(topic, 0)])
            known = log.read_cached(topic, 0, end, 1, 1)
            assert known is not None
            assert known.log_end_offset == end
        assert (topic, 0) in heard.take_changes()


async def test_a_failed_append_still_reports_appends_of_others(database_url: str) -> None:
    """Nothing else would: by the next look the log's end is no news any more, and waiting fetches sleep on."""
    topic, heard = new_topic(), Heard()
    logs = PostgresRecordLogs(database_url)
    async with logs.open(listener=heard) as log, logs.open() as other:
        await append(log, topic, ["known"])
        heard.take_changes()
        async with session(database_url) as connection:
            await connection.execute(
                """CREATE FUNCTION log.full() RETURNS trigger LANGUAGE plpgsql AS
                     $$ BEGIN RAISE 'disk full' USING ERRCODE = '53100'; END $$;
                   CREATE TRIGGER full_disk BEFORE INSERT ON log.idempotency_keys
                     FOR EACH ROW EXECUTE FUNCTION log.full()"""
            )
        await append(other, topic, ["theirs"])
        with pytest.raises(StorageError):
            await log.appender.append([batch_of(topic, "x")], key_of(topic, "k", b"1"))
        assert (topic, 0) in heard.take_changes()
        known = log.read_cached(topic, 0, 2, 1, 1)
        assert known is not None
        assert known.log_end_offset == 2


def count_queries(log: PostgresRecordLog, counted: Callable[..., object]) -> list[int]:
    """Returns: the size of the last argument of each call of a store function from now on."""
    query = log.database.query
    sizes: list[int] = []

    async def counting(function: Any, *arguments: Any) -> Any:
        if function is counted:
            sizes.append(len(arguments[-1]))
        return await query(function, *arguments)

    log.database.query = counting  # type: ignore[method-assign]
    return sizes


async def test_records_of_many_partitions_are_deleted_a_bounded_number_at_a_time(module_database: str) -> None:
    """A transaction for each would take minutes, and one for all would lock more than PostgreSQL has room for."""
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, "abcd", 7)
        await append(log, topic, "abcd", 599)
        transactions = count_queries(log, trimming.delete_records)
        before = dict.fromkeys(range(600), -1) | {7: 3}
        log_starts = await log.delete_records(topic, before)
        assert log_starts == dict.fromkeys(range(600), 0) | {7: 3, 599: 4}
        assert transactions == [250, 250, 100]
        offsets = await log.offsets(topic, [6, 7, 599])
        assert offsets == {6: Offsets(0, 0, 0), 7: Offsets(3, 4, 4), 599: Offsets(4, 4, 4)}
        with pytest.raises(OffsetOutOfRange):
            await log.delete_records(topic, {7: 4, 8: 1})
        assert (await log.offsets(topic, [7]))[7] == Offsets(3, 4, 4), "all of a transaction, or none"


# Offsets without records


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_reading_continues_behind_a_hole(module_database: str, size: int) -> None:
    """Compaction may leave offsets that no batch covers."""
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for _ in range(4):
            await append(log, topic, ["x" * size])
        await admin.execute("DELETE FROM log.record_batches WHERE topic_id = $1 AND base_offset IN (1, 2)", topic)
    async with PostgresRecordLogs(module_database).open() as fresh:
        for offset, found in [(0, 0), (1, 3), (2, 3), (3, 3)]:
            batches = (await fresh.read(topic, 0, offset, 1, 10)).batches
            assert [batch.base_offset for batch in batches] == [found]


async def test_batches_with_gaps_are_read_with_their_gaps(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, "abcde")
        batch = sparse(RecordBatch.encode(0, [tail(value) for value in "abcde"], 0), [1, 3])
        await admin.execute(
            "UPDATE log.record_batches SET records = $2, record_count = 2 WHERE topic_id = $1", topic, batch.stored
        )
    async with PostgresRecordLogs(module_database).open() as fresh:
        (batch,) = (await fresh.read(topic, 0, 2, 1 << 20, 10)).batches
        records = json.loads(b"[" + batch.slice(0, 4) + b"]")
        assert [(record["offset"], record["value"]) for record in records] == [(1, "b"), (3, "d")]
        assert (await fresh.offsets(topic, [0]))[0].log_end_offset == 5
        assert await fresh.offset_for_timestamp(topic, 0, 0) == 1


# Idempotency keys


def repeat_of(first: AppendResult) -> AppendResult:
    """The answer to a repeat of a request with an idempotency key."""
    return msgspec.structs.replace(first, repeated=True)


@pytest.mark.parametrize(("lasting", "days"), [(False, 1), (True, 7)])
async def test_keys_are_kept_for_their_retention_and_no_longer(database_url: str, lasting: bool, days: int) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(database_url).open() as log, session(database_url) as admin:
        key, old = key_of(topic, "k", b"1")._replace(lasting=lasting), purging.OldKeys()
        first = await log.appender.append([batch_of(topic, "a")], key)
        for moved_ms, known in ((days * key_store.DAY_MS - 60_000, True), (60_000, False)):
            await admin.execute("UPDATE log.idempotency_keys SET expires_at_ms = expires_at_ms - $1", moved_ms)
            while await old.remove(admin, 1, 0):
                pass
            assert (await log.appender.append([batch_of(topic, "a")], key) == repeat_of(first)) is known


async def test_keys_go_in_time_after_the_clock_of_postgresql_was_set_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, old = new_topic(), purging.OldKeys()
    async with PostgresRecordLogs(database_url).open() as log, session(database_url) as admin:
        await log.appender.append([batch_of(topic, "a")], key_of(topic, "a", b"1"))
        with monkeypatch.context() as ahead:
            ahead.setattr(purging, "NOW_MS", f"{store.NOW_MS} + {2 * key_store.DAY_MS}")
            await old.remove(admin, 1000, 0)
        await log.appender.append([batch_of(topic, "b")], key_of(topic, "b", b"2"))
        for known in ("b", None):
            await old.remove(admin, 1000, 0)
            assert await admin.fetchval("SELECT key FROM log.idempotency_keys") == known
            await admin.execute(f"UPDATE log.idempotency_keys SET expires_at_ms = {store.NOW_MS}")


# Dead letters


async def test_a_repeated_dead_letter_is_written_once(module_database: str) -> None:
    source, target, heard = new_topic(), new_topic(), Heard()
    async with (
        PostgresRecordLogs(module_database).open(listener=heard) as first,
        PostgresRecordLogs(module_database).open() as second,
    ):
        await first.dead_letters.append(target, 0, [dead_letter(source, 0), dead_letter(source, 1)], leader_epoch=1)
        assert heard.take_changes() == [(target, 0)]
        await second.dead_letters.append(target, 0, [dead_letter(source, offset) for offset in (1, 2)], leader_epoch=1)
        await asyncio.gather(
            *(
                log.dead_letters.append(target, 0, [dead_letter(source, 3)], leader_epoch=1)
                for log in (first, second) * 3
            )
        )
        await first.dead_letters.append(target, 0, [dead_letter(source, 0), dead_letter(source, 1)], leader_epoch=1)
        assert await read_all(first, target) == [["g", offset, 5] for offset in range(4)]
        for other in (dead_letter(source, 0, 6), dead_letter(source, 0, group_id="h")):
            await first.dead_letters.append(target, 0, [other], leader_epoch=1)
        assert await read_all(second, target, offset=4) == [["g", 0, 6], ["h", 0, 5]]


async def test_a_refused_dead_letter_can_be_written_later(module_database: str) -> None:
    source, gone, target = new_topic(), new_topic(), new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, gone, "x")
        await log.delete_topic(gone, 1)
        with pytest.raises(UnknownTopicOrPartition):
            await log.dead_letters.append(gone, 0, [dead_letter(source, 0)], leader_epoch=1)
        await log.dead_letters.append(target, 0, [dead_letter(source, 0)], leader_epoch=1)
        assert await read_all(log, target) == [["g", 0, 5]]


async def test_a_record_of_a_later_life_can_die_again(module_database: str) -> None:
    """A record that is delivered again after a reset of the group's offsets may become a dead letter again."""
    source, target = new_topic(), new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        rows = [dead_letter(source, offset) for offset in range(2)]
        for written in (rows, rows, [row._replace(state_epoch=1) for row in rows[:1]]):
            await log.dead_letters.append(target, 0, written, leader_epoch=1)
        assert await read_all(log, target) == [["g", offset, 5] for offset in (0, 1, 0)]


async def test_a_later_leaders_dead_letter_fences_earlier_leaders(module_database: str) -> None:
    """The earlier leader was paused."""
    source, target = new_topic(), new_topic()
    rows = [dead_letter(source, offset) for offset in range(2)]
    async with PostgresRecordLogs(module_database).open() as log:
        await log.dead_letters.append(target, 0, rows[:1], leader_epoch=7)
        await log.dead_letters.append(target, 0, rows, leader_epoch=9)
        with pytest.raises(NotLeaderOrFollower) as refused:
            await log.dead_letters.append(target, 0, rows, leader_epoch=8)
        assert refused.value.definite
        with pytest.raises(NotLeaderOrFollower):
            await log.dead_letters.park(rows, 8)
        assert await read_all(log, target) == [["g", 0, 5], ["g", 1, 5]]
        assert (source, 0) not in await log.dead_letters.parked_counts("g")
        others = [dead_letter(source, 0, group_id="h")]
        assert await log.dead_letters.append(target, 0, others, leader_epoch=3) == 1, "its writers are others"


async def test_a_concurrent_earlier_leader_writes_first_or_not_at_all(module_database: str) -> None:
    """Its transaction is open when a later leader begins: the later one waits, and finds the written dead letters."""
    source, target = new_topic(), new_topic()
    rows = [dead_letter(source, 0)]
    async with session(module_database) as earlier, PostgresRecordLogs(module_database).open() as log:
        async with earlier.transaction():
            await dead_letter_log.lead(earlier, rows[0].source, 8)
            await dead_letter_sources.point(earlier, rows, [(target, 0, 0)])
            later = asyncio.create_task(log.dead_letters.append(target, 0, rows, leader_epoch=9))
            async with session(module_database) as admin:
                waits = """SELECT count(*) FROM pg_stat_activity
                           WHERE datname = current_database() AND wait_event_type = 'Lock'"""
                while not await admin.fetchval(waits):
                    assert not later.done()
        assert await later == 0


@pytest.mark.parametrize("count", [2, append_store.FEW, append_store.FEW + 1])
async def test_a_commit_inserts_the_batches_of_those_partitions_that_end_at_their_offsets(
    module_database: str, count: int
) -> None:
    """In few batches, which are single parameters, and in many, which are arrays."""
    topic = new_topic()
    async with session(module_database) as admin:
        await admin.execute("INSERT INTO log.partitions (topic_id, partition) VALUES ($1, 0), ($1, 1), ($1, 2)", topic)

        async def commit(offsets: dict[int, int]) -> set[tuple[int, int]]:
            """Send batches of one record from these offsets on, of the partitions by turns."""
            places = [
                (number % len(offsets), offsets[number % len(offsets)] + number // len(offsets))
                for number in range(count)
            ]
            ids = {append_store.new_append_id(): place for place in places}
            batches = [
                (topic, place[0], RecordBatch.encode(place[1], [tail(1)], 7), each) for each, place in ids.items()
            ]
            return {ids[each] for each in await append_store.append(admin, batches, {}, {})}

        both = await commit({0: 0, 1: 0})
        assert len(both) == count
        ends = [sum(partition == each for partition, _ in both) for each in (0, 1)]
        one = await commit({0: ends[0], 1: ends[1] + 1})
        assert {partition for partition, _ in one} == {0}
        assert len(one) == (count + 1) // 2
        assert await commit({0: 0}) == set()
        stored = await admin.fetch("SELECT partition, base_offset FROM log.record_batches WHERE topic_id = $1", topic)
        assert {tuple(row) for row in stored} == both | one


async def test_parked_dead_letters_are_kept_once_and_counted(module_database: str) -> None:
    one, two = new_topic(), new_topic()
    group = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        rows = [dead_letter(one, offset, group_id=group) for offset in range(3)]
        for _ in range(2):
            await log.dead_letters.park(rows, 1)
        await log.dead_letters.park([dead_letter(two, 0, group_id=group)], 1)
        await log.dead_letters.park([dead_letter(one, 9, group_id="other")], 1)
        await log.dead_letters.park([dead_letter(one, 3, group_id=group)._replace(cause="too large")], 1)
        assert await log.dead_letters.parked_counts(group) == {
            (one, 0): (4, "too large"),
            (two, 0): (1, "rejected by client"),
        }
        assert await log.dead_letters.parked_counts("nobody") == {}


async def test_a_refusal_behind_partitions_that_moved_is_not_definite(
    module_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "TRIMMED_AT_ONCE", 1)
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, range(5))
        for before, definite in (({0: 6, 1: 0}, True), ({0: 2, 1: 6}, False)):
            with pytest.raises(OffsetOutOfRange) as refused:
                await log.delete_records(topic, before)
            assert refused.value.definite is definite
        assert (await log.offsets(topic, [0]))[0].log_start_offset == 2

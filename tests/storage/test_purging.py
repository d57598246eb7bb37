"""The purge of the record log: the rows it removes, its timing, and the log end that survives them."""

from typing import Any

import pytest
from sharequeue_gateway.record_log.removing import purging

from sharequeue.protocol.errors import UnknownTopicOrPartition
from tests.storage.database import session
from tests.storage.record_logs import PostgresRecordLogs, append, dead_letter, new_topic, read_all, rows_of


async def test_rows_are_purged_some_time_after_the_log_start_passed_them(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for _ in range(4):
            await append(log, topic, "abc")
        await purging.remove_rows(admin, 1000, 0)
        assert await rows_of(admin, topic) == [0, 3, 6, 9]
        await log.delete_records(topic, {0: 7})
        await purging.remove_rows(admin, 1000, 60)
        assert await rows_of(admin, topic) == [0, 3, 6, 9], "a reader may still be at them"
        assert await purging.remove_rows(admin, 1, 0) == 1
        assert await rows_of(admin, topic) == [3, 6, 9]
        await purging.remove_rows(admin, 1000, 0)
        assert await rows_of(admin, topic) == [6, 9], "a batch across the log start stays"
        assert await read_all(log, topic) == list("bcabc")


async def age_marks(connection: Any, topic_id: str) -> None:
    """Make every mark for the purge a minute older."""
    await connection.execute(
        "UPDATE log.partitions SET trimmed_at = trimmed_at - interval '61 s' WHERE topic_id = $1", topic_id
    )


async def test_a_log_start_that_moves_often_does_not_delay_the_purge(module_database: str) -> None:
    """Retention moves it every minute, the purge waits for a minute."""
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for _ in range(6):
            await append(log, topic, "abc")
        for trimmed, kept in [(3, [0, 3, 6, 9, 12, 15]), (7, [3, 6, 9, 12, 15]), (12, [6, 9, 12, 15]), (12, [12, 15])]:
            await log.delete_records(topic, {0: trimmed})
            await purging.remove_rows(admin, 1000, 60)
            await purging.renew_marks(admin, 1000, 60)
            assert await rows_of(admin, topic) == kept, "only what was below the log start a minute ago"
            await age_marks(admin, topic)
        for _ in range(2):
            await purging.renew_marks(admin, 1000, 60)
        assert await admin.fetchval("SELECT trimmed_at FROM log.partitions WHERE topic_id = $1", topic) is None
        assert await read_all(log, topic) == list("abcabc")


async def test_rows_trimmed_while_older_ones_waited_are_purged_without_another_trim(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for _ in range(4):
            await append(log, topic, "abc")
        await log.delete_records(topic, {0: 3})
        await log.delete_records(topic, {0: -1})
        for kept in ([3, 6, 9], []):
            await age_marks(admin, topic)
            await purging.remove_rows(admin, 1000, 60)
            await purging.renew_marks(admin, 1000, 60)
            assert await rows_of(admin, topic) == kept
        assert await append(log, topic, ["next"]) == 12


async def test_a_purged_partition_continues_its_offsets(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as stale:
        await append(stale, topic, range(10))
        async with PostgresRecordLogs(module_database).open() as other:
            await append(other, topic, range(20))
            await other.delete_records(topic, {0: -1})
        await purging.remove_rows(admin, 1000, 0)
        assert await rows_of(admin, topic) == []
        assert await append(stale, topic, ["stale"]) == 30
        async with PostgresRecordLogs(module_database).open() as fresh:
            assert await append(fresh, topic, ["fresh"]) == 31
            assert await read_all(fresh, topic) == ["stale", "fresh"]


async def test_rows_of_a_deleted_topic_are_purged_at_once(module_database: str) -> None:
    topic, other = new_topic(), new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        for topic_id in (topic, other):
            for partition in (0, 1):
                await append(log, topic_id, "ab", partition)
        await log.delete_topic(topic, 2)
        await purging.remove_rows(admin, 1000, 60)
        assert await rows_of(admin, topic) == []
        assert await rows_of(admin, other) == [0, 0]
        with pytest.raises(UnknownTopicOrPartition):
            await append(log, topic, "z")


async def test_a_deleted_topic_takes_what_is_scheduled_and_its_keys_along(module_database: str) -> None:
    deleted, kept = new_topic(), new_topic()
    rows = """
        INSERT INTO log.scheduled_records SELECT gen_random_uuid(), $1, 0, n, NULL, 1, 'x' FROM generate_series(1, 5) n;
        INSERT INTO log.scheduled_counts SELECT $1, n, 1, 1 FROM generate_series(1, 5) n;
        INSERT INTO log.schedules SELECT $1, n, '* * * * *', 'UTC', 'one', true, 0, 'x', 1 FROM generate_series(1, 5) n;
        INSERT INTO log.unique_keys SELECT $1, n::text::bytea, 2 ^ 60, 0, n FROM generate_series(1, 5) n"""
    async with session(module_database) as admin:
        for topic in (deleted, kept):
            await admin.execute(rows.replace("$1", f"'{topic}'::uuid"))
        async with PostgresRecordLogs(module_database).open() as log:
            await log.delete_topic(deleted, 1)
        for table in purging.OF_TOPICS:
            while await purging.remove_of_deleted(table, admin, 2, 0):
                pass
            assert {row[0] for row in await admin.fetch(f"SELECT topic_id::text FROM log.{table}")} == {kept}


async def test_a_deleted_topic_is_forgotten_once_every_writer_knows(module_database: str) -> None:
    topic, other = new_topic(), new_topic()
    counted = [
        f"SELECT count(*) FROM log.{table} WHERE topic_id = $1"
        for table in ("partitions", "dead_letter_writers", "dead_letter_sources")
    ]
    async with (
        session(module_database) as admin,
        PostgresRecordLogs(module_database).open() as log,
        PostgresRecordLogs(module_database).open() as stale,
    ):
        for topic_id in (topic, other):
            for partition in (0, 1):
                await append(stale, topic_id, "ab", partition)
            await log.dead_letters.append(new_topic(), 0, [dead_letter(topic_id, 0)], leader_epoch=1)
            await log.dead_letters.park([dead_letter(topic_id, 1)], 1)
        await log.delete_topic(topic, 2)

        async def purge(keep_s: int) -> list[int]:
            await purging.remove_rows(admin, 1000, 60)
            await purging.renew_marks(admin, 1000, 60)
            await purging.forget_deleted(admin, 1000, keep_s)
            return [await admin.fetchval(query, topic) for query in counted]

        assert await purge(0) == [2, 1, 2], "an append that began before may still come"
        await age_marks(admin, topic)
        assert await purge(60) == [2, 1, 2]
        for partition in (0, 1):
            with pytest.raises(UnknownTopicOrPartition):
                await append(stale, topic, "z", partition)
        assert await purge(0) == [0, 0, 1], "the dead letter that is in its topic stays known"
        assert [await admin.fetchval(query, other) for query in counted] == [2, 1, 2]
        assert await read_all(log, other) == ["a", "b"]

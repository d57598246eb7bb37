"""Topics of thousands of partitions: no transaction takes so many locks that PostgreSQL has none left for others."""

import asyncio
from typing import Any

import pytest
from sharequeue_gateway.record_log.log import MOST_PARTITIONS
from sharequeue_gateway.record_log.store import lock_key

from sharequeue.protocol.errors import UnknownTopicOrPartition
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.record_logs import PostgresRecordLogs, append, batch_of, new_topic

PARTITIONS = 2 * MOST_PARTITIONS + 500
NARROW = 100
"""Locks that other transactions may have beside a wide one."""


async def locks(connection: Any) -> int:
    """Advisory locks of this database that are held."""
    count: int = await connection.fetchval(
        """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
    )
    return count


def last_locked(topic_id: str, partitions: range) -> int:
    """The partition whose lock is taken after those of all others."""
    return max(partitions, key=lambda partition: lock_key(topic_id, partition))


async def test_a_topic_is_deleted_in_parts(database_url: str) -> None:
    topic = new_topic()
    last_part = range(2 * MOST_PARTITIONS, PARTITIONS)
    async with session(database_url) as admin, PostgresRecordLogs(database_url).open() as log:
        await append(log, topic, ["there"], PARTITIONS - 1)
        async with admin.transaction():
            await admin.execute("SELECT pg_advisory_xact_lock($1)", lock_key(topic, last_locked(topic, last_part)))
            deletion = asyncio.create_task(log.delete_topic(topic, PARTITIONS))
            await waiting_for_a_lock(admin, "sharequeue-gateway-log")
            assert await locks(admin) <= MOST_PARTITIONS
            marked = await admin.fetchval("SELECT count(*) FROM log.partitions WHERE topic_id = $1 AND deleted", topic)
            assert marked == 2 * MOST_PARTITIONS
        await deletion
        for partition in (0, MOST_PARTITIONS, PARTITIONS - 1):
            with pytest.raises(UnknownTopicOrPartition):
                await append(log, topic, ["late"], partition)


async def test_wide_appends_take_turns(database_url: str) -> None:
    """Appends to a single partition do not wait for wide ones."""
    first, second, narrow = (new_topic() for _ in range(3))
    everywhere = range(MOST_PARTITIONS)
    async with session(database_url) as admin, PostgresRecordLogs(database_url).open() as log:
        async with admin.transaction():
            for topic in (first, second):
                await admin.execute("SELECT pg_advisory_xact_lock($1)", lock_key(topic, last_locked(topic, everywhere)))
            wide = [
                asyncio.create_task(log.appender.append([batch_of(topic, "a", partition) for partition in everywhere]))
                for topic in (first, second)
            ]
            await waiting_for_a_lock(admin, "sharequeue-gateway-log")
            for number in range(20):
                assert await append(log, narrow, [number]) == number
            assert await locks(admin) <= MOST_PARTITIONS + NARROW
        for task in wide:
            assert (await task).base_offsets == [0] * MOST_PARTITIONS

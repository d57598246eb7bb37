"""The record log on PostgreSQL when connections die: every outcome is reported correctly,
and nothing is written twice."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from msgspec import structs
from sharequeue_gateway.record_log.store import lock_key

from sharequeue.protocol.errors import StorageError
from sharequeue_http.forms.errors import ApiError
from tests.storage.database import failed_looks, session, waiting_for_a_lock
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import PostgresRecordLogs, append, batch_of, deadline, new_topic, read_all


async def waiting_for_partition(connection: Any, topic_id: str, partition: int, wanted: int) -> None:
    """Wait until so many wait for a partition's lock."""
    query = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
               AND (classid::bigint << 32 | objid::bigint) = $1"""
    while True:
        if await connection.fetchval(query, lock_key(topic_id, partition)) == wanted:
            return
        await asyncio.sleep(0.01)


async def stored(connection: Any, topic_id: str, wanted: int) -> None:
    """Wait until so many batches are there."""
    while True:
        query = "SELECT count(*) FROM log.record_batches WHERE topic_id = $1"
        if await connection.fetchval(query, topic_id) == wanted:
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_backend_killed_in_mid_append_of_several_partitions_leaves_all_or_nothing(
    module_database: str, keyed: bool
) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["first"])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            key = key_of(topic, "k", b"1") if keyed else None
            task = asyncio.create_task(log.appender.append([batch_of(topic, "a", 1), batch_of(topic, "b", 0)], key))
            for pid in await waiting_for_a_lock(admin, "sharequeue-gateway-log"):
                await admin.execute("SELECT pg_terminate_backend($1)", pid)
        assert list((await task).base_offsets) == [0, 1]
        assert (await read_all(log, topic, 0), await read_all(log, topic, 1)) == (["first", "b"], ["a"])


async def test_an_append_that_arrives_after_its_connection_was_lost_is_stored_once(module_database: str) -> None:
    topic = new_topic()
    async with LossyProxy(module_database).running() as proxy, PostgresRecordLogs(proxy.url).open() as log:
        await append(log, topic, ["first"])
        await append(log, topic, ["second"])
        proxy.hold_requests = True
        task = asyncio.create_task(append(log, topic, ["third"]))
        await proxy.held.wait()
        proxy.cut()
        assert await task == 2
        await proxy.deliver()
        assert await append(log, topic, ["fourth"]) == 3
        assert await read_all(log, topic) == ["first", "second", "third", "fourth"]


async def test_an_append_that_arrives_between_lookup_and_retry_is_stored_once(module_database: str) -> None:
    topic = new_topic()
    async with (
        session(module_database) as admin,
        LossyProxy(module_database).running() as proxy,
        PostgresRecordLogs(proxy.url).open() as log,
    ):
        await append(log, topic, ["first"])
        await append(log, topic, ["second"])
        proxy.hold_requests = True
        task = asyncio.create_task(append(log, topic, ["third"]))
        await proxy.held.wait()
        for partition in (0, 1):
            await admin.execute("SELECT pg_advisory_lock($1)", lock_key(topic, partition))
        proxy.cut()
        await waiting_for_a_lock(admin, "sharequeue-gateway-log")
        others = [
            asyncio.create_task(log.appender.append([batch_of(topic, [n], 1), batch_of(topic, [n], 2 + n)]))
            for n in range(8)
        ]
        await waiting_for_partition(admin, topic, 1, 7)
        await admin.execute("SELECT pg_advisory_unlock($1)", lock_key(topic, 0))
        # it looks and finds nothing; the others leave it no connection to append with
        await waiting_for_partition(admin, topic, 1, 8)
        await proxy.deliver()
        await admin.execute("SELECT pg_advisory_unlock($1)", lock_key(topic, 1))
        assert await task == 2
        await asyncio.gather(*others)
        assert await read_all(log, topic) == ["first", "second", "third"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_lost_commit_of_several_partitions_is_looked_up(module_database: str, keyed: bool) -> None:
    topic = new_topic()
    async with (
        session(module_database) as admin,
        LossyProxy(module_database).running() as proxy,
        PostgresRecordLogs(proxy.url).open() as log,
    ):
        await append(log, topic, ["first"])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            key = key_of(topic, "k", b"1") if keyed else None
            task = asyncio.create_task(log.appender.append([batch_of(topic, "a", 1), batch_of(topic, "b", 0)], key))
            await waiting_for_a_lock(admin, "sharequeue-gateway-log")
            proxy.lose_answers = True
        await asyncio.sleep(0)
        proxy.cut()
        result = await task
        assert list(result.base_offsets) == [0, 1]
        assert result.answer == (b"[0, 1]" if keyed else None)
        assert (await read_all(log, topic, 0), await read_all(log, topic, 1)) == (["first", "b"], ["a"])


async def gone(connection: Any) -> None:
    """Wait until all other connections have ended; their statistics are complete then."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    while True:
        if await connection.fetchval(query) == 0:
            return
        await asyncio.sleep(0.01)


async def test_a_lost_commit_is_looked_up_without_reading_the_whole_history(database_url: str) -> None:
    topic, batches = new_topic(), 5000
    read = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relid = 'log.record_batches'::regclass"
    async with session(database_url) as admin:
        async with LossyProxy(database_url).running() as proxy, PostgresRecordLogs(proxy.url).open() as log:
            for partition in (0, 1):
                await append(log, topic, ["first"], partition)
            await admin.execute(
                """INSERT INTO log.record_batches SELECT topic_id, partition, n, n, 0, 1, append_id, 0, 0, NULL, records
                   FROM log.record_batches, generate_series(1, $2) n WHERE topic_id = $1""",
                topic,
                batches,
            )
            await admin.execute("VACUUM ANALYZE log.record_batches")
            async with admin.transaction():
                await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
                task = asyncio.create_task(log.appender.append([batch_of(topic, "a", 0), batch_of(topic, "b", 1)]))
                await waiting_for_a_lock(admin, "sharequeue-gateway-log")
                proxy.cut()
            assert list((await task).base_offsets) == [batches + 1] * 2
        await gone(admin)
        assert await admin.fetchval(read) < batches


async def append_fails(call: Awaitable[object]) -> ApiError:
    with pytest.raises(ApiError) as raised:
        await call
    assert (raised.value.status, raised.value.error.retriable) == (503, True)
    return raised.value


async def test_an_unreachable_database_is_reported_and_used_again_when_it_is_back(database_url: str) -> None:
    topic = new_topic()
    name = database_url.rsplit("/", 1)[1]
    async with (
        session(database_url.rsplit("/", 1)[0] + "/sharequeue") as admin,
        PostgresRecordLogs(database_url).open() as log,
    ):
        await append(log, topic, ["first"])
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        with pytest.raises(StorageError):
            await log.database.health.check()
        with deadline(log, 1):
            await append_fails(append(log, topic, ["x"]))
            for call in (
                append(log, topic, ["a"]),
                log.appender.append([batch_of(topic, "b", 0), batch_of(topic, "c", 1)]),
            ):
                error = await append_fails(call)
                assert error.definite, "nothing could be sent"
        before = failed_looks("log_ends")
        while True:
            if failed_looks("log_ends") > before:
                break
            await asyncio.sleep(0.01)
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await log.database.health.check()
        assert await append(log, topic, ["back"]) == 1
        assert await read_all(log, topic) == ["first", "back"]


async def test_a_poisoned_append_fails_alone_and_at_once(module_database: str) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(module_database).open(deadline_s=120) as log:
        await append(log, topic, ["first"])
        requests = [batch_of(topic, [number]) for number in range(20)]
        requests[7] = structs.replace(requests[7], max_timestamp_ms=2**70)
        async with asyncio.timeout(60):
            outcomes = await asyncio.gather(
                *(log.appender.append([request]) for request in requests), return_exceptions=True
            )
            several = [requests[7], batch_of(topic, "x", 1)]
            with pytest.raises(StorageError) as raised:
                await log.appender.append(several)
        assert raised.value.definite
        failure = outcomes.pop(7)
        assert isinstance(failure, StorageError)
        assert failure.definite
        assert not [o for o in outcomes if isinstance(o, BaseException)]
        values = await read_all(log, topic)
        assert sorted(map(str, values[1:])) == sorted(str(number) for number in range(20) if number != 7)
        assert (await log.offsets(topic, [1]))[1].log_end_offset == 0


async def test_a_disconnect_does_not_undo_an_append(module_database: str) -> None:
    topic = new_topic()
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        await append(log, topic, ["first"])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            single = asyncio.create_task(append(log, topic, ["single"]))
            several = asyncio.create_task(log.appender.append([batch_of(topic, "a", 1), batch_of(topic, "b", 2)]))
            await waiting_for_a_lock(admin, "sharequeue-gateway-append")
            await waiting_for_a_lock(admin, "sharequeue-gateway-log")
            single.cancel()
            several.cancel()
            await asyncio.wait([single, several])
        await stored(admin, topic, 4)
        assert await read_all(log, topic) == ["first", "single"]
        assert (await read_all(log, topic, 1), await read_all(log, topic, 2)) == (["a"], ["b"])
        assert await append(log, topic, ["next"]) == 2

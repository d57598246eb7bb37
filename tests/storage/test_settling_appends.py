"""An append that settles acknowledgements in the same commit: how many statements it takes, and who wins against its
time-out."""

import asyncio

import pytest
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import AppendResult
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.transactions import settlements
from sharequeue_gateway.record_log.transactions.settlements import Settlement, Settling
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction

from sharequeue.protocol.errors import InvalidTxnState
from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.record_logs import NO_SWEEP, PostgresRecordLogs, append, batch_of, new_topic, read_all


async def begin(log: PostgresRecordLog, timeout_ms: int = 60_000) -> str:
    return (await log.transactions.begin(NewTransaction(timeout_ms, durable=False))).transaction_id


async def settle(log: PostgresRecordLog, transaction_id: str, *topics: str) -> AppendResult:
    """Append a record to each of these topics, and settle something."""
    settlement = Settlement(SharePartitionKey("g", topics[0], 7), 1, 1, b"[]")
    settling = Settling(b"digest", [settlement])
    appends = [batch_of(topic, ["result"]) for topic in topics]
    return await log.transactions.append_and_settle(transaction_id, settling, appends, None)


async def unapplied(log: PostgresRecordLog, transaction_id: str) -> int:
    return len(await log.database.query(settlements.of_transaction, transaction_id))


async def test_it_takes_three_statements_and_their_commit(database: str) -> None:
    topic = new_topic()
    statements: list[str] = []
    async with PostgresRecordLogs(database).open(connections=1) as log:
        await append(log, topic, "ab")
        transaction_id = await begin(log)
        async with log.database.connections.lend(5) as connection:
            connection.add_query_logger(lambda logged: statements.append(logged.query.split()[0]))
        assert (await settle(log, transaction_id, topic)).base_offsets == [2]
        first = statements.index("BEGIN;")
        assert statements[first : statements.index("COMMIT") + 1] == ["BEGIN;", "WITH", "WITH", "INSERT", "COMMIT"]
        assert await unapplied(log, transaction_id) == 1
        assert await read_all(log, topic) == ["a", "b", "result"]


async def test_partitions_without_any_append_are_made(database: str) -> None:
    new, known = new_topic(), new_topic()
    async with PostgresRecordLogs(database).open() as log:
        await append(log, known, "ab")
        transaction_id = await begin(log)
        assert (await settle(log, transaction_id, new, known)).base_offsets == [0, 2]
        assert await unapplied(log, transaction_id) == 1
        assert await read_all(log, new) == ["result"]


async def test_a_time_that_passes_before_the_partition_is_free_settles_nothing(database: str) -> None:
    """Whether its time has passed is decided under all locks."""
    topic = new_topic()
    opened = PostgresRecordLogs(database).open(transactions=NO_SWEEP)
    async with session(database) as holder, session(database) as admin, opened as log:
        await append(log, topic, "ab")
        async with holder.transaction():
            await store.lock(holder, [(topic, 0)])
            transaction_id = await begin(log, timeout_ms=200)
            settling = asyncio.create_task(settle(log, transaction_id, topic))
            assert await waiting_for_a_lock(admin, "sharequeue-gateway-log")
            await admin.execute(
                "SELECT pg_sleep_until(deadline) FROM log.transactions WHERE transaction_id = $1", transaction_id
            )
        with pytest.raises(InvalidTxnState):
            await settling
        assert await unapplied(log, transaction_id) == 0
        assert await read_all(log, topic) == ["a", "b"]

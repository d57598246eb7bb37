"""An append that settles acknowledgements in the same commit: how many statements it takes, and who wins against its
time-out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.transactions import settlements, transaction_store
from sharequeue_gateway.record_log.transactions.settlements import Settlement, Settling
from sharequeue_gateway.record_log.transactions.transaction_rules import TERMINATE
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction

from sharequeue.protocol.errors import ConcurrentTransactions, InvalidTxnState
from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_log_suite import key_of
from tests.storage.record_logs import NO_SWEEP, PostgresRecordLogs, append, batch_of, new_topic, read_all


@pytest.fixture(autouse=True)
def no_purge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statements would be on the only connection, too."""

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(purging, "run", never)


async def begin(log: PostgresRecordLog, timeout_ms: int = 60_000) -> str:
    return (await log.transactions.begin(NewTransaction(timeout_ms, durable=False))).transaction_id


async def settle(
    log: PostgresRecordLog, transaction_id: str, *topics: str, key: IdempotencyKey | None = None
) -> AppendResult:
    """Append a record to each of these topics, and settle something."""
    settlement = Settlement(SharePartitionKey("g", topics[0], 7), 1, 1, b"[]")
    settling = Settling(b"digest", [settlement])
    appends = [batch_of(topic, ["result"]) for topic in topics]
    return await log.transactions.append_and_settle(transaction_id, settling, appends, key)


async def unapplied(log: PostgresRecordLog, transaction_id: str) -> int:
    return len(await log.database.query(settlements.of_transaction, transaction_id))


@asynccontextmanager
async def statements_of(log: PostgresRecordLog) -> AsyncIterator[list[str]]:
    """The first words of the statements on the only connection of a log."""
    statements: list[str] = []
    async with log.database.connections.lend(5) as connection:
        connection.add_query_logger(lambda logged: statements.append(logged.query.split()[0]))
    yield statements


@pytest.mark.parametrize("keyed", [False, True])
async def test_an_append_to_one_partition_is_one_statement(database: str, keyed: bool) -> None:
    topic = new_topic()
    key = key_of(topic, "k", b"1") if keyed else None
    async with PostgresRecordLogs(database).open(connections=1) as log:
        await append(log, topic, "ab")
        transaction_id = await begin(log)
        async with statements_of(log) as statements:
            result = await settle(log, transaction_id, topic, key=key)
            assert (result.base_offsets, result.answer, result.repeated) == ([2], b"[2]" if keyed else None, False)
        assert [word for word in statements if word not in ("SELECT", "RESET")] == ["WITH"]
        assert await unapplied(log, transaction_id) == 1
        assert await read_all(log, topic) == ["a", "b", "result"]
        if key is not None:
            first = await log.transactions.first_answer(key)
            assert first is not None
            assert first.answer == b"[2]"


@pytest.mark.parametrize("in_the_way", ["an append of another gateway", "the key", "a record of the transaction"])
async def test_what_is_in_the_way_of_the_one_statement_is_found(database: str, in_the_way: str) -> None:
    topic = new_topic()
    key = key_of(topic, "k", b"1")
    logs = PostgresRecordLogs(database)
    async with logs.open() as log, logs.open() as other:
        await append(log, topic, "ab")
        transaction_id = await begin(log)
        if in_the_way == "the key":
            await other.appender.append([batch_of(topic, ["first"])], key)
            result = await settle(log, transaction_id, topic, key=key)
            assert (result.base_offsets, result.repeated, await unapplied(log, transaction_id)) == ([2], True, 0)
            assert await read_all(log, topic) == ["a", "b", "first"]
        elif in_the_way == "a record of the transaction":
            foreign = msgspec.structs.replace(batch_of(topic, ["x"]), transaction_id=transaction_id)
            await other.transactions.append(transaction_id, [foreign])
            with pytest.raises(ConcurrentTransactions):
                await settle(log, transaction_id, topic, key=key)
            assert await unapplied(log, transaction_id) == 0
            assert await read_all(log, topic) == ["a", "b", "x"]
        else:
            await append(other, topic, ["first"])
            assert (await settle(log, transaction_id, topic, key=key)).base_offsets == [3]
            assert await unapplied(log, transaction_id) == 1
            assert await read_all(log, topic) == ["a", "b", "first", "result"]


@pytest.mark.parametrize("end", ["its time has passed", "an operator has ended it"])
async def test_a_transaction_that_is_over_settles_and_appends_nothing(database: str, end: str) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(database).open(transactions=NO_SWEEP) as log, session(database) as admin:
        await append(log, topic, "ab")
        transaction_id = await begin(log)
        if end == "an operator has ended it":
            await log.transactions.end(transaction_id, TERMINATE)
        else:
            passed = "UPDATE log.transactions SET deadline = clock_timestamp() WHERE transaction_id = $1"
            await admin.execute(passed, transaction_id)
        with pytest.raises(InvalidTxnState):
            await settle(log, transaction_id, topic, key=key_of(topic, "k", b"1"))
        assert await unapplied(log, transaction_id) == 0
        assert await read_all(log, topic) == ["a", "b"]
        assert await log.transactions.first_answer(key_of(topic, "k", b"1")) is None


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_lost_answer_is_looked_up(database: str, keyed: bool) -> None:
    topic = new_topic()
    key = key_of(topic, "k", b"1") if keyed else None
    async with (
        session(database) as admin,
        LossyProxy(database).running() as proxy,
        PostgresRecordLogs(proxy.url).open(transactions=NO_SWEEP, connections=1) as log,
    ):
        await append(log, topic, "a")
        await settle(log, await begin(log), topic)  # the statement is prepared
        transaction_id = await begin(log)
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            settling = asyncio.create_task(settle(log, transaction_id, topic, key=key))
            await waiting_for_a_lock(admin, "sharequeue-gateway-log")
            proxy.lose_answers = True
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")  # it comes behind the append
        proxy.lose_answers = False
        proxy.cut()
        assert (await settling).base_offsets == [2]
        assert await unapplied(log, transaction_id) == 1
        assert await read_all(log, topic) == ["a", "result", "result"]


async def test_records_that_were_committed_after_the_statement_began_are_seen(database: str) -> None:
    """A statement sees the rows of its beginning, and `has_written` is asked after it has locked the transaction."""
    async with session(database) as asking, session(database) as writer:
        await writer.execute("SELECT pg_advisory_lock(77)")
        question = "WITH waited AS MATERIALIZED (SELECT pg_advisory_lock(77)) SELECT log.has_written('t') FROM waited"
        asked = asyncio.create_task(asking.fetchval(question))
        await waiting_for_a_lock(writer, "")
        await transaction_store.register(writer, "t", [(new_topic(), 0)], [0])
        await writer.execute("SELECT pg_advisory_unlock(77)")
        assert await asked is True


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

"""The statements of transactions on 9,000 open transactions and 50,000 outcomes: each uses its index."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from sharequeue_gateway.record_log import append_store, key_store, store
from sharequeue_gateway.record_log.database import APPEND_SETTINGS
from sharequeue_gateway.record_log.key_store import KEEP
from sharequeue_gateway.record_log.owner import owner_of
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing import purging, trimming
from sharequeue_gateway.record_log.transactions import (
    begin_store,
    list_store,
    open_store,
    transaction_store,
)
from sharequeue_gateway.record_log.transactions.transaction_rules import Reason, State
from sharequeue_gateway.record_log.transactions.transaction_store import Verdict

from sharequeue.protocol.messages.transactions import ListTransactionsQuery
from tests.storage.test_query_plans import explained

TOPIC = "00000000-0000-0000-0000-000000000001"
PLACE = (TOPIC, 7)
COMMITTED = ListTransactionsQuery(state="committed", page_size=100)
OF_A_PRODUCER = ListTransactionsQuery(state="committed", transactional_id="x7", page_size=100)
ABORTED = ListTransactionsQuery(state="aborted", page_size=100)
MINE = owner_of("User:a", ["x1"], ["x"]).patterns
TABLES = (
    "transactions",
    "transaction_partitions",
    "transaction_outcomes",
    "idempotency_keys",
    "transactional_producers",
    "record_batches",
)
FILL = f"""
INSERT INTO log.partitions (topic_id, partition) SELECT '{TOPIC}', n FROM generate_series(0, 999) n;
INSERT INTO log.readers (topic_id, partition, group_id, state_epoch, floor)
  SELECT '{TOPIC}', n % 1000, 'g' || n / 1000, 0, 0 FROM generate_series(0, 19999) n;
INSERT INTO log.transactions (transaction_id, transactional_id, timeout_ms, deadline)
  SELECT 't' || n, 'x' || n, 1, now() + interval '1 hour' FROM generate_series(1, 9000) n;
INSERT INTO log.transaction_partitions
  SELECT 't' || n, '{TOPIC}', (n + 7 * p) % 1000, n FROM generate_series(1, 9000) n, generate_series(0, 2) p;
INSERT INTO log.transactional_producers (transactional_id, producer_epoch, keep_until)
  SELECT 'x' || n, 0, now() + interval '1 day' FROM generate_series(1, 50000) n;
INSERT INTO log.aborted_transactions
  SELECT '{TOPIC}', n % 1000, 'a' || n, n, n + 1 FROM generate_series(1, 50000) n;
INSERT INTO log.record_batches
  (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count, append_id, records)
  SELECT '{TOPIC}', n % 1000, n / 1000, n / 1000, n, 0, gen_random_uuid(), '\\x0500000000' FROM generate_series(0, 49999) n;
INSERT INTO log.transaction_outcomes
  (transaction_id, producer_epoch, principal, committed, reason, partitions, began_at)
  SELECT 'o' || n, 0, '', true, 0, 1, now() FROM generate_series(1, 50000) n;
{KEEP} n, '{TOPIC}', n, '/p', '', '', '', '{{}}' FROM generate_series(60000, 69999) n;
ANALYZE;
"""

Statement = Callable[[Any], Awaitable[object]]


async def append_to(connection: Any, *transaction_ids: str) -> None:
    rows = [
        (*PLACE, RecordBatch.encode(offset, [b',"value":1}'], 7, None, transaction_id), uuid.uuid4().hex)
        for offset, transaction_id in enumerate(transaction_ids, 50)
    ]
    inserted = await append_store.append(connection, rows, {}, {row[3]: MINE for row in rows})
    assert inserted == {row[3]: True for row in rows}


async def end(connection: Any, transaction_id: str) -> None:
    found = await transaction_store.row_of(connection, transaction_id, MINE, "FOR UPDATE")
    assert found is not None
    last = await transaction_store.look_to_end(connection, transaction_id)
    await transaction_store.lock_places(connection, last.places, large=True)
    ids = [transaction_id]
    verdict = Verdict(transaction_id, ids, State.ABORTED, Reason.CLIENT, last.now, last.now_ms, "note")
    assert len(await transaction_store.write_markers(connection, verdict, last.places[1:2])) == 1
    assert len(await transaction_store.end_with_records(connection, verdict, 1)) == 2


STATEMENTS: dict[str, tuple[Statement, int]] = {
    "bounds": (lambda c: store.bounds(c, [PLACE]), 10),
    "append": (lambda c: append_to(c, "t5"), 50),
    "append to many": (lambda c: append_to(c, *(f"t{n}" for n in range(5, 25))), 100),
    "share": (lambda c: transaction_store.share(c, "t5", MINE), 10),
    "register": (lambda c: transaction_store.register(c, "t5", [PLACE], [50]), 50),
    "end": (lambda c: end(c, "t5"), 100),
    "parts of one without": (lambda c: transaction_store.open_parts(c, "t5"), 10),
    "lock parts": (lambda c: transaction_store.lock_parts(c, "t5", ["t6", "t7"]), 10),
    "what became of it": (lambda c: transaction_store.find(c, "o77", MINE), 50),
    "of a producer": (lambda c: begin_store.open_of(c, "x77"), 10),
    "raise an epoch": (lambda c: begin_store.raise_epoch(c, "x77", ""), 10),
    "lock a producer": (lambda c: begin_store.lock_producer(c, "x77", "User:a"), 10),
    "list after a place": (lambda c: list_store.list_open(c, ListTransactionsQuery(), (datetime.now(UTC), "t5")), 10),
    "list own ended ones": (lambda c: list_store.list_ended(c, COMMITTED, None, MINE), 10_200),
    "list ended ones": (lambda c: list_store.list_ended(c, COMMITTED, None), 303),
    "list ended ones after a place": (
        lambda c: list_store.list_ended(c, COMMITTED, (datetime.now(UTC), "o5")),
        303,
    ),
    "list ended ones of a producer": (lambda c: list_store.list_ended(c, OF_A_PRODUCER, None), 10_003),
    "list none of a state": (lambda c: list_store.list_ended(c, ABORTED, None), 10),
    "groups behind": (lambda c: open_store.groups_behind(c, "t5", 100), 300),
    "share-partitions behind": (lambda c: open_store.share_partitions_behind(c, "t5", ["g"], 100), 100),
    "nothing to sweep": (lambda c: open_store.sweep(c, 1000), 10),
    "no producer to forget": (lambda c: begin_store.forget_producers(c, 1000), 10),
    "no outcome to forget": (lambda c: purging.remove_outcomes("committed", c, 1000, key_store.KNOWN_S), 10),
    "no key to forget": (lambda c: purging.OldKeys().remove(c, 1000, 0), 10),
    "leave a topic": (lambda c: trimming.delete_partitions(c, TOPIC, range(7, 9)), 200),
}


@pytest.fixture(scope="module")
def filled(module_database: str) -> str:
    async def fill() -> None:
        connection = await asyncpg.connect(module_database)
        await connection.execute(FILL)
        await connection.close()

    asyncio.run(fill())
    return module_database


@pytest.mark.parametrize(("statement", "most_rows"), STATEMENTS.values(), ids=STATEMENTS)
@pytest.mark.parametrize("mode", ["force_custom_plan", "auto"])
async def test_statements_of_transactions_use_their_indexes(
    filled: str, statement: Statement, most_rows: int, mode: str
) -> None:
    connection = await asyncpg.connect(filled, server_settings={"jit": "off", "plan_cache_mode": mode})
    try:
        found = await explained(connection, statement)
    finally:
        await connection.close()
    for node in found:
        relation = node.get("Relation Name", "")
        if "Scan" in node["Node Type"] and relation.startswith(TABLES):
            rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            assert rows <= most_rows, node
            assert node["Node Type"] != "Seq Scan" or rows == 0, node


@pytest.mark.parametrize("count", [1, append_store.FEW + 1])
async def test_an_append_that_is_planned_while_few_are_open_reads_no_others_later(
    database_url: str, count: int
) -> None:
    """A connection keeps the plan of its first append."""
    connection = await asyncpg.connect(database_url, server_settings={**APPEND_SETTINGS, "jit": "off"})

    async def rows_read() -> int:
        async with connection.transaction():
            await append_to(connection, *["t5"] * count)
            found: int = await connection.fetchval(
                """SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables
                   WHERE relname IN ('transactions', 'transaction_partitions')"""
            )
            await connection.execute("DELETE FROM log.record_batches")
            return found

    begin_some = """INSERT INTO log.transactions (transaction_id, transactional_id, timeout_ms, deadline)
                    SELECT 't' || n, 'x' || n, 1, now() + interval '1 hour' FROM generate_series($1::int, $2) n"""
    await connection.execute("INSERT INTO log.partitions (topic_id, partition, end_floor) VALUES ($1, $2, 50)", *PLACE)
    await connection.execute(begin_some, 5, 5)
    await connection.execute("ANALYZE log.transactions")
    await rows_read()
    await connection.execute(begin_some, 6, 5000)
    assert await rows_read() < 10
    await connection.close()

"""The hot statements on 100,000 batches and 20,000 share-partitions: index scans over few rows in every plan."""

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest
from sharequeue_gateway.record_log import activity_store, append_store, outcome_store, sample_store
from sharequeue_gateway.record_log import store as log_store
from sharequeue_gateway.record_log.dead_letters import dead_letter_sources
from sharequeue_gateway.record_log.log import CLOSED, DeadLetterKey, Parked
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing import compacting, purging
from sharequeue_gateway.record_log.scheduled import scheduled_store
from sharequeue_share_coordinator import store as state_store
from sharequeue_share_coordinator.share_state.rows import SNAPSHOT, Row, encode_row

from sharequeue.protocol.types import SharePartitionKey

TOPIC = "00000000-0000-0000-0000-000000000001"
PLACE = (TOPIC, 0)
END = 1_000_000
BATCHES = 100_000
KEYS = 20_000
NEXT_WEEK_MS = int(time.time() * 1000) + 7 * 86_400_000

FILL = f"""
INSERT INTO log.record_batches
  (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count, append_id, records)
SELECT '{TOPIC}', 0, 10 * n, 10 * n + 9, n, 10, gen_random_uuid(), $1 FROM generate_series(0, {BATCHES - 1}) n;
"""
FILL_OTHERS = f"""
INSERT INTO log.partitions (topic_id, partition) VALUES ('{TOPIC}', 0);
INSERT INTO log.partitions (topic_id, partition) SELECT gen_random_uuid(), 0 FROM generate_series(1, 20000);
INSERT INTO log.scheduled_records (schedule_id, topic_id, partition, deliver_at_ms, bytes, tail)
  SELECT gen_random_uuid(), CASE WHEN n % 20 = 0 THEN '{TOPIC}' ELSE gen_random_uuid() END::uuid, 0,
    {NEXT_WEEK_MS} + n, 12, ',"value":1}}' FROM generate_series(1, {KEYS}) n;
INSERT INTO log.schedules SELECT gen_random_uuid(), 's' || n, '* * * * *', 'UTC', 'one', n % 10 = 0, 0, ',"value":1}}',
    {NEXT_WEEK_MS} + n / 5000 FROM generate_series(1, {KEYS}) n;
INSERT INTO log.outcomes
  SELECT 'g' || n % 10, '{TOPIC}', 0, n, n + 9, 'm', n, n FROM generate_series(1, {KEYS}) n;
INSERT INTO log.unique_keys
  SELECT '{TOPIC}', n::text::bytea, {NEXT_WEEK_MS} + n, 0, n FROM generate_series(1, {KEYS}) n;
INSERT INTO log.dead_letter_sources
    (topic_id, partition, record_offset, group_id, delivery_count, letter_topic_id, letter_partition, letter_offset, open,
     state_epoch)
  SELECT gen_random_uuid(), 0, n, 'g' || n % 2, 5, '{TOPIC}', 0, n, n > 100, 1 FROM generate_series(1, {KEYS}) n;
INSERT INTO log.dead_letter_sources (topic_id, partition, record_offset, group_id, delivery_count, letter_topic_id,
    letter_partition, letter_offset, cause, record, state_epoch)
  SELECT '{uuid.UUID(int=2)}', 0, n, 'p', 5, '{uuid.UUID(int=2)}', 0, -1, 'c', 'r', 1 FROM generate_series(1, {KEYS}) n;
INSERT INTO log.readers (topic_id, partition, group_id, state_epoch, floor) VALUES ('{TOPIC}', 0, 'desk', 1, 120);
INSERT INTO log.samples SELECT 'g/' || n % 2000, n / 300 * 10000, ARRAY[1,1,1,1,1,1,1,1,1], {NEXT_WEEK_MS} + n
  FROM generate_series(1, 200000) n;
INSERT INTO log.activity
  SELECT n / 500, 'g' || n % 500, '{TOPIC}', 0, gen_random_uuid(), 't', 1, 1, 1, 1, 1, 1, '{{}}', '{{}}', '{{}}'
  FROM generate_series(1, {KEYS}) n;
INSERT INTO share_state.share_partitions (group_id, topic_id, partition)
  SELECT 'g' || n % 100, ('00000000-0000-0000-0000-' || lpad((n / 100)::text, 12, '0'))::uuid, 0
  FROM generate_series(0, {KEYS - 1}) n;
INSERT INTO share_state.share_records (key_id, kind, record)
  SELECT key_id, n, $2 FROM share_state.share_partitions, generate_series(0, 1) n;
INSERT INTO share_state.shards (shard, owner_epoch, owner) SELECT n, 1, 'owner' FROM generate_series(0, 15) n;
ANALYZE;
"""

Statement = Callable[[Any], Awaitable[object]]


PARKED = SharePartitionKey("p", str(uuid.UUID(int=2)), 0)


def some_batch(base_offset: int) -> RecordBatch:
    return RecordBatch.encode(base_offset, [b',"value":1}'] * 10, 7)


def some_letter(offset: int) -> DeadLetterKey:
    return DeadLetterKey(SharePartitionKey(f"g{offset % 2}", TOPIC, 0), CLOSED, offset, 0)


def some_rows(count: int) -> list[tuple[str, int, RecordBatch, str]]:
    """Batches at the tail, and one of another partition that does not exist."""
    batches = [(*PLACE, some_batch(END + 10 * number), append_store.new_append_id()) for number in range(count - 1)]
    return [*batches, (TOPIC, 1, some_batch(0), append_store.new_append_id())]


def some_row(key_id: int) -> state_store.StoredRow:
    return state_store.StoredRow(key_id, SNAPSHOT, encode_row(Row(kind=SNAPSHOT))[1][0])


def literal(value: bytes) -> str:
    return f"'\\x{value.hex()}'"


@pytest.fixture(scope="module")
def filled(module_database: str) -> str:
    async def fill() -> None:
        connection = await asyncpg.connect(module_database)
        await connection.execute(FILL.replace("$1", literal(some_batch(0).stored)))
        await connection.execute(FILL_OTHERS.replace("$2", literal(encode_row(Row(kind=SNAPSHOT))[1][0])))
        await connection.execute("VACUUM log.dead_letter_sources")
        await connection.close()

    asyncio.run(fill())
    return module_database


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


async def explained(connection: Any, statement: Statement) -> list[dict[str, Any]]:
    """Plan nodes of every query that a store function sends, each run once more under EXPLAIN and undone."""
    sent: list[tuple[str, Any]] = []
    with connection.query_logger(lambda query: sent.append((query.query, query.args))):
        transaction = connection.transaction()
        await transaction.start()
        await statement(connection)
        await transaction.rollback()
    found = []
    for query, arguments in sent:
        if query.split()[0] not in ("SELECT", "WITH", "INSERT", "UPDATE", "DELETE"):
            continue
        transaction = connection.transaction()
        await transaction.start()
        answer = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *arguments)
        await transaction.rollback()
        found += nodes(json.loads(answer)[0]["Plan"])
    assert found
    return found


BIG = {
    "record_batches",
    "share_records",
    "share_partitions",
    "partitions",
    "scheduled_records",
    "schedules",
    "outcomes",
    "unique_keys",
    "dead_letter_sources",
    "samples",
    "activity",
}


def check(found: list[dict[str, Any]], most_rows: int) -> None:
    """No node reads a big table as a whole, nor more than some rows of it."""
    touched = [node for node in found if node.get("Relation Name") in BIG and "Scan" in node["Node Type"]]
    for node in touched:
        assert node["Node Type"] != "Seq Scan", f"all of {node['Relation Name']}"
        rows = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        assert rows <= most_rows, node


LOG_STATEMENTS: dict[str, tuple[Statement, int]] = {
    "read from the middle": (lambda c: log_store.read(c, *PLACE, END // 2 + 3, 1 << 20), 600),
    "read the tail": (lambda c: log_store.read(c, *PLACE, END - 5, 1 << 20), 300),
    "read behind the end": (lambda c: log_store.read(c, *PLACE, END, 1 << 20), 300),
    "ends": (lambda c: log_store.bounds(c, [PLACE]), 10),
    "ends of many": (
        lambda c: log_store.bounds(c, [PLACE, *((str(uuid.UUID(int=n)), 0) for n in range(5, 25))]),
        500,
    ),
    "append at the tail": (
        lambda c: append_store.append(c, [(*PLACE, some_batch(END), append_store.new_append_id())], {}, {}),
        10,
    ),
    "append of a few": (lambda c: append_store.append(c, some_rows(append_store.FEW), {}, {}), 10),
    "append of many": (lambda c: append_store.append(c, some_rows(append_store.FEW + 1), {}, {}), 10),
    "refused append": (
        lambda c: append_store.append(c, [(*PLACE, some_batch(END - 10), append_store.new_append_id())], {}, {}),
        10,
    ),
    "look up a lost append": (lambda c: log_store.appended(c, *PLACE, append_store.new_append_id(), END - 100), 20),
    "move the log start": (lambda c: log_store.raise_log_starts(c, PLACE[0], [(PLACE[1], 100, END)]), 10),
    "purge nothing": (lambda c: purging.remove_rows(c, 1000, 60), 10),
    "no mark to renew": (lambda c: purging.renew_marks(c, 1000, 60), 10),
    "look for what is due": (scheduled_store.next_due, 1),
    "move nothing": (lambda c: scheduled_store.take_due(c, 1000, 4 << 20), 1),
    "the next scheduled ones": (lambda c: scheduled_store.list_some(c, TOPIC, (-1, str(uuid.UUID(int=0))), 50), 60),
    "what is due in all topics": (
        lambda c: scheduled_store.list_due(c, (NEXT_WEEK_MS + 100, str(uuid.UUID(int=0)), ""), 50),
        60,
    ),
    "who has finished a record": (lambda c: outcome_store.find(c, SharePartitionKey("g5", TOPIC, 0), 5000), 1),
    "outcomes to remove": (lambda c: purging.remove_expired("outcomes", c, 10, 0), 20),
    "no unique key to remove": (lambda c: purging.remove_expired("unique_keys", c, 10, 0), 1),
    "close dead letters": (lambda c: dead_letter_sources.close(c, [some_letter(n) for n in range(500, 510)]), 10),
    "open dead letters": (
        lambda c: dead_letter_sources.open_of(
            c, [some_letter(500), some_letter(501), DeadLetterKey(PARKED, CLOSED, 500, 5)]
        ),
        10,
    ),
    "what became of dead letters": (lambda c: dead_letter_sources.outcomes(c, [some_letter(50), some_letter(500)]), 10),
    "close parked dead letters": (
        lambda c: dead_letter_sources.close(c, [DeadLetterKey(PARKED, CLOSED, n, 5) for n in range(500, 510)]),
        10,
    ),
    "dead letters below a log start": (lambda c: dead_letter_sources.leave(c, TOPIC, {0: 100, 1: 0}), 100),
    "dead letters that compaction has removed": (
        lambda c: dead_letter_sources.remove(c, TOPIC, {0: [(n, n + 1) for n in range(500, 600, 5)]}),
        100,
    ),
    "no dead letters of deleted topics": (lambda c: purging.remove_letters(c, 1000, 0), 10),
    "dead letters that their consumers have finished": (
        lambda c: dead_letter_sources.finished_by(c, "g1", TOPIC, "desk", 5000),
        20,
    ),
    "samples of many groups": (
        lambda c: sample_store.write(c, 3_600_000, [(f"g/{n}", [1] * 9) for n in range(300)]),
        1000,
    ),
    "no sample to remove": (lambda c: purging.remove_expired("samples", c, 1000, 0), 1),
    "samples of a group": (lambda c: sample_store.steps(c, "g/7", 360, 500, 10_000), 250),
    "no topic to forget": (lambda c: purging.forget_deleted(c, 1000, 60), 10),
}


@pytest.mark.parametrize(("statement", "most_rows"), LOG_STATEMENTS.values(), ids=LOG_STATEMENTS)
@pytest.mark.parametrize("mode", ["force_custom_plan", "auto"])
async def test_hot_statements_of_the_log_use_their_indexes(
    filled: str, statement: Statement, most_rows: int, mode: str
) -> None:
    connection = await asyncpg.connect(filled, server_settings={"jit": "off", "plan_cache_mode": mode})
    try:
        check(await explained(connection, statement), most_rows)
    finally:
        await connection.close()


async def test_parked_dead_letters_are_counted_without_their_records(filled: str) -> None:
    connection = await asyncpg.connect(filled, server_settings={"jit": "off"})
    try:
        found = await explained(connection, lambda c: dead_letter_sources.parked_counts(c, "p"))
        assert await dead_letter_sources.parked_counts(connection, "p") == {PARKED[1:]: Parked(KEYS, "c")}
    finally:
        await connection.close()
    scans = [node for node in found if "Scan" in node["Node Type"]]
    assert all(node["Node Type"] == "Index Only Scan" or node["Actual Rows"] == 1 for node in scans), scans


async def test_the_hours_of_a_group_are_a_look_into_the_index_each(filled: str) -> None:
    """Also in the plan that PostgreSQL keeps after five calls, which does not know the group."""
    read = "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relid = 'log.activity'::regclass"
    connection = await asyncpg.connect(filled, server_settings={"jit": "off", "plan_cache_mode": "force_generic_plan"})
    try:
        before = await connection.fetchval(read)
        found = await activity_store.totals(
            connection, 10, 2**31 - 1, "g7", None, (10, "", str(uuid.UUID(int=0)), -1), 100
        )
        assert [total.hour for total in found] == [*range(10, KEYS // 500)]
        await connection.execute("SELECT pg_stat_force_next_flush()")
        assert await connection.fetchval(read) - before <= len(found) + 4, "the ends of the hours, and a row of each"
    finally:
        await connection.close()


def key(number: int) -> SharePartitionKey:
    return SharePartitionKey(f"g{number % 100}", f"00000000-0000-0000-0000-{number // 100:012}", 0)


STATE_STATEMENTS: dict[str, tuple[Statement, int]] = {
    "append": (
        lambda c: state_store.append(c, {0: 1, 15: 1}, [some_row(number) for number in range(1, 200)]),
        10,
    ),
    "load one": (lambda c: state_store.load(c, [key(5)]), 10),
    "load many": (lambda c: state_store.load(c, [key(number) for number in range(0, 300, 30)]), 500),
    "make keys": (lambda c: state_store.make_keys(c, [key(5), key(6)]), 10),
    "prune some keys": (lambda c: state_store.prune_keys(c, list(range(1, 50))), 300),
    "remove keys": (lambda c: state_store.remove_keys(c, {0: 1, 15: 1}, list(range(1, 50))), 300),
    "keys of a topic": (lambda c: state_store.keys_of_topic(c, TOPIC, 0, 2000), 400),
}


@pytest.mark.parametrize(("statement", "most_rows"), STATE_STATEMENTS.values(), ids=STATE_STATEMENTS)
async def test_hot_statements_of_the_share_coordinator_use_their_indexes(
    filled: str, statement: Statement, most_rows: int
) -> None:
    connection = await asyncpg.connect(filled, server_settings={"jit": "off"})
    try:
        check(await explained(connection, statement), most_rows)
    finally:
        await connection.close()


async def test_loading_uses_the_index_with_a_plan_made_on_an_empty_table(database_url: str) -> None:
    """A prepared statement keeps the plan of its first calls until statistics are taken: it must suit a large table."""
    connection = await asyncpg.connect(database_url, server_settings={"jit": "off", "plan_cache_mode": "auto"})
    try:
        for number in range(10):
            await state_store.load(connection, [key(number) for number in range(number, number + 10)])
        await connection.execute(f"""
            INSERT INTO share_state.share_partitions (group_id, topic_id, partition)
            SELECT 'g' || n, '{TOPIC}', 0 FROM generate_series(1, {KEYS}) n""")
        await state_store.load(connection, [key(number) for number in range(10)])
        await connection.execute("SELECT pg_stat_force_next_flush()")
        read = await connection.fetchval(
            "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relid = 'share_state.share_partitions'::regclass"
        )
        assert read < KEYS
    finally:
        await connection.close()


async def test_reading_uses_the_index_without_statistics(database_url: str) -> None:
    """As after a quick start: a fetch must not read more rows as the backlog grows, before statistics are taken."""
    connection = await asyncpg.connect(database_url, server_settings={"jit": "off"})
    try:
        await connection.execute("ALTER TABLE log.record_batches SET (autovacuum_enabled = false)")
        stored = literal(some_batch(0).stored)
        await connection.execute(FILL.replace("$1", stored).replace(f"{BATCHES - 1}", "1999"))
        check(await explained(connection, lambda c: log_store.read(c, *PLACE, 10_003, 1 << 20)), 600)
    finally:
        await connection.close()


async def test_a_replacement_uses_the_index_without_statistics(database_url: str) -> None:
    """Of many pieces, each but the first few has a plan that was made without its values."""
    settings = {"jit": "off", "plan_cache_mode": "force_generic_plan"}
    connection = await asyncpg.connect(database_url, server_settings=settings)
    try:
        await connection.execute("ALTER TABLE log.record_batches SET (autovacuum_enabled = false)")
        stored = literal(some_batch(0).stored)
        await connection.execute(FILL.replace("$1", stored).replace(f"{BATCHES - 1}", "1999"))
        some = [(0, some_batch(10 * number)) for number in range(1000, 1020)]
        check(await explained(connection, lambda c: compacting.replace(c, *PLACE, some)), 100)
    finally:
        await connection.close()

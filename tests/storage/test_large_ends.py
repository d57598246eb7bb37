"""Ends of transactions over many partitions: written in pieces, with rests between them, and still all or nothing."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.transactions.ending import MARKERS_AT_ONCE, REST
from sharequeue_gateway.record_log.transactions.transaction_rules import ABORT, COMMIT, State, Wish

from sharequeue.slices import MOST_REST_S
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.record_logs import Heard, new_topic
from tests.storage.test_transactions import begin, ended, opened, produce, rows, stable, stored

PARTITIONS = 3 * MARKERS_AT_ONCE + 50
LOG = "sharequeue-gateway-log"


async def at_each_piece(connection: Any, does: str) -> None:
    """From now on each statement that writes batches does this when it has written. `piece` is its number, from 1."""
    await connection.execute(
        f"""CREATE TABLE log.pieces (began timestamptz, ended timestamptz, markers int);
            CREATE SEQUENCE log.piece_numbers;
            CREATE FUNCTION log.note_begin() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              INSERT INTO log.pieces VALUES (clock_timestamp());
              RETURN NULL;
            END $$;
            CREATE FUNCTION log.note_end() RETURNS trigger LANGUAGE plpgsql AS $$
            DECLARE piece int := nextval('log.piece_numbers');
            BEGIN
              {does};
              UPDATE log.pieces SET ended = clock_timestamp(),
                markers = (SELECT count(*) FROM written WHERE attributes & 32 <> 0) WHERE ended IS NULL;
              RETURN NULL;
            END $$;
            CREATE TRIGGER note_begin BEFORE INSERT ON log.record_batches
              FOR EACH STATEMENT EXECUTE FUNCTION log.note_begin();
            CREATE TRIGGER note_end AFTER INSERT ON log.record_batches REFERENCING NEW TABLE AS written
              FOR EACH STATEMENT EXECUTE FUNCTION log.note_end()"""
    )


async def written(log: PostgresRecordLog, topic: str, partitions: Sequence[int] = range(PARTITIONS)) -> str:
    """Begin a transaction and write to many partitions. Returns: its id."""
    transaction = await begin(log)
    await produce(log, transaction, topic, *partitions)
    return transaction


async def markers_of(connection: Any, topic: str) -> Counter[int]:
    """How many markers each partition has."""
    return Counter(partition for partition, _, attributes, _ in await stored(connection, topic) if attributes & 32)


ONCE = Counter(range(PARTITIONS))


@pytest.mark.parametrize("wish", [COMMIT, ABORT], ids=["commit", "abort"])
async def test_a_large_end_rests_between_its_pieces_and_is_one_transaction(database_url: str, wish: Wish) -> None:
    """A client that ends large transactions one after another leaves most of the time to others."""
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        transaction = await written(log, topic)
        await at_each_piece(admin, "PERFORM pg_sleep(0.003)")
        found = await log.transactions.end(transaction, wish)
        assert (found.state, found.partitions) == (wish.state, PARTITIONS)
        assert await markers_of(admin, topic) == ONCE
        at_once = (
            "SELECT count(DISTINCT xmin::text) FROM log.record_batches WHERE topic_id = $1 AND attributes & 32 <> 0"
        )
        assert await admin.fetchval(at_once, topic) == 1
        pieces = await admin.fetch("SELECT * FROM log.pieces ORDER BY began")
        assert sum(markers for _, _, markers in pieces) == PARTITIONS
        assert max(markers for _, _, markers in pieces) <= MARKERS_AT_ONCE
        for (began, ended_at, _), (next_one, *_) in itertools.pairwise(pieces):
            rest_s = min(REST * (ended_at - began).total_seconds(), MOST_REST_S)
            assert (next_one - ended_at).total_seconds() >= rest_s
        assert await rows(admin) == {
            "transactions": 0,
            "transaction_partitions": 0,
            "aborted_transactions": PARTITIONS if wish == ABORT else 0,
            "transaction_outcomes": 1,
        }
        partitions = await admin.fetchval("SELECT partitions FROM log.transaction_outcomes")
        assert partitions == PARTITIONS


async def test_between_the_pieces_nothing_is_visible_and_other_appends_do_not_wait(database_url: str) -> None:
    topic, other = new_topic(), new_topic()
    async with session(database_url) as admin, session(database_url) as reader, opened(database_url) as log:
        transaction = await written(log, topic)
        await produce(log, None, other)
        await at_each_piece(admin, "IF piece = 3 THEN PERFORM pg_advisory_xact_lock(4711); END IF")
        async with admin.transaction():
            await admin.execute("SELECT pg_advisory_xact_lock(4711)")
            ending = asyncio.create_task(log.transactions.end(transaction, COMMIT))
            await waiting_for_a_lock(reader, LOG)
            assert await markers_of(reader, topic) == Counter()
            assert await stable(reader, topic, 0) == (0, 1)
            await reader.execute("ALTER SEQUENCE log.piece_numbers RESTART 1000")
            async with asyncio.timeout(60):
                assert [await produce(log, None, other) for _ in range(5)] == [[1], [2], [3], [4], [5]]
        assert (await ending).state == State.COMMITTED
        assert await markers_of(admin, topic) == ONCE
        assert await stable(admin, topic, 0) == (2, 2)


async def test_a_backend_that_dies_between_pieces_has_written_nothing(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        transaction = await written(log, topic)
        await at_each_piece(admin, "IF piece = 3 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF")
        assert await ended(log, transaction, COMMIT) == ("committed", "client")
        assert await markers_of(admin, topic) == ONCE
        assert await admin.fetchval("SELECT last_value FROM log.piece_numbers") == 3 + 4, "it ran once more as a whole"
        assert [await produce(log, None, topic, partition) for partition in (0, PARTITIONS - 1)] == [[2], [2]]


async def test_parts_in_the_same_partitions_have_one_marker_in_each(database_url: str) -> None:
    topic = new_topic()
    async with session(database_url) as admin, opened(database_url) as log:
        whole = await written(log, topic, range(0, PARTITIONS, 2))
        parts = [await begin(log, part_of=whole) for _ in range(3)]
        for first, part in enumerate(parts):
            await produce(log, part, topic, *range(first, PARTITIONS))
        found = await log.transactions.end(whole, COMMIT, parts=parts)
        assert (found.state, found.partitions) == (State.COMMITTED, PARTITIONS)
        assert await markers_of(admin, topic) == ONCE
        assert (await rows(admin))["transaction_partitions"] == 0


async def test_markers_are_reported_in_pieces(database_url: str) -> None:
    """Between two of them the event loop serves other requests."""
    turn = 0
    reported: Counter[int] = Counter()

    class Turns(Heard):
        def appended(self, topic_id: str, partition: int, log_end_offset: int, records: int) -> None:
            reported[turn] += records == 0

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    topic = new_topic()
    async with opened(database_url, listener=Turns()) as log:
        transaction = await written(log, topic)
        counting = asyncio.create_task(count())
        await log.transactions.end(transaction, COMMIT)
        counting.cancel()
    assert reported.total() == PARTITIONS
    assert max(reported.values()) <= MARKERS_AT_ONCE
    assert len(+reported) == 4

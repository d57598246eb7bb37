"""Bounds of one commit of the record log: its bytes, and the time that an append may wait for its turn."""

import asyncio
from typing import Any

import pytest
from sharequeue_gateway.record_log import appending

from sharequeue.protocol.errors import StorageError
from tests.storage.database import session, waiting_for_a_lock
from tests.storage.record_logs import PostgresRecordLogs, append, deadline, new_topic, read_all

SIZE = 4096
APPENDS = 20


async def slowed(connection: Any, seconds: float) -> None:
    """From now on each statement that appends takes so long."""
    await connection.execute(
        f"""CREATE FUNCTION log.take_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              PERFORM pg_sleep({seconds});
              RETURN NULL;
            END $$;
            CREATE TRIGGER take_time AFTER INSERT ON log.record_batches
              FOR EACH STATEMENT EXECUTE FUNCTION log.take_time()"""
    )


async def test_a_commit_is_bounded_in_bytes_and_holds_at_least_one_append(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "AT_ONCE_BYTES", 4 * SIZE)
    topic = new_topic()
    values = [f"{number}".ljust(SIZE * (5 if number == 7 else 1), "x") for number in range(APPENDS)]
    async with session(database_url) as admin, PostgresRecordLogs(database_url).open() as log:
        await append(log, topic, ["first"])
        async with admin.transaction():
            await admin.execute("LOCK TABLE log.record_batches IN EXCLUSIVE MODE")
            under_way = asyncio.create_task(append(log, topic, ["under way"]))
            await waiting_for_a_lock(admin, "sharequeue-gateway-append")
            tasks = [asyncio.create_task(append(log, topic, [value])) for value in values]
            await asyncio.sleep(0)
        await under_way
        assert await asyncio.gather(*tasks) == list(range(2, 2 + APPENDS))
        assert (await read_all(log, topic))[2:] == values
        commits = await admin.fetch(
            """SELECT count(*), sum(coalesce(uncompressed_bytes, octet_length(records))) FROM log.record_batches
               WHERE topic_id = $1 AND base_offset >= 2 GROUP BY xmin::text ORDER BY min(base_offset)""",
            topic,
        )
    assert sum(appends for appends, _ in commits) == APPENDS
    assert [appends for appends, size in commits if size > 4 * SIZE] == [1]
    assert len(commits) <= APPENDS / 3 + 2


async def test_a_deadline_begins_with_the_appends_turn_and_late_turns_are_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several commits in a row, each fast enough, are too slow together: started appends succeed,
    the rest is refused."""
    monkeypatch.setattr(appending, "AT_ONCE", 1)
    topic = new_topic()
    async with session(database_url) as admin, PostgresRecordLogs(database_url).open() as log:
        await append(log, topic, ["first"])
        await slowed(admin, 0.6)
        appends = [append(log, topic, [number]) for number in range(8)]
        with deadline(log, 2):
            outcomes = await asyncio.gather(*appends, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, StorageError)]
        assert refused
        assert all(error.definite and "did not begin with this append in time" in error.detail for error in refused)
        appended = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, int)]
        assert (await read_all(log, topic))[1:] == appended
        assert len(appended) + len(refused) == len(outcomes)

"""A log that went back: no offset is given twice, all memory is dropped, and it is told."""

import asyncio

import asyncpg
import pytest
from sharequeue_gateway.record_log import time_lines
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.removing import purging
from sharequeue_gateway.record_log.time_lines import SKIPPED

from sharequeue.protocol.errors import StorageError
from tests.storage.record_logs import PostgresRecordLogs, batch_of, new_topic
from tests.storage.written_locks import until


async def run(database_url: str, statement: str, *arguments: object) -> None:
    connection = await asyncpg.connect(database_url)
    await connection.execute(statement, *arguments)
    await connection.close()


async def append(log: PostgresRecordLog, topic: str, *values: int, partition: int = 0) -> int:
    (base_offset,) = (await log.appender.append([batch_of(topic, values, partition)])).base_offsets
    return base_offset


async def dropped(log: PostgresRecordLog) -> None:
    """Wait until the log has dropped its memory. The look of every half second may find the fault first."""
    await asyncio.wait_for(until(lambda: log.database.time_line.number > 0), 60)


async def read(log: PostgresRecordLog, topic: str) -> list[int]:
    """The offsets that have a record."""
    offsets: list[int] = []
    offset = 0
    while batches := (await log.read(topic, 0, offset, 1 << 20, 10_000)).batches:
        for batch in batches:
            offsets += range(batch.base_offset, batch.last_offset + 1) if batch.record_count else ()
        offset = batches[-1].last_offset + 1
    return offsets


async def end_of(log: PostgresRecordLog, topic: str, partition: int = 0) -> int:
    return (await log.offsets(topic, [partition]))[partition].log_end_offset


async def test_another_history_skips_offsets_once_in_every_partition(database_url: str) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(database_url).open() as log:
        assert [await append(log, topic, 0, 1, partition=partition) for partition in (0, 1)] == [0, 0]
        assert log.database.time_line.told is None
    await run(database_url, "UPDATE log.time_line SET history = 'of another server'")
    async with PostgresRecordLogs(database_url).open() as first, PostgresRecordLogs(database_url).open() as second:
        assert [await end_of(second, topic, partition) for partition in (0, 1)] == [2 + SKIPPED] * 2
        assert await append(first, topic, 2) == 2 + SKIPPED
        assert await read(second, topic) == [0, 1, 2 + SKIPPED]
        assert "of another server became" in (first.database.time_line.told or "")
        assert second.database.time_line.told is None  # it has seen nothing that was lost


async def test_a_partition_that_gets_its_first_record_later_skips_offsets_too(database_url: str) -> None:
    """Its first record before that may be lost: a copy of the database has no trace of the partition."""
    topic = new_topic()
    await run(database_url, "UPDATE log.time_line SET history = 'of another server'")
    async with PostgresRecordLogs(database_url).open() as log:
        assert await append(log, topic, 0, 1) == SKIPPED
        assert await append(log, topic, 2) == SKIPPED + 2
        assert await append(log, topic, 3, partition=1) == SKIPPED


@pytest.mark.parametrize("noticed", ["by an append", "by a look"])
async def test_a_log_end_below_the_known_one_drops_memory_and_skips_offsets(database_url: str, noticed: str) -> None:
    """As behind a pooler, which hides that the server was replaced."""
    topic = new_topic()
    async with PostgresRecordLogs(database_url).open() as log:
        assert [await append(log, topic, value) for value in range(4)] == [0, 1, 2, 3]
        assert await read(log, topic) == [0, 1, 2, 3]
        await run(database_url, "DELETE FROM log.record_batches WHERE topic_id = $1 AND base_offset >= 2", topic)
        if noticed == "by an append":
            assert await append(log, topic, 9) > 4
        else:
            await log.look([(topic, 0)])
        await dropped(log)
        assert "ended at 4 and ends at 2 now" in (log.database.time_line.told or "")
        assert [offset for offset in await read(log, topic) if offset < 4] == [0, 1]
        assert await end_of(log, topic) >= 2 + SKIPPED


async def test_a_gateway_drops_its_memory_when_another_one_finds_that_the_log_went_back(database_url: str) -> None:
    topic = new_topic()
    logs = PostgresRecordLogs(database_url)
    async with logs.open() as first, logs.open() as second:
        for log in (first, second):
            await append(log, topic, 1)
        for log in (first, second):
            assert await end_of(log, topic) == 2
            assert await read(log, topic) == [0, 1]
        await run(database_url, "DELETE FROM log.record_batches WHERE topic_id = $1 AND base_offset >= 1", topic)
        await first.look([(topic, 0)])
        await dropped(first)
        await second.database.look_back()
        await dropped(second)
        assert await read(second, topic) == [0]


async def test_an_outage_forgets_no_log_end(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end that nobody uses is forgotten after two purges, but it shows whether PostgreSQL comes back older."""
    topic, tries = new_topic(), 0

    async def away(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise StorageError("PostgreSQL cannot be reached")

    async with PostgresRecordLogs(database_url).open() as log:
        await append(log, topic, 0, 1)
        monkeypatch.setattr(purging, "PURGE_PAUSE_S", 0)
        monkeypatch.setattr(log.database, "query", away)
        purge = asyncio.create_task(log._purge(tuple))
        await asyncio.wait_for(until(lambda: tries >= 4), 60)
        purge.cancel()
        assert log.database.known_ends() == {(topic, 0): 2}


async def test_a_log_older_than_what_groups_name_ends_above_that(database_url: str) -> None:
    topic = new_topic()
    async with PostgresRecordLogs(database_url).open() as log:
        await append(log, topic, 0, 1)
        await log.end_above({(topic, 0): 7, (topic, 1): 3})
        assert [await end_of(log, topic, partition) for partition in (0, 1)] == [7, 3]
        assert await log.with_records((topic, 0), [(0, 0), (1, 4), (2, 5), (8, 9)]) == [0, 1]
        await log.end_above({(topic, 0): 5})
        assert await append(log, topic, 2) == 7


async def test_a_statement_decided_before_a_further_start_is_refused(database_url: str) -> None:
    async with PostgresRecordLogs(database_url).open() as log:
        held = [log.database.connections.lend(5) for _ in range(8)]
        for lent in held:
            await lent.__aenter__()
        waiting = asyncio.create_task(log.database.query(time_lines.skips))
        await asyncio.sleep(0)
        log.database.time_line.found_older("a test says so")
        for lent in held:
            await lent.__aexit__(None, None, None)
        with pytest.raises(StorageError):
            await waiting
        assert await log.database.query(time_lines.skips) == 0

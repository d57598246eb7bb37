"""Taking records out of stored batches: generations, bounds, the caches of the gateways."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.removing import compacting
from sharequeue_gateway.record_log.removing.compacting import PIECE_BATCHES, Replacement

from sharequeue.protocol.errors import InvalidUpdateVersion
from sharequeue.protocol.messages.compaction import ReplacedBatch
from sharequeue_http.forms.errors import InvalidRequest, TooLarge
from tests.storage.database import session
from tests.storage.record_logs import PostgresRecordLogs, append, new_topic


def replaced(base_offset: int, generation: int, record_count: int) -> ReplacedBatch:
    return ReplacedBatch(base_offset=base_offset, generation=generation, record_count=record_count)


async def offsets_left(log: PostgresRecordLog, topic: str, offset: int = 0) -> list[int]:
    """Offsets that hold a record, read from memory where it can tell."""
    found: list[int] = []
    while True:
        read = log.read_cached(topic, 0, offset, 1 << 20, 1000) or await log.read(topic, 0, offset, 1 << 20, 1000)
        if not read.batches:
            return found
        for batch in read.batches:
            gone = {each for first, last in batch.absent(offset, batch.last_offset) for each in range(first, last + 1)}
            found += [each for each in range(max(offset, batch.base_offset), batch.last_offset + 1) if each not in gone]
        offset = read.batches[-1].last_offset + 1


async def until(condition: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Ask until the answer is the one wanted; the test's own deadline ends it."""
    while await condition() != wanted:  # noqa: ASYNC110 - the watch tells nobody of it
        await asyncio.sleep(0.02)


async def three_batches(log: PostgresRecordLog) -> str:
    """0–4, 5–9 and the newest, 10."""
    topic = new_topic()
    for values in (range(5), range(5, 10), [10]):
        await append(log, topic, values)
    return topic


async def test_compaction_removes_records_and_keeps_offsets(module_database: str) -> None:
    async with PostgresRecordLogs(module_database).open() as log:
        topic = await three_batches(log)
        done = await log.compaction.replace(topic, 0, [Replacement(0, 0, [(1, 2)]), Replacement(5, 0, [(5, 9)])])
        assert done == [replaced(0, 1, 3), replaced(5, 1, 0)]
        assert await offsets_left(log, topic) == [0, 3, 4, 10]
        listed, bounds = await log.compaction.batches(topic, 0, 0, 100)
        assert [(b.base_offset, b.last_offset, b.record_count, b.generation) for b in listed] == [
            (0, 4, 3, 1),
            (5, 9, 0, 1),
            (10, 10, 1, 0),
        ]
        assert (bounds.log_start_offset, bounds.log_end_offset) == (0, 11)
        assert await append(log, topic, ["next"]) == 11


async def test_an_outdated_replacement_changes_nothing(module_database: str) -> None:
    async with PostgresRecordLogs(module_database).open() as log:
        topic = await three_batches(log)
        await log.compaction.replace(topic, 0, [Replacement(5, 0, [(5, 5)])])
        with pytest.raises(InvalidUpdateVersion, match="at 5 was replaced"):
            await log.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 0)]), Replacement(5, 0, [(6, 6)])])
        assert await offsets_left(log, topic) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]


async def test_a_replacement_overtaken_in_progress_changes_nothing(module_database: str) -> None:
    """Both have read generation 0 when the first of them stores; the lock of the partition orders them."""
    async with PostgresRecordLogs(module_database).open() as log, PostgresRecordLogs(module_database).open() as other:
        topic = await three_batches(log)
        tries = (
            each.compaction.replace(topic, 0, [Replacement(0, 0, [(first, first)])])
            for first, each in enumerate((log, other, log, other))
        )
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, InvalidUpdateVersion)]
        assert len(refused) == 3
        listed, _ = await log.compaction.batches(topic, 0, 0, 1)
        assert (listed[0].generation, listed[0].record_count) == (1, 4)


async def test_a_replacement_in_pieces_happens_whole_or_not_at_all(module_database: str) -> None:
    """Its last piece is refused when the first one is stored already."""
    async with PostgresRecordLogs(module_database).open() as log:
        topic, batches = new_topic(), PIECE_BATCHES + 2
        for _ in range(batches + 1):
            await append(log, topic, range(2))
        wanted = [Replacement(2 * number, 0, [(2 * number, 2 * number)]) for number in range(batches)]
        with pytest.raises(InvalidUpdateVersion, match=f"at {2 * batches - 2} was replaced"):
            await log.compaction.replace(topic, 0, [*wanted[:-1], wanted[-1]._replace(generation=1)])
        assert await offsets_left(log, topic) == list(range(2 * batches + 2))
        done = await log.compaction.replace(topic, 0, wanted)
        assert done == [replaced(2 * number, 1, 1) for number in range(batches)]
        assert await offsets_left(log, topic) == [*range(1, 2 * batches, 2), 2 * batches, 2 * batches + 1]


async def test_a_replacement_of_too_many_bytes_is_refused(
    module_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with PostgresRecordLogs(module_database).open() as log:
        topic = await three_batches(log)
        listed, _ = await log.compaction.batches(topic, 0, 0, 2)
        both = [Replacement(0, 0, [(1, 2)]), Replacement(5, 0, [(5, 9)])]
        monkeypatch.setattr(compacting, "MAX_BYTES", listed[0].size_bytes + listed[1].size_bytes - 1)
        with pytest.raises(TooLarge, match="bytes together"):
            await log.compaction.replace(topic, 0, both)
        monkeypatch.setattr(compacting, "MAX_BYTES", 1)
        assert await log.compaction.replace(topic, 0, both[:1]) == [replaced(0, 1, 3)], "a single one may be larger"


async def test_a_repeated_replacement_is_answered_as_done(module_database: str) -> None:
    async with PostgresRecordLogs(module_database).open() as log:
        topic = await three_batches(log)
        for _ in range(2):
            assert await log.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 1)])]) == [replaced(0, 1, 3)]
        await log.compaction.replace(topic, 0, [Replacement(0, 1, [(2, 2)])])
        with pytest.raises(InvalidUpdateVersion):
            await log.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 1)])])


async def test_invalid_ranges_and_protected_batches_are_refused(module_database: str) -> None:
    async with PostgresRecordLogs(module_database).open() as log:
        topic = await three_batches(log)
        with pytest.raises(InvalidRequest, match="newest"):
            await log.compaction.replace(topic, 0, [Replacement(10, 0, [(10, 10)])])
        for ranges in ([(4, 5)], [(3, 2)], [(2, 3), (3, 4)]):
            with pytest.raises(InvalidRequest, match="not an ascending range"):
                await log.compaction.replace(topic, 0, [Replacement(0, 0, ranges)])
        with pytest.raises(InvalidUpdateVersion, match="there is no batch at 1: list the batches again"):
            await log.compaction.replace(topic, 0, [Replacement(1, 0, [(1, 1)])])
        await log.delete_records(topic, {0: 7})
        with pytest.raises(InvalidUpdateVersion, match="was deleted"):
            await log.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 0)])])
        await log.compaction.replace(topic, 0, [Replacement(5, 0, [(8, 8)])])
        assert await offsets_left(log, topic, 7) == [7, 9, 10]


async def test_every_gateway_forgets_replaced_batches(module_database: str) -> None:
    async with PostgresRecordLogs(module_database).open() as log, PostgresRecordLogs(module_database).open() as other:
        topic = await three_batches(log)
        for each in (log, other):
            assert await offsets_left(each, topic) == list(range(11))
        await log.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 3)])])
        assert await offsets_left(log, topic) == [4, 5, 6, 7, 8, 9, 10], "its own at once"
        await until(lambda: offsets_left(other, topic), [4, 5, 6, 7, 8, 9, 10])


async def test_a_read_in_progress_does_not_cache_replaced_batches(module_database: str) -> None:
    """The read has rows from before the replacement, and ends after the cache has forgotten them."""
    async with session(module_database) as admin, PostgresRecordLogs(module_database).open() as log:
        topic = await three_batches(log)
        async with PostgresRecordLogs(module_database).open() as other:
            await other.offsets(topic, [0])
            begun, go_on = asyncio.Event(), asyncio.Event()
            query = other.database.query

            async def slow(function: object, *arguments: object) -> object:
                answer = await query(function, *arguments)  # type: ignore[arg-type]
                begun.set()
                await go_on.wait()
                return answer

            other.database.query = slow  # type: ignore[method-assign]
            reading = asyncio.create_task(other.read(topic, 0, 0, 1 << 20, 1000))
            await begun.wait()
            other.database.query = query  # type: ignore[method-assign]
            await log.compaction.replace(topic, 0, [Replacement(0, 0, [(0, 3)])])
            counted = await admin.fetchval("SELECT replacements FROM log.partitions WHERE topic_id = $1", topic)

            async def heard() -> int:
                return other._cache.replacements((topic, 0))

            await until(heard, counted)
            go_on.set()
            await reading
            assert await offsets_left(other, topic) == [4, 5, 6, 7, 8, 9, 10]

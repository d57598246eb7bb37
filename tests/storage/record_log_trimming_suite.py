"""The record log suite, second part: offsets by time, the log start, and watching for appends."""

import asyncio

import pytest
from sharequeue_gateway.record_log.log import OffsetOutOfRange, Offsets, ReadResult
from sharequeue_gateway.record_log.retention_rule import RetentionRule

from sharequeue.protocol.errors import UnknownTopicOrPartition
from tests.storage.record_logs import Heard, PostgresRecordLogs, append, batch_of, read_all

NOW_MS = 1_763_640_000_000


class TrimmingSuite:
    # Offsets by time

    async def test_offsets_are_found_by_timestamp(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log:
            assert await log.offset_for_timestamp(topic, 0, 0) is None
            await log.appender.append([batch_of(topic, "abc", timestamps=[100, 300, 200])])
            await log.appender.append([batch_of(topic, "de", timestamps=[150, 160])])
            await log.appender.append([batch_of(topic, "f", timestamps=[400])])
            for timestamp_ms, offset in [(0, 0), (100, 0), (101, 1), (300, 1), (301, 5), (400, 5), (401, None)]:
                assert await log.offset_for_timestamp(topic, 0, timestamp_ms) == offset, timestamp_ms
            await log.delete_records(topic, {0: 2})
            for timestamp_ms, offset in [(0, 2), (200, 2), (201, 5), (150, 2)]:
                assert await log.offset_for_timestamp(topic, 0, timestamp_ms) == offset, timestamp_ms

    # Trimming

    async def test_delete_records_moves_the_log_start(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log:
            await append(log, topic, range(5))
            await append(log, topic, range(5, 10))
            assert await log.delete_records(topic, {0: 3}) == {0: 3}
            assert (await log.offsets(topic, [0]))[0] == Offsets(3, 10, 10)
            assert await read_all(log, topic) == list(range(3, 10))
            with pytest.raises(OffsetOutOfRange) as raised:
                await log.read(topic, 0, 2, 1 << 20, 100)
            assert raised.value.log_start_offset == 3
            with pytest.raises(OffsetOutOfRange):
                log.read_cached(topic, 0, 2, 1 << 20, 100)
            assert await log.delete_records(topic, {0: 1}) == {0: 3}, "the log start never goes back"
            with pytest.raises(OffsetOutOfRange):
                await log.delete_records(topic, {0: 11})
            assert (await log.offsets(topic, [0]))[0] == Offsets(3, 10, 10)

    async def test_an_emptied_partition_continues_its_offsets(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, range(5))
            assert await log.delete_records(topic, {0: -1}) == {0: 5}
            assert await log.delete_records(topic, {0: -1}) == {0: 5}
            for reader in (log, other):
                assert (await reader.offsets(topic, [0]))[0] == Offsets(5, 5, 5)
                assert await read_all(reader, topic) == []
            assert await append(other, topic, ["next"]) == 5
            assert await append(log, topic, ["and"]) == 6
            assert await read_all(log, topic) == ["next", "and"]

    async def test_delete_records_holds_on_every_gateway(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, range(10))
            assert len(await read_all(other, topic)) == 10
            await log.delete_records(topic, {0: 6})

            async def refused() -> None:
                while True:
                    try:
                        await other.read(topic, 0, 0, 1 << 20, 100)
                    except OffsetOutOfRange:
                        return
                    await asyncio.sleep(0.01)

            await asyncio.wait_for(refused(), 60)
            assert await read_all(other, topic) == list(range(6, 10))

    async def test_retention_by_time(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log:
            for age_ms in (5000, 3000, 4000, 1000):
                await log.appender.append([batch_of(topic, "ab", timestamps=[NOW_MS - age_ms - 10, NOW_MS - age_ms])])
            await log.apply_retention(topic, range(1), RetentionRule(10_000, -1), NOW_MS)
            assert (await log.offsets(topic, [0]))[0] == Offsets(0, 8, 8)
            await log.apply_retention(topic, range(1), RetentionRule(3500, -1), NOW_MS)
            assert (await log.offsets(topic, [0]))[0] == Offsets(2, 8, 8), "up to the first batch that is young enough"
            await log.apply_retention(topic, range(1), RetentionRule(3000, -1), NOW_MS)
            assert (await log.offsets(topic, [0]))[0] == Offsets(2, 8, 8)
            await log.apply_retention(topic, range(1), RetentionRule(0, -1), NOW_MS)
            assert (await log.offsets(topic, [0]))[0] == Offsets(8, 8, 8)
            assert await append(log, topic, ["next"]) == 8

    async def test_retention_by_bytes(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log:
            for _ in range(10):
                await append(log, topic, ["x" * 1000])
            await log.apply_retention(topic, range(1), RetentionRule(-1, 100_000), NOW_MS)
            assert (await log.offsets(topic, [0]))[0] == Offsets(0, 10, 10)
            await log.apply_retention(topic, range(1), RetentionRule(-1, 3500), NOW_MS)
            assert (await log.offsets(topic, [0]))[0] == Offsets(7, 10, 10)
            assert len(await read_all(log, topic)) == 3
            await log.apply_retention(topic, range(1), RetentionRule(-1, -1), NOW_MS)
            assert (await log.offsets(topic, [0]))[0] == Offsets(7, 10, 10)

    async def test_a_deleted_topic_takes_no_appends_and_has_no_records(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, "ab")
            await append(other, topic, "c", 1)
            await log.delete_topic(topic, 3)
            await log.delete_topic(topic, 3)
            for writer in (log, other):
                for partition in range(3):
                    with pytest.raises(UnknownTopicOrPartition):
                        await append(writer, topic, "z", partition)

    async def test_a_stale_writer_cannot_write_below_the_end(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as stale, record_log.open() as other:
            await append(stale, topic, range(10))
            for _ in range(5):
                await append(other, topic, range(10))
            await other.delete_records(topic, {0: -1})
            assert await append(stale, topic, ["late"]) == 60
            assert await read_all(other, topic) == ["late"]

    async def test_a_stale_writer_appends_a_large_record_whole(self, record_log: PostgresRecordLogs) -> None:
        """Its record was encoded for another offset before, and is kept in that form alone."""
        topic, large = await record_log.new_topic(), "x" * 200_000
        async with record_log.open() as stale, record_log.open() as other:
            await append(stale, topic, range(10))
            await append(other, topic, range(90))
            assert await append(stale, topic, [large, large]) == 100
            assert (await read_all(other, topic))[100:] == [large, large]

    # Watching

    async def test_another_gateways_append_is_noticed(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        heard = Heard()
        async with (
            record_log.open() as writer,
            record_log.open(listener=heard, interest=lambda: [(topic, 3)]) as reader,
        ):
            for number in range(3):
                await append(writer, topic, [number], 3)
                assert await asyncio.wait_for(heard.changes.get(), 60) == (topic, 3)
                assert (await reader.read(topic, 3, number, 1 << 20, 100)).log_end_offset == number + 1

    async def test_a_watcher_is_notified_when_a_known_log_end_is_forgotten(
        self, record_log: PostgresRecordLogs
    ) -> None:
        """Another gateway deleted the topic."""
        topic = await record_log.new_topic()
        heard = Heard()
        async with record_log.open() as writer, record_log.open(listener=heard) as reader:
            await append(writer, topic, "a")
            await reader.learn_ends([(topic, 0)])
            await writer.delete_topic(topic, 1)
            assert await asyncio.wait_for(heard.not_followed.get(), 60) == (topic, 0)
            assert reader.read_cached(topic, 0, 1, 1, 1) is None

    async def test_an_empty_partition_is_queried_once_and_its_first_record_is_noticed(
        self, record_log: PostgresRecordLogs
    ) -> None:
        topic = await record_log.new_topic()
        heard = Heard()
        async with record_log.open() as writer, record_log.open(listener=heard) as reader:
            empty = await reader.read(topic, 0, 0, 1 << 20, 100)
            assert reader.read_cached(topic, 0, 0, 1 << 20, 100) == empty == ReadResult((), 0, 0, 0)
            heard.take_changes()
            await append(writer, topic, "a")
            assert await asyncio.wait_for(heard.changes.get(), 60) == (topic, 0)
            assert await read_all(reader, topic) == ["a"]
            assert await append(reader, topic, "b") == 1
            await writer.read(topic, 1, 0, 1 << 20, 100)
            assert await append(writer, topic, "c", 1) == 0

    async def test_reading_the_ends_hides_no_append_from_a_watcher(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        heard = Heard()
        async with (
            record_log.open() as writer,
            record_log.open(listener=heard, interest=lambda: [(topic, 0)]) as reader,
        ):
            await append(writer, topic, "a")
            await reader.offsets(topic, [0])
            heard.take_changes()
            await append(writer, topic, "b")
            await reader.offsets(topic, [0])
            await asyncio.wait_for(heard.changes.get(), 60)
            await append(writer, topic, "c")
            await reader.read(topic, 0, 2, 1 << 20, 100)
            await asyncio.wait_for(heard.changes.get(), 60)

    async def test_a_moved_log_start_is_noticed(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        heard = Heard()
        async with (
            record_log.open() as writer,
            record_log.open(listener=heard, interest=lambda: [(topic, 0)]) as reader,
        ):
            await append(writer, topic, "abc")
            await reader.offsets(topic, [0])
            heard.take_changes()
            await writer.delete_records(topic, {0: 2})
            assert await asyncio.wait_for(heard.changes.get(), 60) == (topic, 0)
            assert (heard.log_start_offset, reader.known_log_start((topic, 0))) == (2, 2)

    async def test_a_local_append_is_reported_at_once(self, record_log: PostgresRecordLogs) -> None:
        topic, heard = await record_log.new_topic(), Heard()
        async with record_log.open(listener=heard) as log:
            await append(log, topic, "a", 2)
            assert heard.take_changes() == [(topic, 2)]
            await log.appender.append([batch_of(topic, "b", 0), batch_of(topic, "c", 1)])
            assert heard.take_changes() == [(topic, 0), (topic, 1)]
            await append(log, topic, "de", 2)
            assert heard.take_changes() == [(topic, 2)]
            await log.delete_records(topic, {2: 1})
            assert (heard.take_changes(), heard.log_start_offset) == ([(topic, 2)], 1)
            rule = RetentionRule(0, -1)
            await log.apply_retention(topic, [2], rule, 1 << 50)
            assert (heard.take_changes(), heard.log_start_offset) == ([(topic, 2)], 3)
        assert heard.appends == [(topic, 2, 1, 1), (topic, 0, 1, 1), (topic, 1, 1, 1), (topic, 2, 3, 2)]

    async def test_appends_of_one_commit_are_reported_once_for_each_partition(
        self, record_log: PostgresRecordLogs
    ) -> None:
        topic, heard = await record_log.new_topic(), Heard()
        async with record_log.open(listener=heard) as log:
            await append(log, topic, "a")
            await asyncio.gather(*(append(log, topic, "bc") for _ in range(20)))
        assert sum(records for *_, records in heard.appends) == 41
        assert heard.appends[-1][2] == 41
        assert len(heard.appends) < 21

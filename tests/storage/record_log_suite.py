"""The behaviour of every record log. An implementation is tested by a subclass of RecordLogSuite."""

import asyncio
import hashlib
import json
from collections.abc import Sequence

import pytest
from sharequeue_gateway.record_log.log import IdempotencyKey, Offsets, ReadResult
from sharequeue_gateway.record_log.postgres import PostgresRecordLog

from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue_http.forms.errors import InvalidRequest
from tests.storage.record_log_trimming_suite import TrimmingSuite
from tests.storage.record_logs import PostgresRecordLogs, append, batch_of, read_all


def key_of(topic_id: str, key: str, body: bytes, caller: str = "c", path: str = "/p") -> IdempotencyKey:
    def answer(base_offsets: Sequence[int]) -> bytes:
        return json.dumps(list(base_offsets)).encode()

    return IdempotencyKey(caller, path, topic_id, key, hashlib.sha256(body).digest(), answer)


class RecordLogSuite(TrimmingSuite):
    # Append and read

    async def test_appended_records_are_read_back(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log:
            assert await append(log, topic, ["a", "b"]) == 0
            assert await append(log, topic, [{"c": None}]) == 2
            assert await append(log, topic, [1, 2, 3]) == 3
            assert await read_all(log, topic) == ["a", "b", {"c": None}, 1, 2, 3]
            assert await read_all(log, topic, offset=4) == [2, 3]
        async with record_log.open() as again:
            assert await read_all(again, topic) == ["a", "b", {"c": None}, 1, 2, 3]

    async def test_one_append_makes_one_batch(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            for size in (1, 3, 2):
                await append(log, topic, range(size))
            for reader in (log, other):
                batches = (await reader.read(topic, 0, 0, 1 << 20, 100)).batches
                assert [(b.base_offset, b.last_offset, b.record_count) for b in batches] == [
                    (0, 0, 1),
                    (1, 3, 3),
                    (4, 5, 2),
                ]

    async def test_an_empty_partition_begins_and_ends_at_0(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log:
            assert await log.offsets(topic, [0, 7]) == {0: Offsets(0, 0, 0), 7: Offsets(0, 0, 0)}
            result = await log.read(topic, 0, 0, 1 << 20, 100)
            assert (list(result.batches), result.log_start_offset, result.log_end_offset) == ([], 0, 0)

    async def test_reading_at_or_behind_the_end_finds_nothing(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, "abc")
            for reader in (log, other):
                for offset in (3, 4, 1000):
                    result = await reader.read(topic, 0, offset, 1 << 20, 100)
                    assert (list(result.batches), result.log_end_offset) == ([], 3)

    async def test_the_log_end_of_a_read_covers_its_records(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, "ab")
            await other.read(topic, 0, 0, 1 << 20, 100)
            await append(log, topic, "cd")
            result = await other.read(topic, 0, 2, 1 << 20, 100)
            assert [b.last_offset for b in result.batches] == [3]
            assert result.log_end_offset == 4

    async def test_reading_stops_at_a_limit(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            for number in range(20):
                await append(log, topic, ["x" * 1000] * 5)
                assert number * 5 + 5 == (await log.offsets(topic, [0]))[0].log_end_offset
            for reader in (log, other):
                for offset, max_bytes, max_records, last in [
                    (0, 1 << 20, 10_000, 99),
                    (0, 1 << 20, 12, 14),
                    (0, 1 << 20, 10, 9),
                    (3, 1 << 20, 2, 4),
                    (3, 1 << 20, 3, 9),
                    (0, 12_000, 10_000, 14),
                    (0, 1, 10_000, 4),
                    (97, 1, 1, 99),
                ]:
                    batches = (await reader.read(topic, 0, offset, max_bytes, max_records)).batches
                    assert batches[0].base_offset <= offset
                    assert batches[-1].last_offset == last, (offset, max_bytes, max_records)

    async def test_a_record_larger_than_max_bytes_is_read_alone(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, ["small"])
            await append(log, topic, ["x" * 6_000_000])
            await append(log, topic, ["last"])
            for reader in (log, other):
                for offset in range(3):
                    batches = (await reader.read(topic, 0, offset, 1000 if offset == 1 else 1, 100)).batches
                    assert [b.base_offset for b in batches] == [offset]
                assert await read_all(reader, topic) == ["small", "x" * 6_000_000, "last"]

    async def test_reads_work_with_a_small_cache(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open(cache_bytes=10_000) as log:
            values = [f"{number}-{'x' * 500}" for number in range(300)]
            await asyncio.gather(*(append(log, topic, [value]) for value in values))
            assert sorted(map(str, await read_all(log, topic))) == sorted(values)

    async def test_a_cached_read_never_contradicts_the_log(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            assert other.read_cached(topic, 0, 0, 1 << 20, 100) is None
            await append(log, topic, "abc")
            await other.read(topic, 0, 0, 1 << 20, 100)
            await other.offsets(topic, [0])
            for reader in (log, other):
                cached = reader.read_cached(topic, 0, 1, 1 << 20, 100)
                assert cached is None or [b.base_offset for b in cached.batches] == [0]
            at_end = other.read_cached(topic, 0, 3, 1 << 20, 100)
            assert at_end is None or (not at_end.batches and at_end.log_end_offset == 3)

    async def test_the_ends_of_many_logs_are_learned_in_one_call(self, record_log: PostgresRecordLogs) -> None:
        topics = [await record_log.new_topic(), await record_log.new_topic()]
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topics[0], "abc", 1)
            places = [(topic, partition) for topic in topics for partition in range(3)]
            assert all(other.read_cached(*place, 0, 1, 1) is None for place in places)
            await other.learn_ends(places)
            ends = {(topic, partition): 3 if (topic, partition) == (topics[0], 1) else 0 for topic, partition in places}
            for place, end in ends.items():
                assert other.read_cached(*place, end, 1, 1) == ReadResult((), 0, end, end)

    # Many writers

    async def test_two_gateways_write_the_same_partitions_without_holes_or_overlaps(
        self, record_log: PostgresRecordLogs
    ) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as first, record_log.open() as second:
            written: dict[int, dict[int, list[object]]] = {0: {}, 1: {}}

            async def write(log: PostgresRecordLog, name: str) -> None:
                for number in range(40):
                    partition = number % 2
                    values: list[object] = [[name, number, index] for index in range(1 + number % 3)]
                    base = await append(log, topic, values, partition)
                    assert base not in written[partition]
                    written[partition][base] = values

            await asyncio.gather(*(write(log, f"{log is first}{n}") for log in (first, second) for n in range(4)))
            for partition in (0, 1):
                expected = [value for _, values in sorted(written[partition].items()) for value in values]
                for log in (first, second):
                    assert await read_all(log, topic, partition) == expected
                assert len({json.dumps(value) for value in expected}) == len(expected)

    async def test_appends_of_several_partitions_and_of_single_ones_do_not_conflict(
        self, record_log: PostgresRecordLogs
    ) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as first, record_log.open() as second:

            async def several(log: PostgresRecordLog, name: str) -> None:
                for number in range(15):
                    order = (0, 1, 2) if number % 2 else (2, 1, 0)
                    await log.appender.append([batch_of(topic, [[name, number]], partition) for partition in order])

            async def single(log: PostgresRecordLog, name: str) -> None:
                for number in range(30):
                    await append(log, topic, [[name, number]], number % 3)

            await asyncio.gather(
                several(first, "a"), several(second, "b"), several(second, "c"), single(first, "d"), single(second, "e")
            )
            for partition in range(3):
                values = await read_all(first, topic, partition)
                assert sorted(json.dumps(v) for v in values) == sorted(
                    json.dumps(v)
                    for v in [
                        *([name, number] for name in "abc" for number in range(15)),
                        *([name, number] for name in "de" for number in range(30) if number % 3 == partition),
                    ]
                )

    async def test_a_refused_append_of_several_partitions_stores_nothing(self, record_log: PostgresRecordLogs) -> None:
        topic, gone = await record_log.new_topic(), await record_log.new_topic()
        async with record_log.open() as log:
            await append(log, gone, "x")
            await log.delete_topic(gone, 1)
            with pytest.raises(UnknownTopicOrPartition):
                await log.appender.append([batch_of(topic, "ab", 0), batch_of(gone, "c", 0), batch_of(topic, "d", 1)])
            assert await log.offsets(topic, [0, 1]) == {0: Offsets(0, 0, 0), 1: Offsets(0, 0, 0)}
            assert await append(log, topic, "z") == 0

    async def test_a_bad_append_does_not_fail_its_neighbours(self, record_log: PostgresRecordLogs) -> None:
        topic, gone = await record_log.new_topic(), await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, ["first"])
            await append(log, gone, ["first"])
            await other.delete_topic(gone, 1)
            outcomes = await asyncio.gather(
                *(append(log, gone if number == 7 else topic, [number]) for number in range(20)),
                return_exceptions=True,
            )
            assert isinstance(outcomes[7], UnknownTopicOrPartition)
            assert sorted(o for o in outcomes if isinstance(o, int)) == list(range(1, 20))

    async def test_a_large_append_of_several_partitions_is_stored_whole_or_not_at_all(
        self, record_log: PostgresRecordLogs
    ) -> None:
        topic, gone = await record_log.new_topic(), await record_log.new_topic()
        large = [f"{number:>40000}" for number in range(10)]
        async with record_log.open() as log, record_log.open() as other:
            await append(log, gone, "x")
            await log.delete_topic(gone, 1)
            for number, each in enumerate((log, other, log)):
                result = await each.appender.append([batch_of(topic, large, 0), batch_of(topic, large[:7], 1)])
                assert list(result.base_offsets) == [10 * number, 7 * number]
            with pytest.raises(UnknownTopicOrPartition):
                await log.appender.append([batch_of(topic, large, 0), batch_of(gone, large, 0)])
        async with record_log.open() as log:
            assert await read_all(log, topic, 0) == large * 3
            assert await read_all(log, topic, 1) == large[:7] * 3

    # Idempotency keys

    async def test_a_repeat_with_a_key_gets_the_first_answer(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await append(log, topic, "x")
            first = await log.appender.append(
                [batch_of(topic, "ab"), batch_of(topic, "c", 1)], key_of(topic, "k", b"1")
            )
            assert (list(first.base_offsets), first.answer) == ([1, 0], b"[1, 0]")
            for again in (log, other):
                repeated = await again.appender.append(
                    [batch_of(topic, "ab"), batch_of(topic, "c", 1)], key_of(topic, "k", b"1")
                )
                assert (list(repeated.base_offsets), repeated.answer) == ([1, 0], b"[1, 0]")
            assert await read_all(log, topic) == ["x", "a", "b"]
            assert await read_all(log, topic, 1) == ["c"]
        async with record_log.open() as restarted:
            repeated = await restarted.appender.append([batch_of(topic, "ab")], key_of(topic, "k", b"1"))
            assert repeated.answer == b"[1, 0]"

    async def test_another_request_with_a_used_key_is_refused(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as log, record_log.open() as other:
            await log.appender.append([batch_of(topic, "a")], key_of(topic, "k", b"1"))
            for again in (log, other):
                with pytest.raises(InvalidRequest) as raised:
                    await again.appender.append([batch_of(topic, "b")], key_of(topic, "k", b"2"))
                assert raised.value.status == 422
            assert await read_all(log, topic) == ["a"]

    async def test_a_key_belongs_to_caller_path_and_topic(self, record_log: PostgresRecordLogs) -> None:
        topic, other_topic = await record_log.new_topic(), await record_log.new_topic()
        async with record_log.open() as log:
            keys = [
                key_of(topic, "k", b"1"),
                key_of(topic, "k", b"2", caller="d"),
                key_of(topic, "k", b"3", path="/q"),
                key_of(other_topic, "k", b"4"),
                key_of(topic, "l", b"5"),
            ]
            for key in keys:
                await log.appender.append([batch_of(key.topic_id, [key.fingerprint.hex()])], key)
            assert len(await read_all(log, topic)) == 4
            assert len(await read_all(log, other_topic)) == 1

    async def test_concurrent_repeats_append_once(self, record_log: PostgresRecordLogs) -> None:
        topic = await record_log.new_topic()
        async with record_log.open() as first, record_log.open() as second:
            results = await asyncio.gather(
                *(log.appender.append([batch_of(topic, "ab")], key_of(topic, "k", b"1")) for log in (first, second) * 5)
            )
            assert {result.answer for result in results} == {b"[0]"}
            assert await read_all(first, topic) == ["a", "b"]

    async def test_a_refused_append_leaves_its_key_free(self, record_log: PostgresRecordLogs) -> None:
        topic, gone = await record_log.new_topic(), await record_log.new_topic()
        async with record_log.open() as log:
            await append(log, gone, "x")
            await log.delete_topic(gone, 1)
            with pytest.raises(UnknownTopicOrPartition):
                await log.appender.append([batch_of(topic, "a"), batch_of(gone, "b")], key_of(topic, "k", b"1"))
            result = await log.appender.append([batch_of(topic, "c")], key_of(topic, "k", b"2"))
            assert list(result.base_offsets) == [0]

"""Reads of a gateway's record log on a real broker: memory, one Fetch for many, gaps, log starts, floors."""

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from sharequeue_gateway.kafka_log import log as kafka_log
from sharequeue_gateway.kafka_log import reading
from sharequeue_gateway.kafka_log.log import KafkaRecordLog
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.log import OffsetOutOfRange, Offsets, PartitionAppend, ReadResult
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.removing.readers import Beginning
from sharequeue_gateway.record_log.retention_rule import RetentionRule

from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.forms.errors import ApiError, TooLarge
from sharequeue_kafka.cluster import Place
from sharequeue_kafka.errors import KafkaError
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, foreign, new_topic
from tests.kafka_log.record_logs import open_log
from tests.storage.record_logs import Heard

DEADLINE_S = 60  # for a hang
LIMITS = (1 << 20, 10_000)


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


def run(play: Coroutine[Any, Any, None], deadline_s: int = DEADLINE_S) -> None:
    async def within() -> None:
        async with asyncio.timeout(deadline_s):
            await play

    asyncio.run(within())


def values(read: ReadResult[RecordBatch], first: int = 0) -> list[tuple[int, Any]]:
    parts = [batch.slice(max(first, batch.base_offset), batch.last_offset) for batch in read.batches]
    records = json.loads(b"[" + b",".join(filter(None, parts)) + b"]")
    return [(record["offset"], record["value"]) for record in records]


async def topic_of(kafka: Brokers, written: Sequence[bytes | None] = (), **configs: str) -> tuple[str, Place]:
    """A new topic with one record a batch, which a foreign producer wrote. Returns: its name and its partition."""
    async with cluster_of(kafka) as cluster:
        name, (place,) = await new_topic(cluster, **configs)
    async with foreign(kafka) as producer:
        for number, value in enumerate(written):
            await producer.send_and_wait(name, value, key=b"k", timestamp_ms=1000 * number + 1000)
    return name, place


async def heard_of(log: KafkaRecordLog, heard: Heard, place: Place, end: int) -> None:
    """Wait until memory knows that a log ends there, without asking."""
    while log.reads.cache.log_end_offset(place) < end:
        await heard.changes.get()


def test_an_append_of_which_more_was_read_is_no_log_that_was_cut(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka, [b"0", b"1"])
        async with open_log(kafka, database) as log:
            await log.read(*place, 0, *LIMITS)
            log.hear_of(*place, 1)
            assert log.reads.truncations._suspects == {}, "a request to Kafka for nothing"

    run(play())


def test_records_are_read_once_and_then_from_memory(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka, [b"0", b'"a"', None])
        async with open_log(kafka, database) as log:
            fetches: list[int] = []
            fetch = log.reads._fetching.fetch

            async def counted(*arguments: Any, **named: Any) -> Any:
                fetches.append(arguments[1])
                return await fetch(*arguments, **named)

            log.reads._fetching.fetch = counted  # type: ignore[method-assign]
            reads = await asyncio.gather(*(log.read(*place, 0, *LIMITS) for _ in range(5)))
            assert [values(read) for read in reads] == [[(0, 0), (1, "a"), (2, None)]] * 5
            assert (reads[0].log_start_offset, reads[0].log_end_offset, reads[0].end_offset) == (0, 3, 3)
            again = log.read_cached(*place, 1, *LIMITS)
            assert again is not None
            assert values(again) == [(1, "a"), (2, None)]
            assert log.read_cached(*place, 3, *LIMITS) == ReadResult((), 0, 3, 3)
            assert values(await log.read(*place, 2, *LIMITS)) == [(2, None)]
            assert fetches == [0]
            assert values(await log.read_packed(*place, 0, 1, 10)) == [(0, 0)]  # type: ignore[arg-type]
            assert await log.offsets(place.topic_id, [0]) == {0: Offsets(0, 3, 3)}
            assert await log.offset_for_timestamp(*place, 1500) == 1
            assert await log.offset_for_timestamp(*place, 9000) is None

    run(play())


def test_a_record_of_another_client_is_heard_of_and_in_memory(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log, foreign(kafka) as producer:
            await log.learn_ends([place])
            assert log.read_cached(*place, 0, *LIMITS) == ReadResult((), 0, 0, 0)
            await producer.send_and_wait(name, b"1")
            await heard_of(log, heard, place, 1)
            read = log.read_cached(*place, 0, *LIMITS)
            assert read is not None
            assert values(read) == [(0, 1)]

    run(play())


def test_readers_of_committed_records_stop_at_the_last_stable_offset(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name, place = await topic_of(kafka)
        heard = Heard()
        async with open_log(kafka, database, heard) as log, foreign(kafka, transactional_id=name) as producer:
            async with producer.transaction():
                await producer.send_and_wait(name, b"0")  # its marker: 1
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"2")  # its marker: 3
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"4")
            committed = await log.read(*place, 0, *LIMITS, True)
            assert values(committed) == [(0, 0)]
            assert (committed.batches[-1].last_offset, committed.end_offset, committed.log_end_offset) == (3, 4, 5)
            assert log.read_cached(*place, 4, *LIMITS, True) == ReadResult((), 0, 5, 4)
            all_records = await log.read(*place, 0, *LIMITS)
            assert values(all_records) == [(0, 0), (2, 2), (4, 4)]
            await producer.commit_transaction()
            await heard_of(log, heard, place, 6)
            assert values(await log.read(*place, 4, *LIMITS, True)) == [(4, 4)]
            assert await log.offsets(place.topic_id, [0]) == {0: Offsets(0, 6, 6)}

    run(play())


def test_a_log_start_that_moves_is_followed_and_what_it_removed_is_counted_once(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka, [b"%d" % number for number in range(6)])
        key, rule = SharePartitionKey("group", *place), RetentionRule()
        heard = Heard()
        async with open_log(kafka, database) as log, open_log(kafka, database, heard) as other:
            assert await log.readers.find("group", [place]) == {}
            begun = await log.readers.begin([Beginning(key, 0, 2, chosen=True)], 0)
            assert begun[key][:3] == (2, 2, 6)
            await other.read(*place, 0, *LIMITS)
            assert await log.delete_records(place.topic_id, {0: 5}) == {0: 5}
            while other.known_log_start(place) < 5:
                await heard.changes.get()
            for each in (log, other):
                with pytest.raises(OffsetOutOfRange) as refused:
                    await each.read(*place, 1, *LIMITS)
                assert refused.value.log_start_offset == 5
                assert each.known_log_start(place) == 5
                assert values(await each.read(*place, 5, *LIMITS), 5) == [(5, 5)]
            (removed,) = await log.apply_retention(place.topic_id, [], rule, 0)  # although another gateway sweeps it
            assert (removed.log_start_offset, removed.unfinished) == (5, {"group": 3})
            await other.readers.find("group", [place])
            assert await log.apply_retention(place.topic_id, [0], rule, 0) == []
            assert await other.apply_retention(place.topic_id, [0], rule, 0) == []
            with pytest.raises(OffsetOutOfRange):
                await log.delete_records(place.topic_id, {0: 7})

    run(play())


def test_a_topic_that_is_gone_is_read_as_empty(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka, [b"1"])
        async with open_log(kafka, database) as log, cluster_of(kafka) as cluster:
            await cluster.delete_topic(place.topic_id)
            assert await log.offsets(place.topic_id, [0]) == {0: Offsets(0, 0, 0)}
            assert not (await log.read(*place, 0, *LIMITS)).batches
            await log.delete_topic(place.topic_id, 1)

    run(play())


def test_ends_are_learned_beside_a_partition_without_a_leader(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with open_log(kafka, database) as log:
            _, (lost, *others) = await new_topic(log.cluster, 3)
            list_offsets = log.cluster.list_offsets

            async def without_a_leader(*arguments: Any, **named: Any) -> Any:
                return {**await list_offsets(*arguments, **named), lost: KafkaError.of(5)}

            monkeypatch.setattr(log.cluster, "list_offsets", without_a_leader)
            with pytest.raises(StorageError, match="LEADER_NOT_AVAILABLE"):
                await log.learn_ends([lost, *others])
            assert [log.known_log_start(place) for place in (lost, *others)] == [-1, 0, 0]

    run(play())


def test_parts_of_a_look_stand_for_themselves_and_the_first_without_an_answer_ends_it(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part may wait for a broker as long as a call may."""
    monkeypatch.setattr(reading, "ENDS_AT_ONCE", 1)
    monkeypatch.setattr(kafka_log, "ENDS_AT_ONCE", 1)

    async def play() -> None:
        async with open_log(kafka, database) as log:
            _, places = await new_topic(log.cluster, 4)
            list_offsets, asked = log.cluster.list_offsets, list[Place]()

            async def silent_from_the_second(part: Sequence[Place], *more: Any, **named: Any) -> Any:
                asked.extend(part)
                found = await list_offsets(part, *more, **named)
                return found if part[0].partition == 0 else dict.fromkeys(part, log.cluster.silent())

            monkeypatch.setattr(log.cluster, "list_offsets", silent_from_the_second)
            with pytest.raises(StorageError, match="NOT_ANSWERED"):
                await log.offsets(places[0].topic_id, range(4))
            assert set(asked) == set(places[:2])
            with pytest.raises(StorageError, match="NOT_ANSWERED"):
                await log._follow_rows(places)
            assert (await log.database.query(store.bounds, places)).keys() == {places[0]}

    run(play())


def test_a_delete_that_may_have_happened_is_not_denied(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with open_log(kafka, database) as log:
            _, (first, second) = await new_topic(log.cluster, 2)
            delete, silent = log.cluster.delete_records, log.cluster.silent()

            async def lose_second(before: Any) -> Any:
                return {**await delete(before), **({second: silent} if second in before else {})}

            async def say_nothing(places: Sequence[Place], *_: Any, **__: Any) -> Any:
                return dict.fromkeys(places, silent)

            async def definite(before: dict[int, int]) -> bool:
                with pytest.raises(ApiError) as refused:
                    await log.delete_records(first.topic_id, before)
                return refused.value.definite

            assert await definite({0: 7})
            assert not await definite({0: 7, 1: 0})
            monkeypatch.setattr(log.cluster, "delete_records", lose_second)
            assert not await definite({1: 0})
            assert not await definite({0: 7, 1: 0})
            monkeypatch.setattr(log.cluster, "list_offsets", say_nothing)
            assert not await definite({0: 0})

    run(play())


def test_an_append_that_may_have_happened_in_a_partition_is_not_denied(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with open_log(kafka, database) as log:
            faults = {0: KafkaError.of(10), 1: KafkaError.of(10), 2: log.cluster.silent()}

            async def refuse(place: Place, *_: Any) -> int:
                raise faults[place.partition]

            monkeypatch.setattr(log.appender._producer, "append", refuse)
            for partitions, definite in (((0, 1), True), ((0, 2), False)):
                tails = [b',"timestamp_ms":5,"key":null,"value":1}']
                with pytest.raises(TooLarge) as refused:
                    await log.appender.append([PartitionAppend("t", each, tails, 5) for each in partitions])
                assert refused.value.definite is definite

    run(play())


def test_memory_is_bounded_and_reads_go_on(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        _, place = await topic_of(kafka, [b'"%b"' % (b"x" * 1000)] * 30)
        async with open_log(kafka, database, cache_bytes=5000) as log:
            offset = 0
            while offset < 30:
                read = await log.read(*place, offset, 3000, 10_000)
                assert read.batches[0].base_offset <= offset
                offset = read.batches[-1].last_offset + 1
            assert log.reads.cache.bytes < 10_000

    run(play())


async def replicas_of(brokers: Brokers, name: str) -> list[int]:
    """The brokers of the only partition of a topic, its leader first."""
    admin = AIOKafkaAdminClient(bootstrap_servers=brokers.address)
    await admin.start()
    try:
        ((partition,),) = [topic["partitions"] for topic in await admin.describe_topics([name])]
    finally:
        await admin.close()
    return sorted(partition["replicas"], key=lambda node: node != partition["leader"])


@pytest.mark.soak
def test_groups_go_back_where_the_histories_part(three_brokers: Brokers, database: str) -> None:
    """A broker that lacks records becomes the leader, and its log has passed the old end when the gateway sees it."""

    async def play() -> None:
        restarted: asyncio.Queue[Any] = asyncio.Queue()
        async with (
            open_log(three_brokers, database, restarted=restarted) as log,
            cluster_of(three_brokers) as cluster,
        ):
            configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
            topic = await cluster.create_topic(f"cut-{uuid.uuid4().hex[:8]}", 1, 2, configs)
            name, place = topic.name, Place(topic.id, 0)
            ahead, behind = await replicas_of(three_brokers, name)
            async with foreign(three_brokers) as producer:
                await producer.send_and_wait(name, b'"both"')
                three_brokers.kill(behind)
                for _ in range(2):
                    await producer.send_and_wait(name, b'"lost"')
            assert values(await log.read(*place, 0, *LIMITS)) == [(0, "both"), (1, "lost"), (2, "lost")]
            three_brokers.kill(ahead)
            three_brokers.start(behind)
            async with foreign(three_brokers) as producer:
                for _ in range(4):
                    await producer.send_and_wait(name, b'"new"')
            assert await restarted.get() == (place, 1)
            three_brokers.start(ahead)
            await log.learn_ends([place])
            assert values(await log.read(*place, 1, *LIMITS)) == [(offset, "new") for offset in range(1, 5)]

    run(play(), 3 * DEADLINE_S)

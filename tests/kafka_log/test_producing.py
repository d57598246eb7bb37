"""Appends on a real broker: plain and idempotent, and in transactions that others fence."""

import asyncio
import dataclasses
import secrets
import uuid
import weakref
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.api import RequestHeader_v2
from aiokafka.protocol.produce import ProduceRequest, ProduceResponse_v7
from aiokafka.record.default_records import DefaultRecordBatch
from sharequeue_gateway.producing.partitioner import key_hash

from sharequeue.protocol.errors import StorageError
from sharequeue.service.kafka_health import ask_kafka
from sharequeue_kafka import producing
from sharequeue_kafka.batches import numbers_of
from sharequeue_kafka.cluster import KafkaCluster, KafkaPartition, KafkaTopic, Place
from sharequeue_kafka.connections import Patience
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.fetching import fetch_request
from sharequeue_kafka.producing import Heard, IdempotentProducer, Numbering, Sender, encode
from sharequeue_kafka.requests import Produce
from sharequeue_kafka.settings import KafkaSettings
from sharequeue_kafka.transactions import Lane, Slot, TransactionalSlots, fence
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, foreign, new, new_topic, read


def test_appends_of_a_moment_are_one_batch_and_each_learns_its_offset(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (first, second) = await new_topic(cluster, 2)
            producer = IdempotentProducer(cluster)
            headers = [("h", b"1"), ("h", None)]
            assert await producer.append(first, [(None, None, headers, 5)]) == 0
            offsets = await asyncio.gather(
                *(producer.append(first, [new(f"{number}-0"), new(f"{number}-1")]) for number in range(100)),
                producer.append(second, [new("other", b"key")]),
            )
            assert offsets == [*range(1, 201, 2), 0]
            records = await read(cluster, first)
            assert tuple(records[0]) == (0, 5, None, None, headers)
            assert [each.value for each in records[1:]] == [f"{each // 2}-{each % 2}".encode() for each in range(200)]
            await producer.close()

    asyncio.run(play())


@pytest.mark.parametrize("transactional_id", [None, "id-ö"])
def test_a_produce_is_written_and_read_as_its_schemas_say(transactional_id: str | None) -> None:
    topics = {"first": [(0, b"batch"), (7, b"")], "zweites-ö": [(2**31 - 1, b"x" * 70_000)]}
    ours = Produce(transactional_id, 30_000, topics).prepare({0: (3, 13)})
    theirs = ProduceRequest(transactional_id, -1, 30_000, list(topics.items())).prepare({0: (7, 7)})
    assert ours.encode() == theirs.encode()
    assert ours.build_request_header(5, "me").encode() == theirs.build_request_header(5, "me").encode()
    fetch: Any = fetch_request([], max_wait_ms=1, committed=False)
    expected = RequestHeader_v2(fetch, correlation_id=5, client_id="me").encode()
    assert fetch.build_request_header(5, "me").encode() == expected
    answer = ProduceResponse_v7(
        [("first", [(0, 0, 12, -1, 3), (7, 6, -1, -1, -1)]), ("zweites-ö", [(1, 0, 2**40, 9, 0)])], 4
    )
    assert ours.RESPONSE_TYPE.decode(BytesIO(answer.encode())) == [
        ("first", 0, 0, 12, -1, 3),
        ("first", 7, 6, -1, -1, -1),
        ("zweites-ö", 1, 0, 2**40, 9, 0),
    ]
    sent = weakref.ref(ours)
    del ours
    assert sent() is None, "its batches stay until a collection, or for good if one has frozen it"


RANDOM = [secrets.token_bytes(100) for _ in range(2000)]
EQUAL = RANDOM[:1] * 2000


@pytest.mark.parametrize(
    ("values", "compressed"),
    [(EQUAL[:50], True), (RANDOM[:50], False), (EQUAL + RANDOM[:50], True), (RANDOM + EQUAL[:50], False)],
)
def test_a_batch_is_compressed_if_it_becomes_smaller(values: list[bytes], compressed: bool) -> None:
    batch = encode([(None, value, [], 0) for value in values], Numbering(1, 0), Place("t", 0), False)
    assert (len(batch) < sum(map(len, values)) / 2) == compressed
    read = DefaultRecordBatch(batch)
    assert (read.compression_type != 0) == compressed
    assert read.validate_crc()
    assert [each.value for each in read] == values


def test_callers_that_take_turns_share_each_batch(kafka: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller comes back later than the one before it. The pause ends when all are there."""
    monkeypatch.setattr(producing, "LINGER", 1_000_000)
    monkeypatch.setattr(producing, "MOST_LINGER_S", 600)

    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place,) = await new_topic(cluster)
            producer, batches = (
                IdempotentProducer(cluster, sent=lambda *_: lambda *_: batches.append(_)),
                list[object](),
            )

            async def call(number: int) -> None:
                for _ in range(5):
                    await producer.append(place, [new(f"{number}")])
                    for _ in range(number):
                        await cluster.check()

            callers = [asyncio.create_task(call(number)) for number in range(4)]
            await asyncio.wait(callers, return_when=asyncio.FIRST_COMPLETED)
            assert len(batches) == 5, "the first call alone, then all four together"
            for caller in callers:
                caller.cancel()

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_caller_that_stays_away_is_not_waited_for(kafka: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producing, "MOST_LINGER_S", 0.001)

    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place,) = await new_topic(cluster)
            producer = IdempotentProducer(cluster)
            assert await asyncio.gather(*(producer.append(place, [new("a")]) for _ in range(3))) == [0, 1, 2]
            assert [await producer.append(place, [new("b")]) for _ in range(3)] == [3, 4, 5]
            assert await asyncio.gather(*(producer.append(place, [new("c")]) for _ in range(2))) == [6, 7]
            await producer.close()

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_caller_that_leaves_ends_its_producer_id_and_those_behind_it_go_on(
    kafka: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that finds nothing under way is appended in its own task, and no other one repeats its batch."""

    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place, other) = await new_topic(cluster, 2)
            numbers: list[bytes] = []

            def sent(_: Place, batch: bytes, sources: list[Any]) -> Heard:
                numbers.append(numbers_of(batch)[:8])
                return lambda *_: None

            producer = IdempotentProducer(cluster, sent=sent)
            await producer.append(place, [new("a")])
            send, written = cluster.send, asyncio.Event()

            async def lose(node: int, request: Any, purpose: str = "") -> Any:
                answer = await send(node, request, purpose)
                if purpose == "produce" and not written.is_set():
                    assert asyncio.current_task() is leaves
                    written.set()
                    await asyncio.Event().wait()
                return answer

            monkeypatch.setattr(cluster, "send", lose)
            leaves = asyncio.create_task(producer.append(place, [new("b")]))
            await written.wait()
            behind = asyncio.gather(*(producer.append(each, [new("c")]) for each in (place, place, other)))
            await asyncio.sleep(0)
            leaves.cancel()
            assert await behind == [2, 3, 0]
            assert leaves.cancelled()
            assert await producer.append(place, [new("d")]) == 4
            assert [each.value for each in await read(cluster, place)] == [b"a", b"b", b"c", b"c", b"d"]
            assert [each == numbers[0] for each in numbers] == [True, True, True, False, False]
            await producer.close()

    asyncio.run(asyncio.wait_for(play(), 60))


@pytest.mark.parametrize("sent", [False, True])
def test_a_call_that_is_left_when_the_producer_closes_says_whether_it_was_sent(
    kafka: Brokers, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place,) = await new_topic(cluster)
            producer = IdempotentProducer(cluster, timeout_ms=600_000)
            send, produced = cluster.send, asyncio.Event()

            async def lose(node: int, request: Any, purpose: str = "") -> Any:
                answer = await send(node, request, purpose)
                if purpose == "produce":
                    produced.set()
                    await asyncio.Event().wait()
                return answer

            monkeypatch.setattr(cluster, "send", lose)
            caller = asyncio.create_task(producer.append(place, [new("a")]))
            behind = asyncio.create_task(producer.append(place, [new("b")]))
            await (produced.wait() if sent else asyncio.sleep(0))  # it has no producer id yet
            await producer.close()
            with pytest.raises(KafkaError) as refused:
                await caller
            assert refused.value.definite is not sent
            with pytest.raises(KafkaError, match="the producer is closed") as refused:
                await behind
            assert refused.value.definite
            assert len(await read(cluster, place)) == sent

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_refused_call_fails_alone_and_the_next_go_on(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place,) = await new_topic(cluster, max_message_bytes="10000")
            producer = IdempotentProducer(cluster)
            found = await asyncio.gather(
                producer.append(place, [new("a")]),
                producer.append(place, [new(secrets.token_hex(10_000))]),
                producer.append(place, [new("c")]),
                producer.append(place, [(None, b"", [], 2**70)]),
                return_exceptions=True,
            )
            faults = [each for each in found if isinstance(each, KafkaError)]
            assert [(each.name, each.definite, each.retriable) for each in faults][:1] == [
                ("MESSAGE_TOO_LARGE", True, False)
            ]
            assert await producer.append(place, [new("d")]) == len(await read(cluster, place)) - 1
            absent = Place(str(uuid.uuid4()), 0)
            with pytest.raises(KafkaError) as refused:
                await producer.append(absent, [new("e")])
            assert (refused.value.name, refused.value.definite) == ("UNKNOWN_TOPIC_ID", True)
            await producer.close()

    asyncio.run(play())


def test_keys_go_where_a_foreign_producer_puts_them(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka) as producer:
            name, _ = await new_topic(cluster, 7)
            for key in (b"", b"a", b"order-17", "schlüssel".encode()):
                assert (await producer.send_and_wait(name, b"", key)).partition == key_hash(key) % 7

    asyncio.run(play())


def slot_ids(count: int) -> list[str]:
    return [f"slot-{uuid.uuid4()}" for _ in range(count)]


def test_calls_that_wait_share_a_transaction_over_places(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (first, second) = await new_topic(cluster, 2)
            slots = TransactionalSlots(cluster, slot_ids(1))
            slot = await slots.take()
            found = await asyncio.gather(
                slots.append(slot, {first: [new("a"), new("b")], second: [new("c")]}),
                slots.append(slot, {first: [new("d")]}),
            )
            assert found == [{first: 0, second: 0}, {first: 2}]
            assert await slots.append(slot, {first: [new("e")]}) == {first: 4}, "after the marker of the commit"
            assert [each.value for each in await read(cluster, first, committed=True)] == [b"a", b"b", b"d", b"e"]
            await slots.close()

    asyncio.run(play())


def test_a_fenced_slot_writes_nothing_and_says_so(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, cluster_of(kafka) as elsewhere:
            _, (place,) = await new_topic(cluster)
            slots = TransactionalSlots(cluster, slot_ids(1))
            slot = await slots.take()
            later = await fence(elsewhere, slot.transactional_id)
            assert (later.producer_id, later.epoch) > (slot.producer_id, slot.epoch)
            for _ in range(2):  # refused by the coordinator, then because the life is over
                with pytest.raises(KafkaError) as refused:
                    await slots.append(slot, {place: [new("late")]})
                assert (refused.value.definite, refused.value.retriable) == (True, True)
            assert await slots.append(await slots.take(), {place: [new("next")]})
            assert [each.value for each in await read(cluster, place, committed=True)] == [b"next"]
            await slots.close()

    asyncio.run(play())


@pytest.mark.parametrize("step", ["AddPartitionsToTxnRequest", "Produce", "EndTxnRequest"])
def test_fencing_between_the_steps_ends_in_all_or_nothing(kafka: Brokers, step: str) -> None:
    """Another process fences the slot before a step is sent, as one does that finds the intent open."""

    async def play() -> None:
        async with cluster_of(kafka) as cluster, cluster_of(kafka) as elsewhere:
            _, (place,) = await new_topic(cluster)
            slots = TransactionalSlots(cluster, slot_ids(1))
            slot = await slots.take()
            send, fenced = cluster.send, False

            async def late(node: int, request: object, purpose: str = "") -> object:
                nonlocal fenced
                if type(request).__name__ == step and not fenced:
                    fenced = True
                    await fence(elsewhere, slot.transactional_id)
                return await send(node, request, purpose)

            cluster.send = late  # type: ignore[method-assign]
            with pytest.raises(KafkaError) as refused:
                await slots.append(slot, {place: [new("late")]})
            assert refused.value.definite
            assert await read(cluster, place, committed=True) == []
            await slots.append(await slots.take(), {place: [new("next")]})
            assert [each.value for each in await read(cluster, place, committed=True)] == [b"next"]
            await slots.close()

    asyncio.run(play())


def test_an_answer_that_is_lost_is_asked_for_again_and_nothing_is_doubled(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place,) = await new_topic(cluster)
            send, lost = cluster.send, set[str]()

            async def once_lost(node: int, request: object, purpose: str = "") -> object:
                answer = await send(node, request, purpose)
                kind = type(request).__name__
                if kind in {"Produce", "EndTxnRequest"} and kind not in lost:
                    lost.add(kind)
                    raise KafkaError.silent("here", "its answer is lost")
                return answer

            cluster.send = once_lost  # type: ignore[method-assign]
            producer = IdempotentProducer(cluster)
            assert await producer.append(place, [new("plain")]) == 0
            assert await producer.append(place, [new("plain too")]) == 1
            lost.clear()
            slots = TransactionalSlots(cluster, slot_ids(1))
            assert await slots.append(await slots.take(), {place: [new("keyed")]}) == {place: 2}
            values = [each.value for each in await read(cluster, place, committed=True)]
            assert values == [b"plain", b"plain too", b"keyed"]
            await asyncio.gather(producer.close(), slots.close())

    asyncio.run(play())


def test_an_append_whose_time_ends_is_in_doubt_and_those_behind_it_go_on(kafka: Brokers) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place,) = await new_topic(cluster)
            producer = IdempotentProducer(cluster, timeout_ms=1500)
            await producer.append(place, [new("before")])
            send, silent = cluster.send, True

            async def unanswered(node: int, request: object, purpose: str = "") -> object:
                answer = await send(node, request, purpose)
                if silent and type(request).__name__ == "Produce":
                    raise KafkaError.silent("here", "its answer is lost")
                return answer

            cluster.send = unanswered  # type: ignore[method-assign]
            doubtful = asyncio.create_task(producer.append(place, [new("in doubt")]))
            await asyncio.sleep(0)
            behind = asyncio.create_task(producer.append(place, [new("behind")]))
            with pytest.raises(KafkaError) as refused:
                await doubtful
            assert (refused.value.name, refused.value.definite) == ("NOT_ANSWERED", False)
            silent = False
            await behind
            values = [each.value for each in await read(cluster, place)]
            assert values == [b"before", b"in doubt", b"behind"], "once each: the batch was repeated as it was"
            await producer.close()

    asyncio.run(play())


def test_a_silent_broker_ends_each_call_within_its_time(kafka: Brokers) -> None:
    """An answer may take ten minutes here; a call ends after 0.3 seconds."""

    async def play() -> None:
        settings = KafkaSettings(kafka.address, request_timeout_ms=600_000, call_timeout_ms=10_000)
        cluster = KafkaCluster(settings)
        await cluster.start()
        _, (place, other) = await new_topic(cluster, 2)
        producer = IdempotentProducer(cluster)
        await producer.append(place, [new("before")])
        cluster.settings, producer._timeout_ms = dataclasses.replace(settings, call_timeout_ms=300), 300
        kafka.pause(1)
        try:
            calls = [cluster.topics(), producer.append(place, [new("sent")]), producer.append(place, [new("behind")])]
            ends, *faults = await asyncio.gather(
                cluster.list_offsets([place, other], "latest"), *calls, ask_kafka(cluster), return_exceptions=True
            )
            assert isinstance(ends, dict)
            for fault in (*ends.values(), *faults):
                assert isinstance(fault, KafkaError | StorageError)
                assert kafka.address in str(fault)
            definite = [isinstance(fault, KafkaError) and fault.definite for fault in faults[1:3]]
            assert definite == [False, True], "the one behind found no producer id"
        finally:
            kafka.resume(1)
        cluster.settings, producer._timeout_ms = settings, 30_000
        await producer.append(place, [new("after")])
        values = [each.value for each in await read(cluster, place)]
        assert (values[0], values[-1], len({*values})) == (b"before", b"after", len(values))
        await producer.close()
        await cluster.close()

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_refused_connection_is_no_doubt() -> None:
    async def play() -> None:
        cluster = KafkaCluster(KafkaSettings("127.0.0.1:1", call_timeout_ms=200))
        producer = IdempotentProducer(cluster, timeout_ms=200)
        with pytest.raises(KafkaError) as refused:
            await producer.append(Place(str(uuid.uuid4()), 0), [new("x")])
        assert (refused.value.name, refused.value.definite) == ("NOT_REACHED", True)
        with pytest.raises(StorageError, match=r"Kafka cannot be used now: .*127\.0\.0\.1:1 is not reached"):
            await ask_kafka(cluster)
        await cluster.close()

    asyncio.run(play())


def test_batches_for_a_topic_and_for_the_one_before_it_of_its_name_are_both_answered() -> None:
    async def play() -> None:
        cluster = KafkaCluster(KafkaSettings("127.0.0.1:1"))
        sender = Sender(cluster, 1)
        sent = [sender.send(Place(str(uuid.uuid4()), 0), "t", b"") for _ in range(2)]
        answers = await asyncio.gather(*sent, return_exceptions=True)
        assert all(isinstance(each, KafkaError) for each in answers)
        await cluster.close()

    asyncio.run(asyncio.wait_for(play(), 10))


@pytest.mark.parametrize("together", [2, 3])
def test_batches_in_company_share_a_produce_and_a_lone_one_needs_no_task(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        cluster = KafkaCluster(KafkaSettings("127.0.0.1:1"))
        sender = Sender(cluster, 1)
        produces: list[tuple[int, bool]] = []

        async def send(node: int, request: Produce, purpose: str = "") -> list[tuple[str, int, int, int, int, int]]:
            ((name, batches),) = request.values[2].items()
            produces.append((len(batches), asyncio.current_task() is caller))
            await asyncio.sleep(0)
            return [(name, partition, 0, 7, -1, 0) for partition, _ in batches]

        monkeypatch.setattr(cluster, "send", send)
        caller = asyncio.current_task()
        for _ in range(2):
            sent = [sender.send(Place("t", partition), "t", b"") for partition in range(together)]
            assert [each.offset for each in await asyncio.gather(*sent)] == [7] * together
        assert [count for count, _ in produces] == [1, together - 1, together], "the first one goes at once"
        produces.clear()
        for _ in range(2):
            await sender.send(Place("t", 0), "t", b"")
        assert produces == [(1, False), (1, True)]
        await cluster.close()

    asyncio.run(asyncio.wait_for(play(), 10))


def test_a_batch_that_is_refused_for_good_ends_its_transaction_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another leader may be away for long. The refusal of the batch is the error, and not that."""

    async def play() -> None:
        cluster = KafkaCluster(KafkaSettings("127.0.0.1:1"))
        topic = KafkaTopic("t", str(uuid.uuid4()), False, (KafkaPartition(0, 1, 0), KafkaPartition(1, 2, 0)))
        cluster._topics[topic.id] = topic

        async def send(node: int, request: object, purpose: str = "") -> object:
            if node == 1:
                raise KafkaError.silent("here", "it is away")
            return [("t", 1, 87, -1, -1, -1)]

        monkeypatch.setattr(cluster, "send", send)
        batches = {Place(topic.id, partition): b"" for partition in range(2)}
        with pytest.raises(KafkaError) as refused:
            await Lane(cluster, "id", 1000)._produce(Slot("id", 1, 0), batches, Patience())
        assert refused.value.name == "INVALID_RECORD"
        await cluster.close()

    asyncio.run(asyncio.wait_for(play(), 10))

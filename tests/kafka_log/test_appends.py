"""Appends of a gateway to a real broker: plain, with a key, and after a crash between any two of their steps."""

import asyncio
import gc
import json
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from sharequeue_gateway.kafka_log import intent_store, once
from sharequeue_gateway.kafka_log.log import KafkaRecordLog
from sharequeue_gateway.record_log.locked_append import answer_of
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend

from sharequeue.protocol.errors import StorageError
from sharequeue.repeats import Every
from sharequeue_http.forms.errors import ApiError, InvalidRequest, RequestTimedOut, TooLarge
from sharequeue_kafka.cluster import Place
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.transactions import Lane, Slot, TransactionalSlots
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, foreign, new_topic, read
from tests.kafka_log.record_logs import open_log
from tests.kafka_log.test_record_log import run

TAILS = [b',"timestamp_ms":1,"key":"k","value":{"n": 1}}', b',"timestamp_ms":2,"key":null,"value_base64":"AP8="}']


@pytest.fixture(scope="module")
def database(new_database: Callable[[], str]) -> str:
    return new_database()


def key_of(place: Place, name: str, fingerprint: bytes = b"1") -> IdempotencyKey:
    return IdempotencyKey("", "/p", place.topic_id, name, fingerprint, lambda bases: b'{"offset":%d}' % bases[0])


async def produce(log: KafkaRecordLog, place: Place, name: str, fingerprint: bytes = b"1") -> AppendResult:
    appends = [PartitionAppend(*place, list(TAILS), 2)]
    return await log.appender.append(appends, key_of(place, name, fingerprint))


def test_records_are_appended_byte_for_byte_and_a_key_appends_once(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, (place,) = await new_topic(cluster)
            assert (await one.appender.append([PartitionAppend(*place, list(TAILS), 2)])).base_offsets == [0]
            answers = await asyncio.gather(produce(one, place, "a"), produce(two, place, "a"), produce(one, place, "a"))
            assert {answer.answer for answer in answers} == {b'{"offset":2}'}
            with pytest.raises(InvalidRequest, match="another body"):
                await produce(two, place, "a", b"2")
            records = await read(cluster, place, committed=True)
            assert [(each.key, each.value) for each in records] == [(b"k", b'{"n": 1}'), (None, b"\0\xff")] * 2

    run(play())


def test_an_append_that_fails_behind_a_caller_who_left_says_so_to_nobody(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        unheard: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        async with open_log(kafka, database) as log:
            caller = asyncio.create_task(produce(log, Place(str(uuid.uuid4()), 0), "left"))
            await asyncio.sleep(0)
            (work,) = log.once._tasks
            caller.cancel()
            await asyncio.wait([caller, work])
            del caller, work
            gc.collect()
            assert unheard == []

    run(play())


class Killed(BaseException):
    """Stands for the end of a process: nothing behind it happens."""


async def cut_off_at(step: str, log: KafkaRecordLog, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Append with the key `step`, and end at this step: when the intent is durable, or after the commit."""
    append = log.once._slots.append

    async def cut_off(*arguments: Any, **named: Any) -> Any:
        if step == "commit":
            await append(*arguments, **named)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(log.once._slots, "append", cut_off)
        with pytest.raises(Killed):
            await produce(log, place, step)


@pytest.mark.parametrize("step", ["intent", "commit"])
def test_an_append_that_was_cut_off_happens_once(
    kafka: Brokers, database: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, (place,) = await new_topic(cluster)
            await cut_off_at(step, one, place, monkeypatch)
            assert (await produce(two, place, step)).answer == b'{"offset":0}'
            assert len(await read(cluster, place, committed=True)) == len(TAILS)
            assert await two.database.query(intent_store.find_old, 0, 9) == []

    run(play())


def test_an_append_whose_end_is_not_in_the_log_is_not_answered(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash of the broker that has confirmed the commit: the transaction is open, and a repeat aborts it."""

    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as log:
            _, (place,) = await new_topic(cluster)
            with monkeypatch.context() as patched:

                async def confirmed(*_: Any) -> None:
                    patched.setattr(log.once, "_deadline_s", 0.0)  # from now on

                patched.setattr(Lane, "_commit", confirmed)
                with pytest.raises(RequestTimedOut, match="its end is not in the log yet") as refused:
                    await produce(log, place, "lost")
                assert not refused.value.definite
            offset = json.loads((await produce(log, place, "lost")).answer or b"")["offset"]
            assert offset == len(TAILS) + 1  # behind the records and the marker of the first try
            assert [each.offset for each in await read(cluster, place, committed=True)] == [offset, offset + 1]

    run(play())


def test_an_append_behind_a_foreign_transaction_is_answered(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        name_of_producer = f"foreign-{uuid.uuid4()}"
        async with (
            cluster_of(kafka) as cluster,
            open_log(kafka, database) as log,
            foreign(kafka, transactional_id=name_of_producer) as producer,
        ):
            name, (place,) = await new_topic(cluster)
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"open")
            assert (await produce(log, place, "behind")).answer == b'{"offset":1}'
            await producer.commit_transaction()

    run(play())


def test_a_fenced_append_writes_nothing(kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that was paused behind its intent goes on when another one has settled it."""

    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, (place,) = await new_topic(cluster)
            append, paused, goes_on = one.once._slots.append, asyncio.Event(), asyncio.Event()
            faults: list[KafkaError] = []

            async def waiting(*arguments: Any, **named: Any) -> Any:
                paused.set()
                await goes_on.wait()
                try:
                    return await append(*arguments, **named)
                except KafkaError as fault:
                    faults.append(fault)
                    raise

            monkeypatch.setattr(one.once._slots, "append", waiting)
            first = asyncio.create_task(produce(one, place, "paused"))
            await paused.wait()
            second = await produce(two, place, "paused")
            goes_on.set()
            assert (await first).answer == second.answer == b'{"offset":0}'
            assert len(await read(cluster, place, committed=True)) == len(TAILS)
            assert [fault.definite for fault in faults] == [True]

    run(play())


def test_a_repeat_completes_an_append_that_kafka_has_ended_in_one_partition_only(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka 4.4 may when a broker is killed that has confirmed the commit. A request of other records does not."""

    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, places = await new_topic(cluster, 2)
            append = one.once._slots.append

            async def append_in_part(slot: Slot, parts: Mapping[Place, Any], **named: Any) -> Any:
                await append(slot, {places[1]: parts[places[1]]}, **named)
                raise Killed

            def answer_of(ends: Sequence[int]) -> bytes:
                return b'{"offset":%d} {"offset":%d}' % tuple(ends)

            async def ask(log: KafkaRecordLog, body: bytes = b"1") -> AppendResult:
                both = [PartitionAppend(*place, list(TAILS), 2) for place in places]
                key = IdempotencyKey("", "/p", places[0].topic_id, "part", body, answer_of)
                return await log.appender.append(both, key)

            monkeypatch.setattr(one.once._slots, "append", append_in_part)
            with pytest.raises(Killed):
                await ask(one)
            ((left, _),) = await two.database.query(intent_store.find_old, 0, 9)
            with pytest.raises(StorageError, match="in some partitions only"):
                await two.once.settle(left, 1.0)
            monkeypatch.setattr(once, "GRACE_MS", 0)
            with pytest.raises(StorageError, match="in some partitions only"):
                await ask(two, b"2")
            assert (await ask(two)).answer == answer_of([0, 0])
            assert [len(await read(cluster, place, committed=True)) for place in places] == [2, 2]
            assert await two.database.query(intent_store.find_old, 0, 9) == []

    run(play())


@pytest.mark.parametrize("step", ["intent", "commit"])
def test_an_append_that_retention_may_have_removed_is_unknown_and_not_repeated(
    kafka: Brokers, database: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, (place,) = await new_topic(cluster)
            await cut_off_at(step, one, place, monkeypatch)
            await two.appender.append([PartitionAppend(*place, list(TAILS), 2)])
            await two.delete_records(place.topic_id, {0: -1})
            for log in (two, one, two):  # the key is known from then on
                with pytest.raises(ApiError, match="it is unknown whether an earlier try") as refused:
                    await produce(log, place, step)
                fault = refused.value
                assert (fault.code, fault.retriable, fault.definite) == ("UNKNOWN_SERVER_ERROR", False, False)
            assert await two.database.query(intent_store.find_old, 0, 9) == []
            start = (await cluster.list_offsets([place], "earliest"))[place]
            assert not isinstance(start, KafkaError)
            assert await read(cluster, place, start.offset) == []

    run(play())


def test_an_append_whose_first_records_are_deleted_keeps_its_offsets(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, (place,) = await new_topic(cluster)
            await cut_off_at("commit", one, place, monkeypatch)
            await two.delete_records(place.topic_id, {0: 1})
            assert (await produce(two, place, "commit")).answer == b'{"offset":0}'

    run(play())


def test_a_log_start_that_passes_a_look_under_way_is_seen_by_the_next_try(
    kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "GRACE_MS", 0)

    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, (place,) = await new_topic(cluster)
            await cut_off_at("commit", one, place, monkeypatch)
            await two.appender.append([PartitionAppend(*place, list(TAILS), 2)])
            list_offsets = two.cluster.list_offsets

            async def before_it_moves(places: Sequence[Place], which: Any, **named: Any) -> Any:
                found = await list_offsets(places, which, **named)
                if which == "earliest":
                    patched.undo()
                    await cluster.delete_records({place: -1})
                return found

            with monkeypatch.context() as patched:
                patched.setattr(two.cluster, "list_offsets", before_it_moves)
                with pytest.raises(StorageError, match="OFFSET_OUT_OF_RANGE") as refused:
                    await produce(two, place, "commit")
            assert refused.value.definite
            with pytest.raises(ApiError, match="it is unknown whether an earlier try"):
                await produce(two, place, "commit")

    run(play())


def test_the_sweep_settles_what_was_left_open(kafka: Brokers, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "SWEPT_MS", 0)
    monkeypatch.setattr(once, "SWEEP_PAUSE_S", 0.05)

    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one:
            _, (place,) = await new_topic(cluster)
            await cut_off_at("commit", one, place, monkeypatch)
            async for _ in Every(0.05):
                if (first := await one.database.query(answer_of, key_of(place, "commit"))) is not None:
                    break
            assert first is not None
            assert first.answer == b'{"offset":0}'
            assert await one.database.query(intent_store.find_old, 0, 9) == []

    run(play())


def test_a_part_that_is_refused_refuses_the_other_parts_and_no_other_append(kafka: Brokers, database: str) -> None:
    """All are in one transaction, so each is tried again by itself."""
    large = b',"timestamp_ms":1,"key":null,"value":"%s"}' % random.Random(1).randbytes(2000).hex().encode()

    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as log:
            _, places = await new_topic(cluster, 2, max_message_bytes="1000")
            slots = log.once._slots = TransactionalSlots(cluster, [f"slot-{uuid.uuid4()}"])
            first = asyncio.create_task(produce(log, places[0], "first"))
            good = [PartitionAppend(*place, list(TAILS), 2) for place in places]
            parts = [good[0], PartitionAppend(*places[1], [large], 2)]
            appends = [(good, "good"), (parts, "bad"), (good[:1], "also good")]
            asked = [log.appender.append(part, key_of(places[0], name)) for part, name in appends]
            made, refused, also = await asyncio.gather(*asked, return_exceptions=True)
            await first
            assert isinstance(refused, TooLarge)
            assert isinstance(made, AppendResult)
            assert isinstance(also, AppendResult)
            assert await log.database.query(answer_of, key_of(places[0], "bad")) is None
            assert [len(await read(cluster, place, committed=True)) for place in places] == [6, 2]
            assert await log.database.query(intent_store.find_old, 0, 9) == []
            await slots.close()

    run(play())


def test_a_log_that_closes_leaves_no_append_running(kafka: Brokers, database: str) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster:
            _, (place,) = await new_topic(cluster)
            async with open_log(kafka, database) as log:
                under_way = asyncio.Event()

                async def endless(*_: Any, **__: Any) -> Any:
                    under_way.set()
                    await asyncio.Event().wait()

                log.once._slots.append = endless  # type: ignore[method-assign]
                asked = asyncio.create_task(produce(log, place, "closed"))
                await under_way.wait()
            assert not log.once._tasks
            await asyncio.wait([asked])

    run(play())

"""Appends of a gateway to a real broker: plain, with a key, and after a crash between any two of their steps."""

import asyncio
import gc
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sharequeue_gateway.kafka_log import intent_store
from sharequeue_gateway.kafka_log.log import KafkaRecordLog
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend

from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_kafka.cluster import Place
from sharequeue_kafka.errors import KafkaError
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, new_topic, read
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


@pytest.mark.parametrize("step", ["intent", "commit"])
def test_an_append_that_was_cut_off_happens_once(
    kafka: Brokers, database: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, open_log(kafka, database) as one, open_log(kafka, database) as two:
            _, (place,) = await new_topic(cluster)
            append = one.once._slots.append

            async def cut_off(*arguments: Any, **named: Any) -> Any:
                if step == "commit":
                    await append(*arguments, **named)
                raise Killed

            monkeypatch.setattr(one.once._slots, "append", cut_off)
            with pytest.raises(Killed):
                await produce(one, place, step)
            monkeypatch.undo()
            assert (await produce(two, place, step)).answer == b'{"offset":0}'
            assert len(await read(cluster, place, committed=True)) == len(TAILS)
            assert await two.database.query(intent_store.find_old, 0, 9) == []

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

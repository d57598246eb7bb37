"""The Python client against the real services: what users are promised, what is refused, and what survives crashes."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from sharequeue.client import (
    AcknowledgementError,
    ApiError,
    IllegalState,
    NewRecord,
    Produced,
    Producer,
    ShareConsumer,
    fetching,
    sync,
)
from sharequeue.client.acknowledging import Settled
from sharequeue.client.deliveries import ACCEPT, Delivery
from sharequeue.protocol import messages
from sharequeue.stack import Stack

NOTHING_MS = 300
"""Long enough for the service to hand out what it has."""


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    """A machine under load is no dead Redis: what a killed gateway leaves there must be there."""
    return {"SHAREQUEUE_GATEWAY_REDIS_TIMEOUT_MS": "5000"}


class Network:
    """A real TCP hop before the gateway that can lose answers: the request arrives, its answer does not."""

    def __init__(self, port: int) -> None:
        self._upstream_port = port
        self._losing: list[bytes] = []
        self.lost = asyncio.Event()
        self.requests: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._pumps: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Network":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def lose_answer_of(self, path_end: str) -> None:
        """Lose the answer of the next request whose path ends so."""
        self._losing.append(f"{path_end} HTTP/1.1".encode())
        self.lost.clear()

    def count(self, path_end: str) -> int:
        return sum(f"{path_end} HTTP/1.1".encode() in request for request in self.requests)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._upstream_port)
        except OSError:
            writer.close()
            return
        losing = asyncio.Event()

        async def requests() -> None:
            while data := await reader.read(1 << 20):
                self.requests.append(data)
                for wanted in self._losing:
                    if wanted in data:
                        self._losing.remove(wanted)
                        losing.set()
                        break
                upstream_writer.write(data)
            upstream_writer.close()

        async def answers() -> None:
            while data := await upstream_reader.read(1 << 20):
                if losing.is_set():
                    self.lost.set()
                    break
                writer.write(data)
            writer.transport.abort()

        for pump in (requests(), answers()):
            task = asyncio.get_running_loop().create_task(pump)
            self._pumps.add(task)
            task.add_done_callback(self._pumps.discard)


Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def run() -> Run:
    """Runs a test's coroutine, for half a minute at most."""

    def run(test: Coroutine[Any, Any, None]) -> None:
        asyncio.run(asyncio.wait_for(test, 30))

    return run


def port_of(stack: Stack) -> int:
    return int(stack.url.rsplit(":", 1)[1])


@contextlib.asynccontextmanager
async def consumers(stack: Stack, group: str, *topics: str, **options: Any) -> AsyncIterator[ShareConsumer]:
    async with ShareConsumer(stack.url, group, topics, **options) as consumer:
        yield consumer


async def produce(stack: Stack, topic: str, *values: Any, **options: Any) -> None:
    async with Producer(stack.url) as producer:
        await producer.send_many(topic, [NewRecord(value, **options) for value in values])


async def seen_by_another(
    stack: Stack, group: str, topic: str, timeout_ms: float = NOTHING_MS
) -> list[tuple[int, int]]:
    """What another member gets now, as (offset, delivery count); it is given back."""
    async with ShareConsumer(stack.url, group, [topic], acknowledgement="explicit") as other:
        records = await other.poll(timeout_ms)
        for record in records:
            other.acknowledge(record, "release")
        return [(record.offset, record.delivery_count) for record in records]


async def until(condition: Callable[[], bool], seconds: float = 15) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for happens elsewhere
            await asyncio.sleep(0.02)


def ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def configure(client: httpx.Client, group: str, **config: Any) -> None:
    ask(client, "PATCH", f"/v1/share-groups/{group}/config", {key.replace("_", "."): config[key] for key in config})


async def restart_gateway(stack: Stack) -> None:
    gateway = stack.service("gateway")
    gateway.kill()
    gateway.start()
    await asyncio.to_thread(_wait_ready, stack)


def _wait_ready(stack: Stack) -> None:
    deadline = time.monotonic() + 20
    while not stack.service("gateway").ready():
        stack.check()
        assert time.monotonic() < deadline, "the gateway does not become ready"


# Producer


def test_concurrent_sends_travel_together_and_keep_their_order(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        async with Network(port_of(stack)) as network, Producer(network.url) as producer:
            places = await asyncio.gather(*(producer.send(name, {"n": n}) for n in range(300)))
            assert places == [Produced(name, 0, n) for n in range(300)]
            assert network.count(f"/v1/topics/{name}/records") <= 3
            waiting = [await producer.send_soon(name, n) for n in range(2500)]
            await producer.flush()
            assert [(await record).offset for record in waiting] == list(range(300, 2800))
        async with consumers(stack, name, name, max_records=2000) as consumer:
            assert [record.value for record in await consumer.poll()][300:] == list(range(1700))

    run(main())


def test_every_kind_of_record_comes_back_as_it_was(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        records = [
            NewRecord({"id": 1, "ü": [None, 1.5, True]}, "cust-9", {"trace": "x"}, timestamp_ms=1763640000000),
            NewRecord(b"\x00\xff", b"\xfe"),
            NewRecord(None, "gone"),
            NewRecord(msgspec.Raw(b'{"n": 1.10, "big":123456789012345678901234567890}')),
            NewRecord(""),
            NewRecord(0),
        ]
        async with Producer(stack.url) as producer:
            places = await producer.send_many(name, records)
            assert [place.offset for place in places] == [0, 1, 2, 3, 4, 5]
        async with consumers(stack, name, name) as consumer:
            got = await consumer.poll()
            assert [record.value for record in got[:3]] == [records[0].value, b"\x00\xff", None]
            assert [record.key for record in got] == ["cust-9", b"\xfe", "gone", None, None, None]
            assert (got[0].headers, got[0].timestamp_ms) == ({"trace": "x"}, 1763640000000)
            assert got[3].json == b'{"n": 1.10, "big":123456789012345678901234567890}'
            assert [record.value for record in got[4:]] == ["", 0]
            assert (got[0].topic, got[0].partition, got[0].delivery_count) == (name, 0, 1)
            assert 0 < got[0].lock_remaining_ms <= 30_000

    run(main())


def test_a_record_that_is_refused_does_not_take_its_neighbours_with_it(
    run: Run, stack: Stack, client: httpx.Client, name: str
) -> None:
    ask(client, "POST", "/v1/topics", {"name": name, "config": {"max.message.bytes": 1000}})

    async def main() -> None:
        async with Producer(stack.url) as producer:
            values = ["x" * 2000 if n in (3, 7) else n for n in range(10)]
            outcomes = await asyncio.gather(*(producer.send(name, value) for value in values), return_exceptions=True)
            refused = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
            assert [error.error.code for error in refused] == ["MESSAGE_TOO_LARGE"] * 2
            assert [isinstance(outcome, Produced) for outcome in outcomes].count(True) == 8
            with pytest.raises(ApiError) as whole:
                await producer.send_many(name, ["fits", "x" * 2000])
            assert whole.value.definite
        async with consumers(stack, name, name) as consumer:
            assert [record.value for record in await consumer.poll()] == [0, 1, 2, 4, 5, 6, 8, 9]

    run(main())


def test_what_cannot_be_sent_at_all_is_told_to_its_sender_alone(run: Run, stack: Stack, name: str) -> None:
    """It never gets into a request: those of others would fail with it, and those that wait behind."""

    async def main() -> None:
        async with Producer(stack.url, linger_ms=200) as producer:
            before = await producer.send_soon(name, 1)
            for options in ({"key": "\ud800"}, {"headers": {"h": "\ud800"}}, {"partition": object()}):
                with pytest.raises((TypeError, ValueError)):
                    await producer.send_soon(name, 2, **options)
            after = await producer.send_soon(name, 3)
            assert [(await before).offset, (await after).offset] == [0, 1]

    run(main())


def test_a_lost_answer_of_produce_appends_nothing_twice(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        async with Network(port_of(stack)) as network, Producer(network.url) as producer:
            network.lose_answer_of(f"/v1/topics/{name}/records")
            sending = [asyncio.create_task(producer.send(name, n)) for n in range(5)]
            await network.lost.wait()
            assert (await producer.send(name, "while the first request is tried again")).offset == 5
            assert [(await place).offset for place in sending] == [0, 1, 2, 3, 4]
        async with consumers(stack, name, name) as consumer:
            assert [record.value for record in await consumer.poll()][:5] == [0, 1, 2, 3, 4]

    run(main())


def test_what_producing_refuses(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        async with Producer(stack.url) as producer:
            with pytest.raises(ApiError) as invalid:
                await producer.send("no such name", 1)
            assert invalid.value.error.code == "INVALID_TOPIC_EXCEPTION"
            assert invalid.value.problem is not None
            assert invalid.value.problem.request_id
            with pytest.raises(ApiError, match="no partition 7") as unknown:
                await producer.send(name, 1, partition=7)
            assert unknown.value.status == 404
            with pytest.raises(ValueError, match="nan"):
                await producer.send(name, float("nan"))
            with pytest.raises(TypeError):
                await producer.send(name, object())
            await producer.send_soon("no such name", 1)
            with pytest.raises(ApiError, match="topic name"):
                await producer.flush()
            await producer.flush()
        with pytest.raises(RuntimeError, match="closed"):
            await producer.send(name, 1)

    run(main())


def test_the_buffer_is_bounded_and_large_input_is_cut_into_requests(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        async with (
            Network(port_of(stack)) as network,
            Producer(network.url, max_batch_records=10, max_buffer_bytes=2000) as producer,
        ):
            places = await producer.send_many(name, ["x" * 50] * 95)
            assert [place.offset for place in places] == list(range(95))
            assert network.count(f"/v1/topics/{name}/records") == 10
            for n in range(100):
                await producer.send_soon(name, n)
                assert producer._buffered_bytes <= 2000
        async with consumers(stack, name, name) as consumer:
            assert [record.value for record in await consumer.poll()][95:] == list(range(100))

    run(main())


# Implicit acknowledgement


def test_the_next_poll_accepts_what_the_last_one_returned(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(5))
        async with consumers(stack, name, name, max_records=3) as consumer:
            assert [record.value for record in await consumer.poll()] == [0, 1, 2]
            assert [record.value for record in await consumer.poll()] == [3, 4]
            with pytest.raises(IllegalState, match="implicitly"):
                consumer.acknowledge(next(iter(consumer._held)).records[3])
        assert await seen_by_another(stack, name, name) == [(3, 2), (4, 2)]  # close released them

    run(main())


def test_commit_accepts_and_says_how_much(run: Run, stack: Stack, client: httpx.Client, name: str) -> None:
    ask(client, "POST", "/v1/topics", {"name": name, "partitions": 2})

    async def main() -> None:
        await produce(stack, name, 1, 2, partition=0)
        await produce(stack, name, 3, partition=1)
        async with consumers(stack, name, name) as consumer:
            got = await consumer.poll()
            while len(got) < 3:
                got += await consumer.poll()
            assert await consumer.commit() in ({(name, 0): 2, (name, 1): 1}, {(name, 0): 2}, {(name, 1): 1})
            assert await consumer.commit() == {}
        assert await seen_by_another(stack, name, name) == []

    run(main())


def test_leaving_an_iteration_keeps_what_was_done_and_releases_the_rest(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(5))
        async with consumers(stack, name, name) as consumer:
            async for record in consumer:
                if record.value == 2:
                    break
        assert await seen_by_another(stack, name, name) == [(2, 2), (3, 2), (4, 2)]
        async with consumers(stack, name, name) as consumer:
            async for record in consumer:
                if record.value == 3:
                    await consumer.commit()
                    break
        assert await seen_by_another(stack, name, name) == [(4, 4)]

    run(main())


# Explicit acknowledgement


def test_each_record_gets_a_word_before_the_next_poll(run: Run, stack: Stack, client: httpx.Client, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(6))
        async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
            records = await consumer.poll()
            for record in records[:5]:
                consumer.acknowledge(record)
            with pytest.raises(IllegalState, match="1 records are not acknowledged"):
                await consumer.poll()
            consumer.acknowledge(records[1], "release", reason="later")
            consumer.acknowledge(records[2], "reject", reason="bad")
            consumer.acknowledge(records[5], "release", delay_ms=3_600_000)
            again = await consumer.poll()
            assert [(record.offset, record.delivery_count) for record in again] == [(1, 2)]
            with pytest.raises(IllegalState, match="acknowledged before"):
                consumer.acknowledge(records[0])
            with pytest.raises(ValueError, match="no acknowledge type"):
                consumer.acknowledge(again[0], "forget")  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="reason goes with"):
                consumer.acknowledge(again[0], "accept", reason="why")
            consumer.acknowledge(again[0])
            assert await consumer.commit() == {(name, 0): 1}
        async with consumers(stack, f"{name}-dlq", f"dlq.{name}") as dead:
            (letter,) = await dead.poll()
            assert (letter.value, letter.headers["__dlq.errors.reason"]) == (2, "bad")
        (partition,) = ask(client, "GET", f"/v1/share-groups/{name}/in-flight")["partitions"]
        (waiting,) = partition["batches"]
        assert (waiting["first_offset"], waiting["last_offset"], "available_at_ms" in waiting) == (5, 5, True)

    run(main())


def test_ee_007_words_in_two_steps_and_a_record_that_comes_between(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(3))
        async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
            first = await consumer.poll()
            assert [record.offset for record in first] == [0, 1, 2]
            for record in first[:2]:
                consumer.acknowledge(record)
            covered = sum((await consumer.commit()).values())
            consumer.acknowledge(first[2])
            await produce(stack, name, 3)
            (last,) = await consumer.poll()
            assert last.offset == 3
            consumer.acknowledge(last)
            covered += sum((await consumer.commit()).values())
            assert covered + 1 == 4, "and the one that travelled with the poll"
        assert await seen_by_another(stack, name, name) == []

    run(main())


def test_deferred_words_may_come_after_many_polls(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(4))
        async with consumers(stack, name, name, acknowledgement="deferred", max_records=2) as consumer:
            first = await consumer.poll()
            second = await consumer.poll()
            consumer.acknowledge(first[1])
            consumer.acknowledge(second[0])
            assert await consumer.poll(NOTHING_MS) == []
            consumer.acknowledge(first[0])
            assert await consumer.commit() == {(name, 0): 1}
        assert await seen_by_another(stack, name, name) == [(3, 2)]

    run(main())


def test_words_are_sent_once_per_run_of_offsets() -> None:
    batch = messages.FetchedBatch(
        topic="t",
        partition=0,
        first_offset=10,
        last_offset=19,
        delivery_count=2,
        lock_expires_at_ms=0,
        records=[messages.Record(offset=offset, timestamp_ms=0) for offset in range(10, 20) if offset not in (14, 15)],
    )
    delivery = Delivery(batch)
    delivery.choose_all(ACCEPT)
    assert [(run.first_offset, run.last_offset, run.outcome.type) for run in delivery.take_chosen()] == [
        (10, 13, "accept"),
        (14, 15, "gap"),
        (16, 19, "accept"),
    ]
    assert delivery.in_flight == 3
    dense = Delivery(msgspec.structs.replace(batch, last_offset=13, records=batch.records[:4]))  # type: ignore[index]
    dense.choose_all(ACCEPT)
    (run,) = dense.take_chosen()
    message = run.message()
    assert (message.first_offset, message.last_offset, message.delivery_count, message.type) == (10, 13, 2, "accept")


def test_failed_acknowledgements_are_listed_and_the_others_applied(
    run: Run, stack: Stack, client: httpx.Client, name: str
) -> None:
    async def main() -> None:
        await produce(stack, name, *range(5))
        async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
            records = await consumer.poll()
            taken = {"topic": name, "partition": 0, "first_offset": 2, "last_offset": 3, "type": "release"}
            theft = {"member_id": consumer.member_id, "acknowledgements": [taken]}
            ask(client, "POST", f"/v1/share-groups/{name}/acknowledge", theft)
            for record in records:
                consumer.acknowledge(record, "reject" if record.offset in (2, 3) else "accept")
            with pytest.raises(AcknowledgementError, match="1 acknowledgements were not applied") as failed:
                await consumer.commit()
            (failure,) = failed.value.failures
            assert (failure.topic, failure.partition, failure.first_offset, failure.last_offset) == (name, 0, 2, 3)
            assert (failure.code, failure.type, failure.retriable) == ("INVALID_RECORD_STATE", "reject", False)
            assert await consumer.commit() == {}
        assert await seen_by_another(stack, name, name) == [(2, 2), (3, 2)]

    run(main())


def test_a_poll_whose_acknowledgements_failed_loses_no_records(
    run: Run, stack: Stack, client: httpx.Client, name: str
) -> None:
    configure(client, name, share_record_lock_duration_ms=1000)

    async def main() -> None:
        await produce(stack, name, 0)
        async with consumers(stack, name, name, renew=False) as consumer:
            await consumer.poll()
            async with consumers(stack, name, name) as other:
                assert [record.delivery_count for record in await other.poll(5000)] == [2]
                await produce(stack, name, 1)
                with pytest.raises(AcknowledgementError):
                    await consumer.poll(5000)
                assert [(record.value, record.delivery_count) for record in await consumer.poll(5000)] == [(1, 1)]
                assert await consumer.commit() == {(name, 0): 1}

    run(main())


def test_commits_in_the_background_report_to_their_callback(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(4))
        reports: list[tuple[dict[tuple[str, int], int], Exception | None]] = []
        async with consumers(stack, name, name, acknowledgement="explicit", max_records=2) as consumer:
            first = await consumer.poll()
            for record in first:
                consumer.acknowledge(record)
            consumer.commit_async(lambda committed, error: reports.append((committed, error)))
            second = await consumer.poll()
            await until(lambda: len(reports) == 1)
            assert reports == [({(name, 0): 2}, None)]
            for record in second:
                consumer.acknowledge(record)
            polling = asyncio.create_task(consumer.poll(20_000))
            await asyncio.sleep(0)
            with pytest.raises(IllegalState, match="under way"):
                await consumer.poll()
            consumer.commit_async(lambda committed, error: reports.append((committed, error)))
            await until(lambda: len(reports) == 2)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
        assert await seen_by_another(stack, name, name) == []

    run(main())


# Locks


def test_locks_are_renewed_while_records_are_being_processed(
    run: Run, stack: Stack, client: httpx.Client, name: str
) -> None:
    configure(client, name, share_record_lock_duration_ms=1000)

    async def main() -> None:
        await produce(stack, name, *range(3))
        async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
            records = await consumer.poll()
            consumer.acknowledge(records[1])
            await consumer.commit()
            assert await seen_by_another(stack, name, name, 2500) == []
            assert records[0].lock_remaining_ms > 0
            consumer.acknowledge(records[0])
            consumer.acknowledge(records[2])
            assert await consumer.commit() == {(name, 0): 2}
        idle = {"acknowledgement": "explicit", "max_poll_interval_ms": 1}
        await produce(stack, name, "left alone")
        async with consumers(stack, name, name, **idle) as consumer:
            assert len(await consumer.poll()) == 1
            assert await seen_by_another(stack, name, name, 5000) == [(3, 2)]

    run(main())


def test_what_others_have_settled_is_renewed_no_more(
    run: Run, stack: Stack, client: httpx.Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The group is past it and ignores what is said of it: a lock that is asked for then is none."""
    configure(client, name, share_record_lock_duration_ms=1000)

    async def main() -> None:
        await produce(stack, name, 0)
        async with consumers(stack, name, name, acknowledgement="explicit", member_id="m") as consumer:
            (record,) = await consumer.poll()
            said = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 0, "type": "accept"}
            body = {"member_id": "m", "acknowledgements": [said]}
            path = f"/v1/share-groups/{name}/acknowledge"
            (await asyncio.to_thread(client.post, path, json=body)).raise_for_status()
            await until(lambda: bool(record.delivery.lost))
        assert f"the lock of {name}-0 offsets 0 to 0 was lost" in caplog.text

    run(main())


def test_a_group_may_forbid_renewing(run: Run, stack: Stack, client: httpx.Client, name: str) -> None:
    configure(client, name, share_record_lock_duration_ms=1000, share_renew_acknowledge_enable=False)

    async def main() -> None:
        await produce(stack, name, 0)
        async with consumers(stack, name, name, acknowledgement="explicit") as consumer:
            (record,) = await consumer.poll()
            assert await seen_by_another(stack, name, name, 5000) == [(0, 2)]
            consumer.acknowledge(record, "renew")
            with pytest.raises(AcknowledgementError, match="renewing"):
                await consumer.poll(0)

    run(main())


def test_a_record_renewed_by_the_user_comes_again_until_it_has_a_last_word(
    run: Run, stack: Stack, client: httpx.Client, name: str
) -> None:
    configure(client, name, share_record_lock_duration_ms=2000)

    async def main() -> None:
        await produce(stack, name, *range(3))
        async with consumers(stack, name, name, acknowledgement="explicit", renew=False) as consumer:
            records = await consumer.poll()
            await until(lambda: records[0].lock_remaining_ms < 1000)
            consumer.acknowledge(records[0], "accept")
            consumer.acknowledge(records[1], "renew")
            consumer.acknowledge(records[2], "renew")
            again = await consumer.poll()
            assert [(record.offset, record.delivery_count) for record in again] == [(1, 1), (2, 1)]
            assert again[0].lock_remaining_ms > 1000
            with pytest.raises(IllegalState, match="2 records"):
                await consumer.poll()
            for record in again:
                consumer.acknowledge(record)
            assert await consumer.commit() == {(name, 0): 2}

    run(main())


# Lost answers, lost sessions, crashes


def test_a_lost_answer_of_a_poll_is_asked_for_again(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(6))
        async with (
            Network(port_of(stack)) as network,
            ShareConsumer(network.url, name, [name], max_records=3) as consumer,
        ):
            for values in ([0, 1, 2], [3, 4, 5]):  # the one that opens the session; one with acknowledgements
                network.lose_answer_of(f"/v1/share-groups/{name}/fetch")
                records = await consumer.poll()
                assert network.lost.is_set()
                assert [(record.value, record.delivery_count) for record in records] == [(n, 1) for n in values]
            await consumer.commit()
        assert await seen_by_another(stack, name, name) == []

    run(main())


def test_a_lost_answer_of_a_commit_is_asked_for_again(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(4))
        async with (
            Network(port_of(stack)) as network,
            ShareConsumer(network.url, name, [name], acknowledgement="deferred") as consumer,
        ):
            records = await consumer.poll()
            consumer.acknowledge(records[1])
            consumer.acknowledge(records[2], "reject")
            network.lose_answer_of(f"/v1/share-groups/{name}/acknowledge")
            assert await consumer.commit() == {(name, 0): 2}
            assert network.lost.is_set()
            assert network.count("/acknowledge") == 2
        assert await seen_by_another(stack, name, name) == [(0, 2), (3, 2)]

    run(main())


def test_a_poll_that_is_cancelled_loses_nothing(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, 0)
        async with Network(port_of(stack)) as network, ShareConsumer(network.url, name, [name]) as consumer:
            assert [record.value for record in await consumer.poll()] == [0]
            polling = asyncio.create_task(consumer.poll(20_000))
            await until(lambda: network.count("/fetch") == 2)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            await produce(stack, name, 1)
            records = await consumer.poll()
            assert [(record.value, record.delivery_count) for record in records] == [(1, 1)]
            await consumer.commit()
        assert await seen_by_another(stack, name, name) == []

    run(main())


@pytest.mark.parametrize("epochs", [(0,), (0, 1), (0, -1)], ids=["another", "123", "122"])
def test_a_lost_session_is_opened_anew_and_no_acknowledgement_is_lost(
    run: Run, stack: Stack, client: httpx.Client, name: str, epochs: tuple[int, ...]
) -> None:
    async def main() -> None:
        await produce(stack, name, *range(3))
        async with consumers(stack, name, name, member_id="m-1", max_records=1) as consumer:
            assert [record.value for record in await consumer.poll()] == [0]
            for epoch in epochs:  # a session without partitions takes the place of this one
                body = {"member_id": "m-1", "topics": [], "max_records": 0, "share_session_epoch": epoch}
                ask(client, "POST", f"/v1/share-groups/{name}/fetch", body)
            assert [record.value for record in await consumer.poll()] == [1]
            await consumer.commit()
            (partition,) = ask(client, "GET", f"/v1/share-groups/{name}/in-flight")["partitions"]
            assert partition["start_offset"] == 2
        assert await seen_by_another(stack, name, name) == [(2, 1)]

    run(main())


def test_a_gateway_killed_between_poll_and_commit(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(4))
        async with consumers(stack, name, name, acknowledgement="explicit", max_records=2) as consumer:
            records = await consumer.poll()
            await restart_gateway(stack)
            consumer.acknowledge(records[0])
            consumer.acknowledge(records[1], "release")
            assert await consumer.commit() == {(name, 0): 2}
            rest = {record.offset: record.delivery_count for record in await consumer.poll()}
            assert rest == {1: 2, 2: 1}
        assert await seen_by_another(stack, name, name) == [(1, 3), (2, 2), (3, 1)]

    run(main())


def test_a_share_coordinator_killed_before_a_commit(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        await produce(stack, name, *range(3))
        coordinator = stack.service("share coordinator")
        async with consumers(stack, name, name) as consumer:
            assert len(await consumer.poll()) == 3
            coordinator.kill()
            committing = asyncio.create_task(consumer.commit())
            await asyncio.sleep(0)
            coordinator.start()
            assert await committing == {(name, 0): 3}
        assert await seen_by_another(stack, name, name) == []

    run(main())


def test_an_unknown_outcome_is_asked_for_until_patience_ends() -> None:
    batch = messages.FetchedBatch(
        topic="t", partition=0, first_offset=0, last_offset=1, delivery_count=1, lock_expires_at_ms=0, records=[]
    )
    delivery = Delivery(batch)
    pending = delivery.take_chosen()
    unknown = messages.AcknowledgementResult(
        status="unknown", code="REQUEST_TIMED_OUT", kafka_code=7, detail="who knows", retriable=True
    )
    settled = Settled()
    assert settled.add(pending, [unknown], patience_s=60) == pending
    assert not delivery.settled
    assert settled.add(pending, [messages.AcknowledgementResult(status="applied")], patience_s=60) == []
    assert (settled.committed, settled.failures, delivery.settled) == ({("t", 0): 2}, [], True)
    late = Delivery(batch)
    assert settled.add(late.take_chosen(), [unknown], patience_s=0) == []
    with pytest.raises(AcknowledgementError, match=r"t-0 0\.\.1") as failed:
        settled.raise_failures()
    assert failed.value.failures[0].retriable
    assert late.settled


def test_polling_and_producing_go_on_over_a_crash(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        got: list[Any] = []
        async with Producer(stack.url) as producer, consumers(stack, name, name) as consumer:

            async def consume() -> None:
                async for record in consumer:
                    got.append((record.value, record.delivery_count))
                    if len(got) == 200:
                        return

            consuming = asyncio.create_task(consume())
            sent = [await producer.send(name, n) for n in range(50)]
            await until(lambda: len(got) >= 10)
            stack.service("gateway").kill()
            waiting = [asyncio.create_task(producer.send(name, n)) for n in range(50, 200)]
            stack.service("gateway").start()
            sent += await asyncio.gather(*waiting)
            await consuming
            assert [place.offset for place in sent] == list(range(200))
            assert got == [(n, 1) for n in range(200)]

    run(main())


def test_a_service_out_of_reach_is_waited_for_and_then_an_error(run: Run, name: str) -> None:
    async def main() -> None:
        with contextlib.closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            async with ShareConsumer(url, name, [name], request_timeout_ms=400) as consumer:
                assert await consumer.poll(100) == []
                with pytest.raises(ApiError, match="cannot reach"):
                    await consumer.poll(10_000)
            with pytest.raises(ApiError, match=r"cannot reach|in time"):  # the last try may have too little time left
                async with Producer(url, deadline_ms=200) as producer:
                    await producer.send(name, 1)

    run(main())


# Topics


def test_a_topic_may_come_later_and_grow(
    run: Run, stack: Stack, client: httpx.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "METADATA_REFRESH_S", 0.1)

    async def main() -> None:
        async with consumers(stack, name, name) as consumer:
            assert await consumer.poll(NOTHING_MS) == []
            polling = asyncio.create_task(consumer.poll(20_000))
            await produce(stack, name, "first")
            assert [record.value for record in await polling] == ["first"]
            ask(client, "PATCH", f"/v1/topics/{name}", {"partitions": 2})
            await produce(stack, name, "second", partition=1)
            records = await consumer.poll(1000) or await consumer.poll(1000)
            assert [(record.partition, record.value) for record in records] == [(1, "second")]
            await consumer.commit()
            other = f"{name}-other"
            await produce(stack, other, "third")
            consumer.subscribe([other])
            assert consumer.subscription == [other]
            assert [record.value for record in await consumer.poll()] == ["third"]
        async with ShareConsumer(stack.url, name) as nothing:
            with pytest.raises(IllegalState, match="subscribe"):
                await nothing.poll()
        with pytest.raises(IllegalState, match="closed"):
            await nothing.poll()

    run(main())


def test_what_consuming_refuses(run: Run, stack: Stack, name: str) -> None:
    async def main() -> None:
        async with ShareConsumer(stack.url, "a/b", [name]) as consumer:
            with pytest.raises(ApiError) as refused:
                await consumer.poll(1000)
            assert refused.value.status in (400, 404)
        async with ShareConsumer(stack.url, name, ["no topic"]) as consumer:
            with pytest.raises(ApiError) as invalid:
                await consumer.poll(1000)
            assert invalid.value.error.code == "INVALID_TOPIC_EXCEPTION"

    run(main())


# Without async


@pytest.fixture
def threads() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


@pytest.mark.usefixtures("threads")
def test_the_same_without_async(stack: Stack, name: str) -> None:
    with sync.Producer(stack.url) as producer:
        assert producer.send(name, {"n": 0}) == Produced(name, 0, 0)
        later = producer.send_soon(name, {"n": 1})
        assert later.result(10) == Produced(name, 0, 1)
        assert len(producer.send_many(name, [{"n": 2}, {"n": 3}])) == 2
        with pytest.raises(ApiError, match="topic name"):
            producer.send("no such name", 1)
    with sync.ShareConsumer(stack.url, name, [name], acknowledgement="explicit", max_records=2) as consumer:
        for record in consumer.poll():
            consumer.acknowledge(record)
        assert consumer.commit() == {(name, 0): 2}
        for record in consumer.poll():
            consumer.acknowledge(record, "release")
    with sync.ShareConsumer(stack.url, name, [name]) as consumer:
        got = []
        for record in consumer:
            got.append((record.value["n"], record.delivery_count))
            if len(got) == 2:
                consumer.commit()
                break
        assert got == [(2, 2), (3, 2)]
        assert consumer.poll(NOTHING_MS) == []
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll()

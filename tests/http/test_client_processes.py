"""The Python client at the end of a program, after a fork, and in a second event loop."""

import asyncio
import multiprocessing
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Self

import pytest

from sharequeue.client import IllegalState, Producer, Record, RecordStream, ShareConsumer, loop_thread, sync
from sharequeue.client.loop_thread import OwnThread
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway

SENDS = """
from sharequeue.client.sync import Producer
producer = Producer({url!r}, deadline_ms=60_000)
for number in range(100):
    producer.send_soon({topic!r}, number)
{end}
"""


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


def ended(url: str, topic: str, end: str = "") -> subprocess.CompletedProcess[str]:
    """A program that sends 100 records and ends without `close`."""
    program = SENDS.format(url=url, topic=topic, end=end)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=180)


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise ValueError('oops')"])
def test_a_program_that_ends_without_close_loses_nothing(stack: Stack, gateway: Gateway, name: str, end: str) -> None:
    done = ended(stack.url.replace("127.0.0.1", "localhost"), name, end)
    assert "may not be appended" not in done.stderr
    answer = gateway.http.get(f"/v1/topics/{name}/partitions/0/records").json()
    assert [record["value"] for record in answer["records"]] == list(range(100))


def test_a_program_says_how_many_records_may_be_lost() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = ended(url, "t")
    assert done.returncode == 0
    assert done.stderr == (
        "sharequeue: the program ended without `close`, and 100 of its records may not be appended: "
        f"{url} has not answered\n"
    )


class Flushes:
    """Something with records to flush: it succeeds when as many others flush beside it as the barrier says."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self._barrier = barrier

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def _flush_at_exit(self, seconds: float) -> str:
        try:
            await asyncio.to_thread(self._barrier.wait, seconds)
        except threading.BrokenBarrierError:
            return "it was alone"
        return ""


def test_producers_that_a_program_leaves_are_flushed_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise each one in doubt would hold the end of the program for some seconds more."""
    barrier = threading.Barrier(5)
    left = {OwnThread(lambda: Flushes(barrier)) for _ in range(5)}
    monkeypatch.setattr(loop_thread, "_OPEN", left)
    monkeypatch.setattr(loop_thread, "AT_EXIT_S", 10)
    loop_thread._flush_all(last=True)
    assert capsys.readouterr().err == ""
    for each in left:
        each.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("make", "use"),
    [
        (sync.Producer, lambda producer: producer.send("t", 1)),
        (lambda url: sync.ShareConsumer(url, "g", ["t"]), lambda consumer: consumer.poll(0)),
        (lambda url: sync.RecordStream(url, "g", ["t"]), next),
    ],
    ids=["Producer", "ShareConsumer", "RecordStream"],
)
def test_a_sync_client_says_so_after_a_fork(make: Callable[[str], Any], use: Callable[[Any], object]) -> None:
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    with make("http://127.0.0.1:9") as client:

        def used() -> None:
            with pytest.raises(IllegalState) as raised:
                use(client)
            said.put(str(raised.value))

        child = context.Process(target=used)
        child.start()
        assert "made before a fork" in said.get(timeout=60)
        child.join(60)
        assert child.exitcode == 0


def test_an_async_client_says_so_in_a_second_event_loop(stack: Stack, name: str) -> None:
    producer = Producer(stack.url)
    asyncio.run(_produce(producer, name))
    with pytest.raises(
        IllegalState, match=r"this Producer belongs to another event loop: make one in each asyncio\.run"
    ):
        asyncio.run(_produce(producer, name))
    consumer = ShareConsumer(stack.url, name, [name])
    asyncio.run(_poll(consumer))
    for use in (_poll(consumer), consumer.commit(), consumer.close()):
        with pytest.raises(IllegalState, match="this ShareConsumer belongs to another event loop"):
            asyncio.run(use)
    stream = RecordStream(stack.url, f"{name}-stream", [name])
    record = asyncio.run(_next(stream))
    for use in (_next(stream), stream.acknowledge(record), stream.close()):
        with pytest.raises(IllegalState, match="this RecordStream belongs to another event loop"):
            asyncio.run(use)


async def _produce(producer: Producer, topic: str) -> None:
    await producer.send(topic, 1)


async def _next(stream: RecordStream) -> Record:
    return await anext(stream)


async def _poll(consumer: ShareConsumer) -> None:
    await consumer.poll(0)

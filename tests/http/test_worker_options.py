"""Options of a task on a real stack: topics in order, payloads that do not fit, the breaker, functions that hang."""

import threading

import pytest

from sharequeue.stack.stack import Stack
from sharequeue.worker.health import metrics
from sharequeue.worker.process import HUNG, NOTHING_FITS, Process
from tests.http.calls import Gateway
from tests.http.client_calls import in_event_loop, until
from tests.http.test_worker import app_of, finished, working


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


@in_event_loop
async def test_the_first_topic_of_a_task_comes_first(stack: Stack, gateway: Gateway, name: str) -> None:
    """By name they would come in another order. `send` sends to the last one, or to the one that it names."""
    app = app_of(stack)
    urgent, usual = f"{name}-urgent", f"{name}-a"
    seen: list[str] = []

    @app.task(urgent, usual, group=name)
    async def fulfil(topic: str) -> None:
        seen.append(topic)

    for _ in range(5):
        assert (await fulfil.send("usual")).topic == usual
        assert (await fulfil.send("urgent", topic=urgent)).topic == urgent
    async with working(app):
        await until(lambda: len(seen) == 10)
    assert seen[:5] == ["urgent"] * 5


@in_event_loop
async def test_a_payload_that_does_not_fit_may_be_released_or_stop_its_task(
    stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(stack)

    @app.task(f"{name}-r", group=name, on_mismatch="release")
    async def released(number: int) -> None: ...

    @app.task(f"{name}-s", group=name, on_mismatch="stop")
    async def stopping(number: int) -> None: ...

    gateway.configure(name, share_retry_backoff_ms="3600000")
    gateway.produce(f"{name}-r", "x")
    async with working(app):
        await until(lambda: "release: the payload does not fit" in caplog.text)
    (batch,) = gateway.in_flight(name)[0]["batches"]
    assert (batch["delivery_state"], batch["attempt"]) == ("AVAILABLE", 1)
    assert batch["reason"].startswith("the payload does not fit: Expected `int`, got `str`")
    app.tasks.pop("released")
    gateway.produce(f"{name}-s", "x")
    assert await Process(app, grace_s=5).run() == NOTHING_FITS
    (batch,) = gateway.fetch(name, f"{name}-s")["batches"]
    assert (batch["first_offset"], batch["attempt"]) == (0, 1), "it was no attempt"


@in_event_loop
async def test_a_breaker_keeps_records_alive(
    stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The group has no backoff: without the breaker, records are dead within milliseconds."""
    app = app_of(stack)
    away = True

    @app.task(name, group=name, concurrency=2, breaker=3)
    async def fulfil(number: int) -> None:
        if away:
            raise ConnectionError("the provider is away")

    gateway.produce(name, *range(10))
    async with working(app) as process:
        await until(lambda: 'sharequeue_worker_slowed{task="fulfil"} 1' in metrics(process._feedings))
        assert "slowed down to one record a second until one succeeds: ConnectionError: the provider" in caplog.text
        away = False
        await until(lambda: finished(gateway, name, name) == 10)
        assert 'sharequeue_worker_slowed{task="fulfil"} 0' in metrics(process._feedings)
    assert gateway.http.get(f"/v1/topics/dlq.{name}").status_code == 404


@in_event_loop
async def test_a_process_whose_functions_hang_ends(stack: Stack, gateway: Gateway, name: str) -> None:
    """Plain functions keep half of a task's hands beyond twice their time. Their records are released."""
    app = app_of(stack)
    ending = threading.Event()

    @app.task(name, group=name, concurrency=2, timeout="50ms")
    def hangs(number: int) -> None:
        ending.wait()

    gateway.configure(name, share_retry_backoff_ms="3600000")
    gateway.produce(name, 1)
    try:
        assert await Process(app, grace_s=5).run() == HUNG
    finally:
        ending.set()
    (batch,) = gateway.in_flight(name)[0]["batches"]
    assert (batch["delivery_state"], batch["reason"]) == ("AVAILABLE", "timed out after 0.05 s")

"""A worker on a real stack: what becomes of records, long jobs, several workers, the end of the process."""

import asyncio
import contextlib
import dataclasses
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from sharequeue.stack.process import free_port
from sharequeue.stack.stack import Stack
from sharequeue.worker import Context, Reject, Retry, Snooze, Worker, group_rules
from sharequeue.worker.health import metrics
from sharequeue.worker.process import NOTHING_FITS, REFUSED, Process
from tests.http.calls import Gateway
from tests.http.client_calls import Network, in_event_loop, port_of, until


@dataclasses.dataclass
class Order:
    id: int
    kind: str = ""


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


@contextlib.asynccontextmanager
async def working(app: Worker, *, grace_s: float = 20) -> AsyncIterator[Process]:
    """Run an app within this process, and stop it at the end."""
    process = Process(app, grace_s=grace_s)
    running = asyncio.create_task(process.run())
    try:
        yield process
    finally:
        process.stop()
        await running


def finished(gateway: Gateway, group: str, topic: str) -> int:
    """How many records from the first one on the group has finished."""
    answer = gateway.http.get(f"/v1/share-groups/{group}/offsets")
    topics = answer.json()["topics"] if answer.status_code == 200 else []
    return next((each["partitions"][0]["start_offset"] for each in topics if each["topic"] == topic), -1)


def app_of(stack: Stack, **options: Any) -> Worker:
    return Worker(stack.url, set_retries=False, **options)


@in_event_loop
async def test_what_becomes_of_a_record(stack: Stack, gateway: Gateway, name: str) -> None:
    app = app_of(stack)
    seen: list[tuple[str, int]] = []

    @app.task(name, group=name, concurrency=4)
    async def fulfil(order: Order, context: Context) -> None:
        seen.append((order.kind, context.attempt))
        if order.kind == "hopeless":
            raise Reject("no address")
        if order.kind == "later" and context.attempt == 1:
            raise Retry("busy", delay="10ms")
        if order.kind == "sleepy" and seen.count(("sleepy", 1)) < 3:
            raise Snooze("10ms")
        if order.kind == "fails" and context.attempt < 3:
            raise ValueError("out of stock")

    for number, kind in enumerate(("", "hopeless", "later", "sleepy", "fails")):
        await fulfil.send(Order(number, kind), headers={"x": "y"})
    async with working(app):
        await until(lambda: finished(gateway, name, name) == 5)
    assert sorted(seen) == sorted(
        [("", 1), ("hopeless", 1), ("later", 1), ("later", 2), *3 * [("sleepy", 1)], *(("fails", n) for n in (1, 2, 3))]
    )
    (letter,) = gateway.letters(f"dlq.{name}", 1)
    assert letter["headers"]["__dlq.errors.reason"] == "no address"


@in_event_loop
async def test_payloads_that_do_not_fit(stack: Stack, gateway: Gateway, name: str) -> None:
    """One is a dead letter with its path. When 20 of the last 50 do not fit, the others stay in the topic."""
    app = app_of(stack)

    @app.task(name, group=name)
    async def fulfil(order: Order) -> None: ...

    gateway.produce(name, {"id": 1}, *({"id": str(n)} for n in range(100)))
    process = Process(app, grace_s=5)
    assert await process.run() == NOTHING_FITS
    letters = gateway.letters(f"dlq.{name}", 20)
    assert {letter["headers"]["__dlq.errors.reason"] for letter in letters} == {
        "the payload does not fit: Expected `int`, got `str` - at `$.id`"
    }
    assert finished(gateway, name, name) == 21
    batches = gateway.in_flight(name)[0]["batches"]
    assert {batch.get("attempt", 0) for batch in batches} <= {0, 1}


@in_event_loop
async def test_tasks_of_one_topic_get_their_own_records(stack: Stack, gateway: Gateway, name: str) -> None:
    """The header says whose a record is. One of a task that this program does not have waits, uncounted."""
    app = app_of(stack)
    seen: list[tuple[str, Any]] = []

    @app.task(name, group=name)
    async def first(value: int) -> None:
        seen.append(("first", value))

    @app.task(name, group=name)
    def second(value: int) -> None:
        seen.append(("second", value))

    await first.send(1)
    await asyncio.to_thread(second.send_sync, 2)
    gateway.produce(name, 3)
    gateway.produce(name, 4, headers={"task": "of-a-newer-program"})
    async with working(app):
        await until(lambda: len(seen) == 3 and finished(gateway, name, name) == 3)
    assert sorted(seen) == [("first", 1), ("first", 3), ("second", 2)]
    (waiting,) = gateway.in_flight(name)[0]["batches"]
    assert waiting["delivery_state"] == "AVAILABLE"
    assert waiting["available_at_ms"] > time.time() * 1000


@in_event_loop
async def test_a_blocked_event_loop_keeps_its_locks(stack: Stack, gateway: Gateway, name: str) -> None:
    """The function blocks for longer than its lock lasts. It runs once, and its record is accepted."""
    app = app_of(stack, lock="1s")
    runs = 0

    @app.task(name, group=name)
    async def blocks(value: int) -> None:
        nonlocal runs
        runs += 1
        await asyncio.to_thread(lambda: None)  # the task has begun, and other code of the loop has run
        time.sleep(3)  # noqa: ASYNC251 -- that is the test

    gateway.produce(name, 1)
    async with working(app):
        await until(lambda: finished(gateway, name, name) == 1)
    assert runs == 1


@in_event_loop
async def test_a_function_whose_time_is_over(stack: Stack, gateway: Gateway, name: str) -> None:
    """Its record is released with that reason. An async function is cancelled, a plain one is told."""
    app = app_of(stack)
    told = threading.Event()
    ended: list[str] = []

    @app.task(f"{name}-a", group=name, timeout="300ms")
    async def waits(attempt: int, context: Context) -> None:
        if context.attempt == 1:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("cancelled")

    @app.task(f"{name}-p", group=name, timeout="300ms", concurrency=8)
    def plain(attempt: int, context: Context) -> None:
        while context.attempt == 1 and not context.lost:
            time.sleep(0.01)
        told.set()

    gateway.produce(f"{name}-a", 1)
    gateway.produce(f"{name}-p", 1)
    async with working(app):
        await until(lambda: finished(gateway, name, f"{name}-a") == finished(gateway, name, f"{name}-p") == 1)
    assert ended == ["cancelled"]
    assert told.is_set()


@in_event_loop
async def test_a_lost_lock_ends_the_function_and_what_it_did_is_not_accepted(
    stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(stack, lock="1s")
    begun: list[int] = []
    ended: list[int] = []

    @app.task(name, group=name, concurrency=4)
    async def waits(value: int) -> None:
        begun.append(value)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(value)

    @app.task(name, group=name, concurrency=4)
    def plain(value: int, context: Context) -> None:
        begun.append(value)
        while not context.lost:
            time.sleep(0.01)
        ended.append(value)

    await waits.send(0)
    await plain.send(1)
    async with working(app) as process:
        await until(lambda: len(begun) == 2)
        gateway.reset(name, "latest", force=True)  # an operator takes the records: their renewals are refused
        await until(lambda: sorted(ended) == [0, 1])
        await until(lambda: "offset 1, attempt 1: done, not accepted" in caplog.text)
        assert 'records_total{task="plain",outcome="not_accepted"} 1' in metrics(process._feedings)
    assert caplog.text.count("its lock is lost") == 2


@in_event_loop
async def test_a_stopping_worker_gives_back_what_it_did_not_begin(stack: Stack, gateway: Gateway, name: str) -> None:
    """What runs is waited for; at the end of the grace it is released with a reason, and counts."""
    app = app_of(stack)
    begun: list[int] = []

    @app.task(name, group=name, concurrency=2)
    async def hangs(value: int) -> None:
        begun.append(value)
        await asyncio.sleep(0 if value < 0 else 3600)

    gateway.produce(name, *range(-20, 20))
    async with working(app, grace_s=0.2):
        await until(lambda: len(begun) == 22)
    batches = gateway.in_flight(name)[0]["batches"]
    assert {batch["delivery_state"] for batch in batches} == {"AVAILABLE"}
    assert {batch.get("reason") for batch in batches} == {"worker stopped", None}
    attempts: Counter[int] = Counter()
    for batch in gateway.fetch(name, name)["batches"]:
        attempts[batch["attempt"]] += len(batch["records"])
    assert attempts == {2: 2, 1: 18}


@in_event_loop
async def test_a_worker_sets_retries_for_hours_and_calls_the_next_gateway(
    stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first URL is dead. Retries that the group has of its own stay, and the log says how they differ."""
    caplog.set_level("INFO")
    app = Worker([f"http://127.0.0.1:{free_port()}", stack.url])
    done = asyncio.Event()

    @app.task(name, group=name)
    async def first(value: int) -> None:
        done.set()

    @app.task(name, group=f"{name}-own")
    async def second(value: int) -> None: ...

    gateway.configure(f"{name}-own", share_delivery_count_limit=7)
    await first.send(1)
    async with working(app):
        async with asyncio.timeout(60):
            await done.wait()
        await until(lambda: finished(gateway, name, name) == 1)
    config = gateway.http.get(f"/v1/share-groups/{name}/config").json()
    assert (config["share.delivery.count.limit"], config["share.retry.backoff.ms"][:9]) == ("32", "1000,3000")
    own = gateway.http.get(f"/v1/share-groups/{name}-own/config").json()
    assert (own["share.delivery.count.limit"], own["share.retry.backoff.ms"]) == ("7", "")
    assert f"the group {name} tries a record for 4.3 h before it is dead\n" in caplog.text
    differs = (
        f"{group_rules.BACKOFF}= (a worker's own: {group_rules.WAITS}), {group_rules.LIMIT}=7 (a worker's own: 32)"
    )
    assert f"the group {name}-own tries a record for 0.0 h before it is dead; {differs}\n" in caplog.text


@in_event_loop
async def test_a_worker_that_starts_before_its_gateway_sets_retries(
    stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for the gateway; told to stop, it ends at once."""
    port = free_port()
    app = Worker(f"http://127.0.0.1:{port}")

    @app.task(name, group=name)
    async def fulfil(value: int) -> None: ...

    gateway.produce(name, 1)
    async with working(app):
        await until(lambda: f"the retries of the group {name}" in caplog.text)
    async with working(app):
        caplog.clear()
        await until(lambda: f"the retries of the group {name}" in caplog.text)
        async with Network(port_of(stack), port):
            await until(lambda: finished(gateway, name, name) == 1)
    config = gateway.http.get(f"/v1/share-groups/{name}/config").json()
    assert config["share.delivery.count.limit"] == "32"


@in_event_loop
async def test_a_paused_task_fetches_nothing(stack: Stack, gateway: Gateway, name: str) -> None:
    app = app_of(stack)
    seen: list[int] = []

    @app.task(name, group=name)
    async def fulfil(value: int) -> None:
        seen.append(value)

    app.pause(name, "1h")
    gateway.produce(name, 1)
    async with working(app):
        await asyncio.sleep(1)
        assert not seen
        fulfil.pause(0)
        await until(lambda: seen)


@in_event_loop
async def test_a_periodic_task_runs_at_its_times(
    stack: Stack, gateway: Gateway, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Two workers make one schedule. A later start changes its times, and leaves it paused if an operator paused it."""
    caplog.set_level("INFO")
    times: list[str] = []

    def app_with(cron: str) -> Worker:
        app = app_of(stack)

        @app.periodic(cron, timezone="Europe/Berlin", group=name, name=name)
        def tidy(payload: None, context: Context) -> None:
            times.append(context.headers["__schedule.time_ms"])

        @app.periodic(cron, topic=f"periodic.{name}", group=name, name=f"{name}-2", payload={"id": 7})
        async def fulfil(order: Order) -> None:
            times.append(f"order {order.id}")

        return app

    each_second, path = app_with("* * * * * *"), f"/v1/topics/periodic.{name}/schedules/{name}"
    async with working(each_second), working(app_with("* * * * * *")):
        await until(lambda: len(times) >= 6)
    of_plain = [time for time in times if "order" not in time]
    assert len(of_plain) == len(set(of_plain)) >= 2
    assert "order 7" in times
    gateway.http.patch(path, json={"paused": True}).raise_for_status()
    async with working(app_with("0 3 * * *")):
        await until(lambda: gateway.http.get(path).json()["cron"] == "0 3 * * *")
    found = gateway.http.get(path).json()
    assert (found["paused"], found["time_zone"], found["headers"]["task"]) == (True, "Europe/Berlin", name)
    caplog.clear()
    async with working(app_with("0 3 * * *")):
        gateway.http.patch(path, json={"run": True}).raise_for_status()
        count = len(times)
        await until(lambda: len(times) > count)
    assert f"made the schedule {name} of" not in caplog.text


@in_event_loop
async def test_a_payload_is_sent_once(stack: Stack, gateway: Gateway, name: str) -> None:
    """Until the group has finished it; one of later, until a day after its time."""
    app = app_of(stack)

    @app.task(name, group=name)
    async def fulfil(value: int) -> None: ...

    places = [
        await fulfil.send(1, unique="order:42"),
        await fulfil.send(2, unique="order:42", key="order:42", unique_for="1h"),
        await fulfil.send(3, idempotency_key=name),
        await asyncio.to_thread(fulfil.send_sync, 3, idempotency_key=name),
    ]
    assert [place[1:] for place in places] == [(0, 0, False), (0, 0, True), (0, 1, False), (0, 1, False)]
    assert gateway.read(name)["records"][0]["key"] == "order:42"
    with pytest.raises(ValueError, match="give key or unique"):
        await fulfil.send(4, unique="order:42", key="ann")
    async with working(app):
        await until(lambda: finished(gateway, name, name) == 2)
        again = await fulfil.send(5, unique="order:42")
        later = [await fulfil.send(6, unique="order:43", delay="1h") for _ in range(2)]
    assert (again[1:], [place.duplicate for place in later]) == ((0, 2, False), [False, True])


@in_event_loop
async def test_a_worker_whose_schedule_is_refused_ends(
    stack: Stack, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(stack)

    @app.periodic("each monday", group=name, name=name)
    def tidy() -> None: ...

    assert await Process(app, grace_s=5).run() == REFUSED
    assert f"the schedule of the task {name}: " in caplog.text


@in_event_loop
async def test_the_health_port(stack: Stack, gateway: Gateway, name: str) -> None:
    app = app_of(stack)

    @app.task(name, group=name)
    async def fulfil(value: int) -> None: ...

    gateway.produce(name, 1)
    process = Process(app, grace_s=5)
    port = free_port()
    running = asyncio.create_task(process.run(port))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
        await until(lambda: finished(gateway, name, name) == 1)
        assert (await http.get("/livez")).status_code == 200
        assert (
            'sharequeue_worker_records_total{task="fulfil",outcome="accepted"} 1' in (await http.get("/metrics")).text
        )
        assert (await http.get("/")).status_code == 404
    process.stop()
    assert await running == 0

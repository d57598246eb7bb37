"""While the share coordinator is away nothing is acquired that nobody could settle, and accepted work stays done.

The lock is shorter than the outage: without the rule, every accepted record would be delivered again.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.event_source import EventSource
from tests.http.calls import LONG_MS, Gateway, acknowledge_range, good, offsets, problem, ranges, wait_until

LOCK_MS = 1_000
OUTAGE_S = 5.0
DEADLINE_MS = 3_000


@pytest.fixture
def own_stack(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Stack]:
    settings = {"SHAREQUEUE_GATEWAY_STATE_WRITE_DEADLINE_MS": str(DEADLINE_MS)}
    stores = {"postgres_url": database_url, "redis_url": redis_url}
    with temporary_stack(tmp_path / "data", **stores, settings=settings) as stack:
        yield stack


@pytest.fixture
def gateway(own_stack: Stack) -> Iterator[Gateway]:
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        yield Gateway(http)


def accepted_after(gateway: Gateway, name: str, first: int, last: int) -> dict[str, Any]:
    """Accept until the outcome is known, as a client does. The first try also makes the locks short: so they end while
    no coordinator is there, and none ends before this."""
    accept = [acknowledge_range(name, first, last, "accept", delivery_count=1)]
    shorter = acknowledge_range(name, first, last, "renew", delivery_count=1, lock_duration_ms=LOCK_MS)
    gateway.try_acknowledge(name, [shorter, *accept])
    while True:
        (result,) = gateway.try_acknowledge(name, accept).json()["results"]
        if result["status"] not in ("unknown", "failed") or not result["retriable"]:
            found: dict[str, Any] = result
            return found
        time.sleep(0.1)


@pytest.mark.parametrize("how", ["killed", "paused"])
def test_accepted_records_are_never_delivered_again(own_stack: Stack, gateway: Gateway, name: str, how: str) -> None:
    coordinator = own_stack.service("share coordinator")
    gateway.configure(name, share_record_lock_duration_ms=LOCK_MS)
    gateway.produce(name, *range(20))
    held = gateway.acquire(name, name, max_records=10, acquire_mode="record_limit", lock_duration_ms=60_000)
    assert held == ["0-9×1"]
    coordinator.kill() if how == "killed" else coordinator.process.send_signal(19)
    outcome: list[dict[str, Any]] = []
    accepting = threading.Thread(target=lambda: outcome.append(accepted_after(gateway, name, 0, 9)))
    accepting.start()
    try:
        ends = time.monotonic() + OUTAGE_S
        wait_until(lambda: gateway.try_fetch(name, name, max_records=1, max_wait_ms=0).status_code == 503)
        while time.monotonic() < ends:
            away = problem(gateway.try_fetch(name, name, max_wait_ms=300), 503, "COORDINATOR_NOT_AVAILABLE", 15)
            assert "nothing is acquired while acknowledgements cannot be made durable" in away["detail"]
            gateway.produce(name, "more")
    finally:
        coordinator.start() if how == "killed" else coordinator.process.send_signal(18)
    accepting.join(60)
    assert outcome[0]["status"] in ("applied", "ignored"), "ignored: it was durable between two tries"
    delivered: set[int] = set()

    def ten_is_delivered() -> bool:
        """The fetches before the first 503 may have got it, and its lock ends."""
        delivered.update(offsets(gateway.fetch(name, name, max_wait_ms=5_000)))
        return 10 in delivered

    wait_until(ten_is_delivered)
    assert min(delivered) == 10
    assert gateway.window(name, name)[0] == 10


class Load:
    """Twelve clients: four produce, eight fetch ten records and accept them, until each outcome is known."""

    def __init__(self, url: str, topic: str, group: str) -> None:
        self._url, self._topic, self._group = url, topic, group
        self.stopping = False
        self.produced: list[float] = []
        """When each produce request was answered."""
        self.counts: dict[tuple[int, int], int] = {}
        """The highest delivery count of each record."""
        self.accepted: set[tuple[int, int]] = set()

    async def run(self, body: Callable[[], Awaitable[None]]) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=120) as http:
            clients = [asyncio.create_task(self._produce(http)) for _ in range(4)]
            clients += [asyncio.create_task(self._consume(http, f"m{number}")) for number in range(8)]
            await body()
            self.stopping = True
            await asyncio.gather(*clients)

    async def _produce(self, http: httpx.AsyncClient) -> None:
        while not self.stopping:
            records = [{"value": "x" * 100}] * 10
            (await http.post(f"/v1/topics/{self._topic}/records", json={"records": records})).raise_for_status()
            self.produced.append(time.monotonic())
            await asyncio.sleep(0.05)

    async def _consume(self, http: httpx.AsyncClient, member: str) -> None:
        path = f"/v1/share-groups/{self._group}"
        while not self.stopping:
            wanted = {"topics": [self._topic], "member_id": member, "max_records": 10, "max_wait_ms": 1000}
            answer = await http.post(f"{path}/fetch", json={**wanted, "acquire_mode": "record_limit"})
            if answer.status_code != 200:
                await asyncio.sleep(0.5)
                continue
            for batch in answer.json()["batches"]:
                places = [(batch["partition"], n) for n in range(batch["first_offset"], batch["last_offset"] + 1)]
                for place in places:
                    self.counts[place] = max(self.counts.get(place, 0), batch["delivery_count"])
                await self._accept(http, path, member, batch, places)

    async def _accept(
        self, http: httpx.AsyncClient, path: str, member: str, batch: dict[str, Any], places: list[tuple[int, int]]
    ) -> None:
        names = ("topic", "partition", "first_offset", "last_offset", "delivery_count")
        entry = {**{name: batch[name] for name in names}, "type": "accept"}
        while True:
            answer = await http.post(f"{path}/acknowledge", json={"member_id": member, "acknowledgements": [entry]})
            results = answer.json().get("results")
            if results and results[0]["status"] in ("applied", "ignored"):
                self.accepted.update(places)
                return
            if results and not results[0].get("retriable", True):
                return
            await asyncio.sleep(0.2)


@pytest.mark.soak
def test_a_minute_without_the_share_coordinator_costs_no_delivery(
    tmp_path: Path, database_url: str, redis_url: str, name: str
) -> None:
    """With every setting at its default, under a load of twelve clients: producing goes on,
    what was accepted stays so."""
    with temporary_stack(tmp_path / "data", postgres_url=database_url, redis_url=redis_url) as stack:
        with httpx.Client(base_url=stack.url, timeout=60) as http:
            Gateway(http).create_topic(name, 4)
        load = Load(stack.url, name, name)
        times: list[float] = []

        async def body() -> None:
            await asyncio.sleep(10)
            times.append(time.monotonic())
            await asyncio.to_thread(stack.service("share coordinator").kill)
            await asyncio.sleep(60)
            times.append(time.monotonic())
            stack.service("share coordinator").start()
            await asyncio.sleep(20)

        asyncio.run(load.run(body))
    again = [place for place in load.accepted if load.counts[place] > 1]
    away, back = times
    during = sum(away < at < back for at in load.produced)
    before = sum(at < away for at in load.produced)
    print(
        f"{len(load.accepted)} accepted, {len(again)} of them delivered more than once, {len(load.counts)} delivered; "
        f"produce requests: {before / 10:.0f}/s before, {during / (back - away):.0f}/s while it was away"
    )
    assert again == []
    assert during / (back - away) > before / 10 / 2
    assert max(load.counts.values()) == 1
    assert len(load.accepted) == len(load.counts)


@pytest.mark.soak
def test_a_fetch_that_waits_gets_records_when_the_share_coordinator_is_back(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.configure(name, share_record_lock_duration_ms=60_000)
    gateway.produce(name, "one", "two")
    assert gateway.acquire(name, name, max_records=1, acquire_mode="record_limit") == ["0-0×1"]
    own_stack.service("share coordinator").kill()
    problem(
        gateway.try_acknowledge(name, [acknowledge_range(name, 0, 0, "release")]), 503, "COORDINATOR_NOT_AVAILABLE", 15
    )
    found: list[dict[str, Any]] = []
    with httpx.Client(base_url=own_stack.url, timeout=60) as http:
        waiting = threading.Thread(
            target=lambda: found.append(good(Gateway(http).try_fetch(name, name, max_wait_ms=LONG_MS)))
        )
        waiting.start()
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        own_stack.service("share coordinator").start()
        waiting.join(60)
    assert [batch["first_offset"] for batch in found[0]["batches"]] == [0, 1]


@pytest.mark.soak
def test_st_061_a_stream_says_that_nothing_can_be_acquired_and_goes_on(
    own_stack: Stack, gateway: Gateway, name: str
) -> None:
    coordinator = own_stack.service("share coordinator")
    gateway.produce(name, 0)
    source = EventSource(own_stack.url, name, name, window=10)
    assert ranges(source.next().data) == ["0-0×1"]
    coordinator.kill()
    try:
        settling = threading.Thread(target=lambda: gateway.settle(name, name, 0, 0, "accept", delivery_count=1))
        settling.start()
        wait_until(lambda: gateway.try_fetch(name, name, max_records=1, max_wait_ms=0).status_code == 503)
        gateway.produce(name, 1)
        told = source.next(90)  # the fetch that waits learns of it at the end of its wait
        assert (told.kind, told.data["code"], told.data["retriable"]) == (
            "problem",
            "COORDINATOR_NOT_AVAILABLE",
            True,
        )
        assert source.silent(2.0), "the same problem is sent once"
    finally:
        coordinator.start()
    settling.join(60)
    assert ranges(source.next().data) == ["1-1×1"]
    source.cut()

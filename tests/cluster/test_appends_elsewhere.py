"""Gateways append at the one that leads the partition; when that one is killed or paused, each record is there once."""

import asyncio
import itertools
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sharequeue.client import Producer
from sharequeue.stack.stack import ServiceProcess
from tests.cluster.calls import fetch, make_topic
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import wait_until

PRODUCERS = 4
BEFORE = 20
"""Answers before the gateway is lost, and after it."""
PAUSED_S = 2.0
"""Longer than another gateway waits for an answer."""


def produce(client: httpx.Client, topic: str, value: str, key: str | None = None) -> dict:
    headers = {"Idempotency-Key": key} if key else {}
    response = client.post(f"/v1/topics/{topic}/records", json={"records": [{"value": value}]}, headers=headers)
    assert response.status_code == 200, response.text
    answer: dict = response.json()
    return answer


def wait_until_named(client: httpx.Client, topic: str, wanted: ServiceProcess) -> None:
    """Produce until answers name this gateway."""

    def named() -> list[tuple[str, int, str]]:
        leaders = produce(client, topic, f"first-{time.monotonic_ns()}").get("leaders", [])
        return [(leader["topic"], leader["partition"], leader["url"]) for leader in leaders]

    wait_until(lambda: named() == [(topic, 0, wanted.url)])


class Load:
    """Producers at one gateway, half of them with keys, until `stop`."""

    def __init__(self, url: str, topic: str) -> None:
        self._url = url
        self._topic = topic
        self._stopping = threading.Event()
        self.answered: dict[str, int] = {}
        """Offsets by value."""
        threads = ThreadPoolExecutor(PRODUCERS)
        self._running = [threads.submit(self._produce, number) for number in range(PRODUCERS)]

    def _produce(self, number: int) -> None:
        with httpx.Client(base_url=self._url, timeout=40, verify=False) as client:
            for count in itertools.count():
                if self._stopping.is_set():
                    return
                value = f"{self._url}-{number}-{count}-{time.monotonic_ns()}"
                answer = produce(client, self._topic, value, value if number % 2 else None)
                self.answered[value] = answer["records"][0]["offset"]

    def wait_for(self, more: int) -> None:
        wanted = len(self.answered) + more
        wait_until(lambda: len(self.answered) >= wanted or any(each.done() for each in self._running))

    def stop(self) -> None:
        self._stopping.set()
        for each in self._running:
            each.result()


def all_records(client: httpx.Client, topic: str) -> dict[str, int]:
    """The log. Each value is there once, and there is no gap."""
    values: dict[str, int] = {}
    while True:
        path = f"/v1/topics/{topic}/partitions/0/records"
        records = client.get(path, params={"offset": len(values), "max_records": 1000}).json()["records"]
        if not records:
            return values
        for record in records:
            assert record["value"] not in values
            assert record["offset"] == len(values)
            values[record["value"]] = record["offset"]


def lose(leader: ServiceProcess, how: signal.Signals, load: Load) -> None:
    """Kill a gateway, or pause it while others append in its place."""
    assert leader.process is not None
    load.wait_for(BEFORE)
    leader.process.send_signal(how)
    if how == signal.SIGSTOP:
        time.sleep(PAUSED_S)
    load.wait_for(BEFORE)
    os.kill(leader.process.pid, signal.SIGCONT) if how == signal.SIGSTOP else leader.process.wait()
    load.wait_for(BEFORE)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "paused"])
@pytest.mark.parametrize("times", [1, pytest.param(200, marks=pytest.mark.soak)])
def test_records_are_there_once_when_the_gateway_that_appends_is_lost(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, how: signal.Signals, times: int
) -> None:
    leader = cluster.leader_of(name, make_topic(clients[0], name, 1), 0)
    asked = next(index for index, gateway in enumerate(cluster.gateways) if gateway is not leader)
    fetch(clients[asked], name, topics=[name], member_id="m", max_wait_ms=0)
    for _ in range(times):
        cluster.start()
        wait_until_named(clients[asked], name, leader)
        load = Load(cluster.gateways[asked].url, name)
        try:
            lose(leader, how, load)
        finally:
            load.stop()
        stored = all_records(clients[asked], name)
        assert load.answered == {value: stored[value] for value in load.answered}


def test_a_producer_follows_the_gateway_that_appends(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    leader = cluster.leader_of(name, make_topic(clients[0], name, 1), 0)
    asked = next(index for index, gateway in enumerate(cluster.gateways) if gateway is not leader)
    fetch(clients[asked], name, topics=[name], member_id="m", max_wait_ms=0)
    wait_until_named(clients[asked], name, leader)

    async def run() -> None:
        async with Producer(cluster.gateways[asked].url, follow_leaders=True) as producer:
            first = await producer.send(name, "first")
            before = produced_at(clients[asked])
            for count in range(1, 4):
                assert (await producer.send(name, count)).offset == first.offset + count
            assert produced_at(clients[asked]) == before
            leader.kill()
            assert (await producer.send(name, "last")).offset == first.offset + 4

    asyncio.run(run())


def produced_at(client: httpx.Client) -> str:
    """The count of produces that a gateway has answered."""
    lines = client.get("/metrics").text.splitlines()
    return next(line for line in lines if re.match(r'\w+_count\{operation="produceRecords",status="200"', line))

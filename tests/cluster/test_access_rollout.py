"""Two gateways change from `off` over `optional` to `required`, one after another, and all coordinators restart, while
clients work: nothing is lost, nothing comes twice, and no call is refused that a client repeats as it should.

Half of the clients have a key from the beginning, which a gateway with `off` does not read. The other half are replaced
by clients with a key once both gateways are `optional`.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from sharequeue.client import NewRecord, Producer, RecordStream, ShareConsumer
from sharequeue.stack.stack import Stack, temporary_stack
from tests.chaos.run import LEASE_MS
from tests.cluster.gateways import GatewayCluster
from tests.http.access import ADMIN, Access

PARTITIONS = 4
PATIENCE_S = 120
HOUR_MS = 3_600_000
ENOUGH = 30
"""So many records are accepted between two restarts."""
USER = "User:worker"
EARLY, LATE = True, False
"""Whether a client has a key from the beginning."""
SETTINGS = {
    "SHAREQUEUE_GATEWAY_SUPER_USERS": ADMIN,
    **{
        f"SHAREQUEUE_{lease}_LEASE_MS": str(LEASE_MS)
        for lease in ("COORDINATOR", "SHARE_COORDINATOR", "COORDINATOR_GATEWAY")
    },
    "SHAREQUEUE_GATEWAY_TRANSACTION_MAX_TIMEOUT_MS": str(HOUR_MS),
}


@pytest.fixture
def stack(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Stack]:
    twice = {"gateways": 2, "coordinators": 2, "share_coordinators": 2}
    stores = {"postgres_url": database_url, "redis_url": redis_url}
    with temporary_stack(tmp_path / "data", **stores, **twice, settings=SETTINGS) as stack:
        yield stack


class Load:
    """Producers and consumers of one topic, and what became of their records."""

    def __init__(self, urls: Sequence[str], name: str, key: str) -> None:
        self._urls = itertools.cycle(urls)
        self._name = name
        self._key = key
        self._ids = itertools.count()
        self.keyed, self.produced_all, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()
        """From `keyed` on every client has a key."""
        self.produced: list[str] = []
        self.delivered: Counter[str] = Counter()
        self.streamed: Counter[str] = Counter()
        self.accepted: set[str] = set()

    def _lives(self, early: bool, end: asyncio.Event) -> list[tuple[str, str | None, asyncio.Event]]:
        """The gateway, the key and the end of each of a client's lives."""
        return [(next(self._urls), self._key if early else None, self.keyed), (next(self._urls), self._key, end)]

    async def produce(self, early: bool) -> None:
        for url, key, end in self._lives(early, self.produced_all):
            async with Producer(url, token=key, deadline_ms=1000 * PATIENCE_S) as producer:
                while not end.is_set():
                    values = [f"v{next(self._ids)}" for _ in range(random.randint(1, 8))]
                    await producer.send_many(self._name, [NewRecord(value, key=value) for value in values])
                    self.produced += values
                    await asyncio.sleep(0.3)

    async def consume(self, early: bool) -> None:
        for url, key, end in self._lives(early, self.done):
            async with ShareConsumer(
                url, self._name, [self._name], token=key, max_records=20, request_timeout_ms=1000 * PATIENCE_S
            ) as consumer:
                while not end.is_set():
                    records = await consumer.poll(300)
                    self.delivered.update(record.value for record in records)
                    (await consumer.commit()).raise_failures()
                    self.accepted.update(record.value for record in records)

    async def settle_in_transactions(self) -> None:
        """A producer with a transactional id, which settles what it consumes with what it produces."""
        url, name = next(self._urls), self._name
        async with (
            Producer(url, transactional_id=f"{name}-py", token=self._key, deadline_ms=1000 * PATIENCE_S) as producer,
            ShareConsumer(
                url,
                f"{name}-in-transactions",
                [name],
                acknowledgement="explicit",
                token=self._key,
                max_records=20,
                request_timeout_ms=1000 * PATIENCE_S,
            ) as consumer,
        ):
            while not self.done.is_set():
                records = await consumer.poll(300)
                async with producer.transaction(timeout_ms=HOUR_MS) as transaction:
                    for record in records:
                        await transaction.send_soon(f"{name}-copies", record.value)
                        transaction.acknowledge(record)

    async def stream(self) -> None:
        """One stream, with a key from the beginning, through all modes and restarts."""
        group = f"{self._name}-streamed"
        async with RecordStream(next(self._urls), group, [self._name], resume_ms=20_000, token=self._key) as stream:
            async for record in stream:
                self.streamed[record.value] += 1
                await stream.acknowledge(record)

    async def until(self, happened: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened():  # noqa: ASYNC110 - what is waited for happens in other processes too
                await asyncio.sleep(0.02)


class Caller:
    """Idempotency keys and transactions that one program uses at both gateways, in every mode.

    `transactions`: begun in the first mode, and open until `finish`.
    """

    def __init__(self, urls: Sequence[str], name: str, early: bool, key: str) -> None:
        self._urls = urls
        self._name = f"{name}-{'early' if early else 'late'}"
        self._topic = f"{name}-out"
        self._headers = {"Authorization": f"Bearer {key}"} if early else {}
        self._http = httpx.AsyncClient(timeout=30, verify=False)
        self._values = itertools.count()
        self._answers: dict[str, tuple[Any, Any]] = {}
        """By idempotency key: the request and its answer."""
        self._transactions: list[str] = []
        self._epoch = -1
        self.values: list[str] = []

    def use_key(self, key: str) -> None:
        self._headers = {"Authorization": f"Bearer {key}"}

    async def call(self, url: str, path: str, body: Any, headers: dict[str, str] | None = None) -> Any:
        """One call, repeated as often as it fails in a way that a repeat may mend."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            try:
                answer = await self._http.post(url + path, json=body, headers={**self._headers, **(headers or {})})
            except httpx.TransportError:
                await asyncio.sleep(0.05)
                continue
            if answer.status_code < 300:
                return answer.json()
            problem = answer.json()
            assert problem["retriable"], answer.text
            await asyncio.sleep(0.05)
        raise AssertionError(f"{path} is not answered: {answer.text}")

    async def begin(self) -> None:
        for url, named in zip(self._urls, ({}, {"transactional_id": f"{self._name}-1"}), strict=True):
            begun = await self.call(url, "/v1/transactions", {"timeout_ms": HOUR_MS, **named})
            self._transactions.append(begun["transaction_id"])
            self._epoch = begun["producer_epoch"]

    async def visit(self) -> None:
        """Use every idempotency key again, begin others, and produce in each transaction, at both gateways."""
        for url in self._urls:
            for idempotency_key, (body, answer) in self._answers.items():
                assert (await self._produce(url, body, idempotency_key))["records"] == answer["records"]
            for number, transaction in enumerate([None, *self._transactions]):
                value = f"{self._name}-{next(self._values)}"
                body = {"records": [{"value": value}]}
                self.values.append(value)
                if number == 0:
                    self._answers[value] = body, await self._produce(url, body, value)
                else:
                    await self._produce(url, body, value, transaction)

    async def _produce(self, url: str, body: Any, idempotency_key: str, transaction: str | None = None) -> Any:
        headers = {"Idempotency-Key": idempotency_key} | ({"Transaction-Id": transaction} if transaction else {})
        return await self.call(url, f"/v1/topics/{self._topic}/records", body, headers)

    async def finish(self) -> None:
        """Commit, and begin once more with the epoch of the first begin."""
        for url, transaction in zip(reversed(self._urls), self._transactions, strict=True):
            committed = await self.call(url, f"/v1/transactions/{transaction}/commit", {})
            assert committed["state"] == "committed"
        named = {"transactional_id": f"{self._name}-1", "producer_epoch": self._epoch}
        begun = await self.call(self._urls[0], "/v1/transactions", named)
        await self.call(self._urls[1], f"/v1/transactions/{begun['transaction_id']}/abort", {})
        await self._http.aclose()


async def change(stack: Stack, mode: str, load: Load, callers: Sequence[Caller]) -> None:
    """Restart every service, one after another; gateways with another mode."""
    cluster = GatewayCluster(stack)
    for service in reversed(stack.services):
        before = len(load.accepted)
        await load.until(lambda at_least=before + ENOUGH: len(load.accepted) >= at_least)
        if service in cluster.gateways:
            service.environment["SHAREQUEUE_GATEWAY_AUTHENTICATION"] = mode
        await asyncio.to_thread(service.stop)
        service.start()
        await load.until(service.ready)
        await asyncio.to_thread(cluster.wait_until_known, cluster.gateways)
        for caller in callers:
            await caller.visit()


async def roll_out(stack: Stack, name: str, key: str) -> tuple[Load, list[Caller]]:
    load = Load(stack.urls, name, key)
    callers = [Caller(stack.urls, name, early, key) for early in (EARLY, LATE)]
    async with asyncio.TaskGroup() as tasks:
        producers = [tasks.create_task(load.produce(early)) for early in (EARLY, LATE)]
        for early in (EARLY, LATE):
            tasks.create_task(load.consume(early))
        tasks.create_task(load.settle_in_transactions())
        streaming = tasks.create_task(load.stream())
        for caller in callers:
            await caller.begin()
            await caller.visit()
        await change(stack, "optional", load, callers)
        load.keyed.set()
        for caller in callers:
            caller.use_key(key)
            await caller.visit()
        await change(stack, "required", load, callers)
        for caller in callers:
            await caller.finish()
        load.produced_all.set()
        await asyncio.wait(producers)
        await load.until(lambda: len(load.accepted) >= len(load.produced) <= len(load.streamed))
        load.done.set()
        streaming.cancel()
    return load, callers


def read(http: httpx.Client, topic: str) -> list[str]:
    """All committed records of a topic with one partition."""
    values: list[str] = []
    offset = 0
    while True:
        query = {"offset": offset, "max_records": 5000, "isolation_level": "read_committed"}
        page = http.get(f"/v1/topics/{topic}/partitions/0/records", params=query).raise_for_status().json()
        values += [record["value"] for record in page["records"]]
        offset = page["next_offset"]
        if offset >= page["log_end_offset"]:
            return values


@pytest.mark.soak
def test_work_goes_on_while_a_cluster_begins_to_ask_for_keys(stack: Stack, tmp_path: Path, name: str) -> None:
    access = Access(stack, tmp_path / "data")
    admin, key = access.key(ADMIN), access.key(USER)
    for operation, kind in (("READ", "TOPIC"), ("WRITE", "TOPIC"), ("READ", "GROUP"), ("WRITE", "TRANSACTIONAL_ID")):
        access.allow(USER, operation, kind, name, "PREFIXED")
    with httpx.Client(base_url=stack.url, headers={"Authorization": f"Bearer {admin}"}, timeout=40) as http:
        for topic, partitions in ((name, PARTITIONS), (f"{name}-out", 1), (f"{name}-copies", 1)):
            http.post("/v1/topics", json={"name": topic, "partitions": partitions}).raise_for_status()
        load, callers = uvloop.run(roll_out(stack, name, key))
        assert httpx.get(f"{stack.url}/v1/topics", timeout=40).status_code == 401
        for counted in load.delivered, load.streamed:
            assert [value for value, times in counted.items() if times > 1] == []
        assert load.streamed.keys() == set(load.produced)
        assert sorted(load.accepted) == sorted(load.produced)
        assert sorted(read(http, f"{name}-out")) == sorted(value for caller in callers for value in caller.values)
        copies = read(http, f"{name}-copies")
        assert len(copies) == len(set(copies))
        assert set(copies) <= set(load.produced)
    access.close()

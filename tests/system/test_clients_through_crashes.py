"""The Python client while every service is killed or stopped now and then: the results of `commit` and `close` hold.

Consumers come and go, as members or not, in each way of acknowledging, following leaders or not; a poll may tell of
words that were not applied, and nothing else may ever be raised.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import httpx
import pytest
import uvloop

from sharequeue.client import (
    AcknowledgementError,
    AcknowledgementFailure,
    Committed,
    Producer,
    Record,
    ShareConsumer,
)
from sharequeue.stack.stack import Stack, temporary_stack

PARTITIONS = 6
PRODUCERS, CONSUMERS = 2, 5
WORDS = {"implicit": 1.0, "explicit": 0.9, "deferred": 0.8}
"""How many of the records each kind of consumer accepts; the others it releases, or never says a word of."""
LOCK_MS = 12_000
SURE_MS = 8000
"""With so much left of a lock, as a consumer counts it, nobody else has the record. A consumer counts from the arrival
of the answer, which a busy machine may delay by so long."""
PATIENCE_MS = 120_000
"""How long services may be away for a client: a busy machine takes its time to start them."""
SETTINGS = {
    "share.assignment.interval.ms": "0",
    "share.heartbeat.interval.ms": "500",
    "share.session.timeout.ms": "5000",
    "share.record.lock.duration.ms": str(LOCK_MS),
    "share.delivery.count.limit": "100",
}


class Use:
    """One consumer's life, and what it was promised: `said` is accepted once a commit or close says nothing against it.

    If the lock may have ended before that, another member may have accepted it too: a finished record is not a failure.
    """

    def __init__(self, url: str, group: str, chance: random.Random, accepted: Counter[str], late: set[str]) -> None:
        self.kind = chance.choice(list(WORDS))
        member = chance.random() < 0.7
        self.consumer = ShareConsumer(
            url,
            group,
            () if member else [group],
            acknowledgement=self.kind,
            max_records=chance.choice([1, 10, 500]),
            follow_leaders=chance.random() < 0.4,
            request_timeout_ms=PATIENCE_MS,
            on_acknowledged=self._heard,
        )
        if member:
            self.consumer.subscribe([group])
        self._chance = chance
        self._accepted = accepted
        self._late = late
        self._said: list[Record] = []
        self._returned: list[Record] = []

    async def run(self, polls: int, stop: asyncio.Event) -> None:
        for _ in range(polls):
            if stop.is_set():
                break
            self._say(await self.consumer.poll(self._chance.choice([0, 100, 500])))
            if self._chance.random() < 0.3:
                self._said += self._returned
                self._returned = []
                self._take_back((await self.consumer.commit()).failures)
                self._settled()
        await self.consumer.close()
        self._settled()

    def _say(self, records: list[Record]) -> None:
        if self.kind == "implicit":
            self._said += self._returned
            self._returned = records
            return
        for record in records:
            if self._chance.random() < WORDS[self.kind]:
                self.consumer.acknowledge(record)
                self._said.append(record)
            elif self.kind == "explicit":
                self.consumer.acknowledge(record, "release")

    def _settled(self) -> None:
        self._accepted.update(record.value for record in self._said if record.lock_remaining_ms > SURE_MS)
        self._late.update(record.value for record in self._said if record.lock_remaining_ms <= SURE_MS)
        self._said.clear()

    def _heard(self, _: Committed, error: Exception | None) -> None:
        if isinstance(error, AcknowledgementError):
            self._take_back(error.failures)

    def _take_back(self, failures: Sequence[AcknowledgementFailure]) -> None:
        ranges = [(f.topic, f.partition, range(f.first_offset, f.last_offset + 1)) for f in failures]
        self._said, self._returned = (
            [
                record
                for record in records
                if not any((record.topic, record.partition) == at[:2] and record.offset in at[2] for at in ranges)
            ]
            for records in (self._said, self._returned)
        )


class Clients:
    """Producers and consumers of one topic and one group, through any gateway, until `stop` is set."""

    def __init__(self, urls: list[str], name: str, seed: int) -> None:
        self._urls = urls
        self._name = name
        self._seed = seed
        self.stop = asyncio.Event()
        self.produced: list[str] = []
        self.accepted: Counter[str] = Counter()
        self.late: set[str] = set()

    async def produce(self, number: int) -> None:
        chance = random.Random(self._seed * 100 + number)
        async with Producer(chance.choice(self._urls), deadline_ms=PATIENCE_MS) as producer:
            while not self.stop.is_set():
                values = [f"{number}-{len(self.produced)}-{index}" for index in range(chance.randint(1, 20))]
                await producer.send_many(self._name, values)
                self.produced += values
                await asyncio.sleep(chance.uniform(0, 0.05))

    async def consume(self, number: int) -> None:
        chance = random.Random(self._seed * 1000 + number)
        while not self.stop.is_set():
            use = Use(chance.choice(self._urls), self._name, chance, self.accepted, self.late)
            await use.run(chance.randint(1, 100), self.stop)

    async def drain(self) -> None:
        """Accept what is left, until the group has finished all. Consumers that were closed while nobody answered leave
        records whose locks must end first."""
        async with (
            ShareConsumer(self._urls[0], self._name, [self._name]) as consumer,
            httpx.AsyncClient(timeout=60) as http,
        ):
            while not await self._all_finished(http):
                records = await consumer.poll(500)
                (await consumer.commit()).raise_failures()
                self.accepted.update(record.value for record in records)

    async def _all_finished(self, http: httpx.AsyncClient) -> bool:
        try:
            answer = await http.get(f"{self._urls[0]}/v1/share-groups/{self._name}/offsets", timeout=60)
        except httpx.TransportError:
            return False
        topics = answer.json()["topics"] if answer.status_code == 200 else []
        return bool(topics) and not any(place["lag"] for topic in topics for place in topic["partitions"])


async def break_now_and_then(stack: Stack, seed: int, crashes: int) -> None:
    chance = random.Random(seed)
    for _ in range(crashes):
        await asyncio.sleep(chance.uniform(0.3, 1.5))
        victim = chance.choice(stack.services)
        if chance.random() < 0.5:
            victim.kill()
        else:
            await asyncio.to_thread(victim.stop)
        await asyncio.sleep(chance.uniform(0, 1.5))
        victim.start()


async def through_crashes(stack: Stack, name: str, seed: int, crashes: int) -> None:
    async with httpx.AsyncClient(base_url=stack.url, timeout=30) as http:
        made = await http.post("/v1/topics", json={"name": name, "partitions": PARTITIONS})
        assert made.status_code == 201
        set_up = await http.patch(f"/v1/share-groups/{name}/config", json={"config": SETTINGS})
        assert set_up.status_code == 200
    clients = Clients([service.url for service in stack.services if service.name.startswith("gateway")], name, seed)
    async with asyncio.timeout(300 + 10 * crashes), asyncio.TaskGroup() as tasks:
        for number in range(PRODUCERS):
            tasks.create_task(clients.produce(number))
        for number in range(CONSUMERS):
            tasks.create_task(clients.consume(number))
        await break_now_and_then(stack, seed, crashes)
        clients.stop.set()
    async with asyncio.timeout(120):
        await clients.drain()
    assert len(clients.produced) > 100
    assert {*clients.accepted, *clients.late} == set(clients.produced)
    assert clients.accepted.most_common(1)[0][1] == 1
    assert len(clients.accepted) > len(clients.late)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, new_database: Callable, new_redis: Callable) -> Iterator[Stack]:
    """Two of each service. A test may break what it starts again."""
    stores = {"postgres_url": new_database(), "redis_url": new_redis()}
    data_dir = tmp_path_factory.mktemp("stack")
    with temporary_stack(data_dir, **stores, gateways=2, coordinators=2, share_coordinators=2) as stack:
        yield stack


@pytest.mark.soak
def test_clients_survive_many_crashes(pairs: Stack, name: str, seed: int) -> None:
    uvloop.run(through_crashes(pairs, name, seed, crashes=50))

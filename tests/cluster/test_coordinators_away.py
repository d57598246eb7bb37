"""All group coordinators are away for longer than `access_stale_ms` while clients work: gateways hand out nothing more,
finish what has begun, and nothing that was accepted comes again. When the coordinators are back, all goes on.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from sharequeue.client import Producer, ShareConsumer
from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.access import ADMIN, SETTINGS, Access, caller

PARTITIONS = 4
HELD = 100
"""Records that each holder has when the coordinators go."""
PATIENCE_S = 600


@pytest.fixture
def stack(request: pytest.FixtureRequest, tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Stack]:
    """The parameter: `access_stale_ms`."""
    stores = {"postgres_url": database_url, "redis_url": redis_url}
    settings = {**SETTINGS, "SHAREQUEUE_GATEWAY_ACCESS_STALE_MS": str(request.param)}
    with temporary_stack(tmp_path / "data", **stores, gateways=2, coordinators=2, settings=settings) as stack:
        yield stack


class Load:
    """Clients of one topic and one group; every record is counted where it is delivered and where it is accepted."""

    def __init__(self, urls: Sequence[str], name: str, key: str) -> None:
        self._urls = urls
        self._name = name
        self._key = key
        self._ids = itertools.count()
        self.http = httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60, verify=False)
        self.away = asyncio.Event()
        """Set once gateways hand out nothing more."""
        self.produced_all, self.done = asyncio.Event(), asyncio.Event()
        self.produced: list[int] = []
        self.delivered: Counter[int] = Counter()
        self.accepted: set[int] = set()
        self.holding = 0

    async def produce(self, url: str) -> None:
        producer = Producer(url, token=self._key, deadline_ms=1000 * PATIENCE_S)
        try:
            while not self.produced_all.is_set():
                values = [next(self._ids) for _ in range(10)]
                await producer.send_many(self._name, values)
                self.produced += values
                await asyncio.sleep(0.2)
        finally:
            await producer.close(timeout_ms=1000)  # a failed test waits no longer

    def _consumer(self, url: str, kind: Any, most: int) -> ShareConsumer:
        return ShareConsumer(
            url,
            self._name,
            [self._name],
            acknowledgement=kind,
            max_records=most,
            request_timeout_ms=1000 * PATIENCE_S,
            token=self._key,
        )

    async def hold(self, url: str, pause_s: float) -> None:
        """Take records, and accept one after another while the coordinators are away."""
        async with self._consumer(url, "deferred", HELD) as consumer:
            records = []
            while len(records) < HELD:
                records += await consumer.poll(300)
            self.delivered.update(record.value for record in records)
            self.holding += 1
            await self.away.wait()
            for record in records:
                consumer.acknowledge(record)
                (await consumer.commit()).raise_failures()
                self.accepted.add(record.value)
                await asyncio.sleep(pause_s)

    async def consume(self, url: str) -> None:
        """Take and accept whatever there is, through the whole test."""
        async with self._consumer(url, "implicit", 50) as consumer:
            while not self.done.is_set():
                records = await consumer.poll(300)
                self.delivered.update(record.value for record in records)
                (await consumer.commit()).raise_failures()
                self.accepted.update(record.value for record in records)

    async def refused(self, url: str) -> bool:
        """Whether a gateway refuses all that begins something."""
        path, fetch = f"{url}/v1/topics/{self._name}", {"topics": [self._name], "member_id": "m", "max_wait_ms": 0}
        answers = [await self.http.get(f"{path}/partitions/0/records")]
        if answers[0].status_code == 200:
            return False
        answers.append(await self.http.post(f"{path}/records", json={"records": [{"value": -1}]}))
        answers.append(await self.http.post(f"{url}/v1/share-groups/{self._name}/fetch", json=fetch))
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == (503, "COORDINATOR_NOT_AVAILABLE"), answer.text
            assert "has not heard of changes of keys and rights for too long" in answer.text
        return True

    async def until(self, happened: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened():  # noqa: ASYNC110 - what is waited for happens in other processes too
                await asyncio.sleep(0.05)


async def outage(stack: Stack, name: str, key: str, away_s: float) -> Load:
    """Take both group coordinators away, let the holders accept all that they hold in `away_s`, start them again."""
    load = Load(stack.urls, name, key)
    coordinators = [service for service in stack.services if service.name.startswith("group coordinator")]
    async with asyncio.TaskGroup() as tasks:
        producers = [tasks.create_task(load.produce(url)) for url in stack.urls]
        holders = [tasks.create_task(load.hold(url, away_s / HELD)) for url in stack.urls * 2]
        await load.until(lambda: load.holding == len(holders))
        for url in stack.urls:
            tasks.create_task(load.consume(url))
        begun = (await load.http.post(f"{stack.url}/v1/transactions", json={"timeout_ms": 600_000})).json()
        transaction = f"/v1/transactions/{begun['transaction_id']}/commit"
        for coordinator in coordinators:
            coordinator.kill()
        for url in stack.urls:
            while not await load.refused(url):  # noqa: ASYNC110 - it happens in another process
                await asyncio.sleep(0.1)
        load.away.set()
        ended = await load.http.post(f"{stack.urls[1]}{transaction}", json={})
        assert ended.json()["state"] == "committed", ended.text
        await load.until(lambda: all(holder.done() for holder in holders))
        for url in stack.urls:
            assert await load.refused(url)
        for coordinator in coordinators:
            coordinator.start()
        produced = len(load.produced)
        await load.until(lambda: len(load.produced) > produced)
        load.produced_all.set()
        await asyncio.wait(producers)
        await load.until(lambda: len(load.accepted) >= len(load.produced))
        load.done.set()
    await load.http.aclose()
    return load


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stack", "away_s"),
    [pytest.param(2000, 5, id="short"), pytest.param(60_000, 240, id="five minutes")],
    indirect=["stack"],
)
def test_nothing_accepted_comes_again_when_the_coordinators_were_away(
    stack: Stack, tmp_path: Path, name: str, away_s: float
) -> None:
    access, user = Access(stack, tmp_path / "data"), "User:worker"
    with caller(stack, access.key(ADMIN)) as admin:
        admin.create_topic(name, PARTITIONS)
        admin.configure(name, share_auto_offset_reset="earliest")
    for operation, kind in (("READ", "TOPIC"), ("WRITE", "TOPIC"), ("READ", "GROUP")):
        access.allow(user, operation, kind, name)
    load = uvloop.run(outage(stack, name, access.key(user), away_s))
    access.close()
    assert [value for value, times in load.delivered.items() if times > 1] == []
    assert load.accepted == set(load.produced)

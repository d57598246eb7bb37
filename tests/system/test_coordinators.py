"""Two group coordinators and two share coordinators under load: one is killed, paused or stopped, the other takes over."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.protocol.shards import CLUSTER, shard_of
from sharequeue.stack import ServiceProcess, Stack
from tests.system.load import Load

KINDS = {"group coordinator": 17, "share coordinator": 16}
"""How many shards each kind has, the cluster's one among them."""
HAND_OVER_S = 5.0
SOON_S = 20.0


@pytest.fixture
def cluster(tmp_path: Path, new_database: Callable[[], str], new_redis: Callable[[], str]) -> Iterator[Stack]:
    stack = Stack(
        tmp_path / "data", postgres_url=new_database(), redis_url=new_redis(), coordinators=2, share_coordinators=2
    )
    try:
        stack.start()
        yield stack
    finally:
        for service in stack.services:
            if service.alive() and service.process is not None:
                service.process.send_signal(signal.SIGCONT)
        stack.stop()


def pair(stack: Stack, kind: str) -> tuple[ServiceProcess, ServiceProcess]:
    return stack.service(kind), stack.service(f"{kind} 2")


class Map:
    """Who owns what, asked of one instance."""

    def __init__(self, stack: Stack, tmp_path: Path) -> None:
        token = (tmp_path / "data" / "cluster.token").read_text().strip()
        self._http = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=5)
        self._stack = stack

    def owners(self, of: ServiceProcess) -> dict[int, str]:
        """URL by shard."""
        answer = self._http.get(f"{of.url}/v1/shards").raise_for_status().json()
        return {entry["shard"]: entry["url"] for entry in answer["shards"]}

    def find(self, at: ServiceProcess, key_type: str, key: str) -> httpx.Response:
        return self._http.get(f"{at.url}/v1/coordinators", params={"key_type": key_type, "key": key})

    def balanced(self, kind: str) -> bool:
        first, second = pair(self._stack, kind)
        counts = [list(self.owners(first).values()).count(service.url) for service in (first, second)]
        return sum(counts) == KINDS[kind] and abs(counts[0] - counts[1]) <= 1


@pytest.fixture
def shards(cluster: Stack, tmp_path: Path) -> Map:
    known = Map(cluster, tmp_path)
    wait_until(lambda: all(known.balanced(kind) for kind in KINDS), SOON_S)
    return known


def wait_until(condition: Callable[[], bool], seconds: float) -> float:
    """Returns: after how many seconds it was so."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it takes too long"
        time.sleep(0.02)
    return time.monotonic() - started


def owns_all(known: Map, survivor: ServiceProcess, kind: str) -> Callable[[], bool]:
    return lambda: list(known.owners(survivor).values()) == [survivor.url] * KINDS[kind]


async def under_load(stack: Stack, seed: int, trouble: Callable[[], Awaitable[None]]) -> None:
    load = Load(stack.url, "coordinators", seed, partitions=8)
    await load.start()
    try:
        await trouble()
        load.check()
        await load.finish()
    except BaseException:
        await load.cancel()
        raise
    assert not load.book.broken, "\n".join(load.book.broken[:20])
    assert len(load.book.produced) > 100


def turns(stack: Stack) -> list[tuple[list[ServiceProcess], list[ServiceProcess]]]:
    """(victims, survivors), one of each kind; in turn, so that every shard loses its owner once."""
    firsts, seconds = zip(*(pair(stack, kind) for kind in KINDS), strict=True)
    return [(list(firsts), list(seconds)), (list(seconds), list(firsts))]


async def taken_over(known: Map, survivors: list[ServiceProcess], seconds: float) -> None:
    started = time.monotonic()
    for survivor, kind in zip(survivors, KINDS, strict=True):
        await asyncio.to_thread(wait_until, owns_all(known, survivor, kind), seconds)
        print(f"{kind}: taken over within {time.monotonic() - started:.2f} s")


async def balanced_again(known: Map, services: list[ServiceProcess]) -> None:
    ready = all_of(*(service.ready for service in services))
    await asyncio.to_thread(wait_until, ready, SOON_S)
    await asyncio.to_thread(wait_until, lambda: all(known.balanced(kind) for kind in KINDS), SOON_S)


def all_of(*conditions: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: all(condition() for condition in conditions)


def test_one_of_each_is_killed_under_load(cluster: Stack, shards: Map, seed: int) -> None:
    async def trouble() -> None:
        for victims, survivors in turns(cluster):
            await asyncio.sleep(0.5)
            for victim in victims:
                victim.kill()
            await taken_over(shards, survivors, HAND_OVER_S)
            for victim in victims:
                await asyncio.to_thread(victim.start)
            await balanced_again(shards, victims)

    asyncio.run(under_load(cluster, seed, trouble))


def test_one_of_each_is_paused_past_its_lease_under_load(
    cluster: Stack, shards: Map, seed: int, tmp_path: Path
) -> None:
    """What it had decided and not yet written is refused when it goes on: it learns that it lost its shards."""

    async def trouble() -> None:
        for paused, survivors in turns(cluster):
            await asyncio.sleep(0.5)
            send(signal.SIGSTOP, paused)
            await taken_over(shards, survivors, HAND_OVER_S)
            await asyncio.sleep(0.5)
            send(signal.SIGCONT, paused)
            await balanced_again(shards, paused)

    asyncio.run(under_load(cluster, seed, trouble))
    for service in (service for kind in KINDS for service in pair(cluster, kind)):
        lines = [json.loads(line) for line in log_of(tmp_path, service).splitlines()]
        (lost,) = [line["shards"] for line in lines if line["message"] == "lost shards to another owner"]
        assert len(lost) in (8, 9)


def send(number: signal.Signals, services: list[ServiceProcess]) -> None:
    for service in services:
        assert service.process is not None
        service.process.send_signal(number)


def log_of(tmp_path: Path, service: ServiceProcess) -> str:
    return (tmp_path / "data" / "logs" / f"{service.name.replace(' ', '-')}.log").read_text()


def test_one_of_each_stops_cleanly_under_load(cluster: Stack, shards: Map, seed: int) -> None:
    """No lease is waited for."""

    async def trouble() -> None:
        for leaving, survivors in turns(cluster):
            await asyncio.sleep(0.5)
            for service in leaving:
                await asyncio.to_thread(service.stop)
            await taken_over(shards, survivors, 1.5)
            for service in leaving:
                await asyncio.to_thread(service.start)
            await balanced_again(shards, leaving)

    asyncio.run(under_load(cluster, seed, trouble))


def test_every_instance_finds_the_owner_of_every_key(cluster: Stack, shards: Map) -> None:
    topic_id = "4be9f4a1-5a0e-4b4c-9e3c-000000000001"
    for number in range(20):
        keys = {"group": f"g{number}", "share": f"g:{number}:{topic_id}:3"}
        for key_type, key in keys.items():
            owner = shards.owners(cluster.service(f"{key_type} coordinator"))[shard_of(key, 16)]
            for kind in KINDS:
                for instance in pair(cluster, kind):
                    (found,) = shards.find(instance, key_type, key).raise_for_status().json()["coordinators"]
                    assert (found["key"], found["url"], found["error_code"]) == (key, owner, 0)
    for key_type, key in (("share", "g:0"), ("share", "g:no-id:0"), ("group", "a/b"), ("transaction", "t")):
        refused = shards.find(cluster.service("group coordinator 2"), key_type, key)
        assert (refused.status_code, refused.json()["kafka_code"]) == (400, 42)


def test_a_call_at_the_wrong_instance_is_told_where_to_go(cluster: Stack, shards: Map, tmp_path: Path) -> None:
    """NOT_COORDINATOR, definite and retriable, before anything is done."""
    first, second = pair(cluster, "group coordinator")
    owner = shards.owners(first)[shard_of(CLUSTER, 16)]
    wrong = second if owner == first.url else first
    token = (tmp_path / "data" / "cluster.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{wrong.url}/v1/topics", json={"name": "t"}, headers=headers, timeout=5)
    assert answer.status_code == 421
    document = answer.json()
    assert (document["kafka_code"], document["retriable"], document["definite"]) == (16, True, True)
    assert document["owner_url"] == owner
    assert httpx.post(f"{cluster.url}/v1/topics", json={"name": "t"}, timeout=20).status_code == 201

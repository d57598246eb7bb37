"""Two group coordinators and two share coordinators under load: one is killed, paused or stopped,
the other takes over."""

import asyncio
import json
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.system.load import Load

KINDS = {"group coordinator": 17, "share coordinator": 16}
"""How many shards each kind has, the cluster's one among them."""
SOON_S = 60.0


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stack")


@pytest.fixture(scope="module")
def cluster(data_dir: Path, new_database: Callable[[], str], new_redis: Callable[[], str]) -> Iterator[Stack]:
    """Restarts and resumes each service that the test ended or paused."""
    stores = {"postgres_url": new_database(), "redis_url": new_redis()}
    with temporary_stack(data_dir, **stores, coordinators=2, share_coordinators=2) as stack:
        yield stack


def pair(stack: Stack, kind: str) -> tuple[ServiceProcess, ServiceProcess]:
    return stack.service(kind), stack.service(f"{kind} 2")


class Map:
    """The owner of each shard, according to one instance."""

    def __init__(self, stack: Stack, data_dir: Path) -> None:
        token = (data_dir / "cluster.token").read_text().strip()
        self._http = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=30)
        self._stack = stack

    def owners(self, of: ServiceProcess) -> dict[int, str]:
        """URL by shard."""
        answer = self._http.get(f"{of.url}/v1/shards").raise_for_status().json()
        return {entry["shard"]: entry["url"] for entry in answer["shards"]}

    def balanced(self, kind: str) -> bool:
        """Whether both own as many, and both say so: one that was paused still knows the owners of before."""
        first, second = pair(self._stack, kind)
        owners = self.owners(first)
        counts = [list(owners.values()).count(service.url) for service in (first, second)]
        return owners == self.owners(second) and sum(counts) == KINDS[kind] and abs(counts[0] - counts[1]) <= 1


@pytest.fixture
def shards(cluster: Stack, data_dir: Path) -> Map:
    known = Map(cluster, data_dir)
    wait_until(lambda: all(known.balanced(kind) for kind in KINDS))
    return known


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def owns_all(known: Map, survivor: ServiceProcess, kind: str) -> Callable[[], bool]:
    return lambda: list(known.owners(survivor).values()) == [survivor.url] * KINDS[kind]


async def under_load(stack: Stack, name: str, seed: int, trouble: Callable[[Load], Awaitable[None]]) -> None:
    load = Load(stack.url, name, seed, partitions=8, pause_s=0.08)
    await load.start()
    try:
        await trouble(load)
        load.check()
        await load.finish()
    except BaseException:
        await load.cancel()
        raise
    assert not load.book.broken, "\n".join(load.book.broken[:20])


def turns(stack: Stack) -> list[tuple[list[ServiceProcess], list[ServiceProcess]]]:
    """(victims, survivors), one of each kind; in turn, so that every shard loses its owner once."""
    firsts, seconds = zip(*(pair(stack, kind) for kind in KINDS), strict=True)
    return [(list(firsts), list(seconds)), (list(seconds), list(firsts))]


async def taken_over(known: Map, survivors: list[ServiceProcess]) -> None:
    started = time.monotonic()
    for survivor, kind in zip(survivors, KINDS, strict=True):
        await asyncio.to_thread(wait_until, owns_all(known, survivor, kind))
        print(f"{kind}: taken over within {time.monotonic() - started:.2f} s")


async def balanced_again(known: Map, services: list[ServiceProcess]) -> None:
    ready = all_of(*(service.ready for service in services))
    await asyncio.to_thread(wait_until, ready)
    await asyncio.to_thread(wait_until, lambda: all(known.balanced(kind) for kind in KINDS))


def all_of(*conditions: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: all(condition() for condition in conditions)


@pytest.mark.soak
def test_one_of_each_is_killed_under_load(cluster: Stack, shards: Map, name: str, seed: int) -> None:
    async def trouble(load: Load) -> None:
        for victims, survivors in turns(cluster):
            await load.go_on()
            for victim in victims:
                victim.kill()
            await taken_over(shards, survivors)
            for victim in victims:
                victim.start()  # not from a thread: a process ends with the thread that started it
            await balanced_again(shards, victims)

    asyncio.run(under_load(cluster, name, seed, trouble))


@pytest.mark.soak
def test_one_of_each_is_paused_past_its_lease_under_load(
    cluster: Stack, shards: Map, name: str, seed: int, data_dir: Path
) -> None:
    """When it resumes, its decided but unwritten changes are refused: it learns that it lost its shards."""

    async def trouble(load: Load) -> None:
        for paused, survivors in turns(cluster):
            await load.go_on()
            send(signal.SIGSTOP, paused)
            await taken_over(shards, survivors)
            await load.go_on()
            send(signal.SIGCONT, paused)
            await balanced_again(shards, paused)

    asyncio.run(under_load(cluster, name, seed, trouble))
    for service in (service for kind in KINDS for service in pair(cluster, kind)):
        lost = shards_logged(data_dir, service, "lost shards to another owner")
        assert any(len(shards) in (8, 9) for shards in lost), lost


def send(number: signal.Signals, services: list[ServiceProcess]) -> None:
    for service in services:
        assert service.process is not None
        service.process.send_signal(number)


def shards_logged(data_dir: Path, service: ServiceProcess, message: str) -> list[list[int]]:
    """Which shards a service logged with a message, each time."""
    log = (data_dir / "logs" / f"{service.name.replace(' ', '-')}.log").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    return [line["shards"] for line in lines if line["message"] == message]


@pytest.mark.soak
def test_one_of_each_stops_cleanly_under_load(
    cluster: Stack, shards: Map, name: str, seed: int, data_dir: Path
) -> None:
    """No lease is waited for: they give all back."""

    async def trouble(load: Load) -> None:
        for leaving, survivors in turns(cluster):
            await load.go_on()
            for service in leaving:
                await asyncio.to_thread(service.stop)
                assert len(shards_logged(data_dir, service, "gave back")[-1]) in (8, 9)
            await taken_over(shards, survivors)
            for service in leaving:
                service.start()
            await balanced_again(shards, leaving)

    asyncio.run(under_load(cluster, name, seed, trouble))

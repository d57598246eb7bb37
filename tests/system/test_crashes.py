"""kill -9 of each process under load: nothing acknowledged is lost, no accepted record returns, counts continue."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from sharequeue.stack.postgres import Postgres
from sharequeue.stack.redis import Redis
from sharequeue.stack.stack import ServiceProcess, Stack, temporary_stack
from tests.system.load import Load

VICTIMS = ("gateway", "group coordinator", "share coordinator", "PostgreSQL", "Redis")
FEW_KILLS, MANY_KILLS = 2, 20
ENOUGH = 100
"""Records that are produced at least, however often the gateway is killed before it is up."""


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with stores of its own. A test may break what it starts again."""
    with temporary_stack(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


def part(stack: Stack, name: str) -> ServiceProcess | Postgres | Redis:
    """A service or a store of the stack."""
    assert stack.postgres is not None
    assert stack.redis is not None
    stores: dict[str, Postgres | Redis] = {"PostgreSQL": stack.postgres, "Redis": stack.redis}
    return stores.get(name) or stack.service(name)


async def start(killed: ServiceProcess | Postgres | Redis) -> None:
    """From the main thread: a process ends with the thread that started it."""
    if isinstance(killed, ServiceProcess):
        killed.start()
    else:
        killed.launch()
        await asyncio.to_thread(killed.wait)


async def under_load(stack: Stack, name: str, victims: list[str], seed: int, pause_s: float = 0.02) -> Load:
    """Run a load while the victims are killed one after the other, at random moments. Returns: the finished load."""
    load = Load(stack.url, name, seed, pause_s=pause_s)
    await load.start()
    moments = random.Random(seed)
    try:
        for victim in victims:
            await asyncio.sleep(moments.uniform(0.2, 1.2))
            load.check()
            killed = part(stack, victim)
            killed.kill()
            await asyncio.sleep(moments.uniform(0, 0.5))
            await start(killed)
        while len(load.book.produced) <= ENOUGH:
            load.check()
            await asyncio.sleep(0.05)
        await load.finish()
    except BaseException:
        await load.cancel()
        raise
    return load


def judge(load: Load) -> None:
    assert not load.book.broken, "\n".join(load.book.broken[:20])


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_crash_loses_nothing_acknowledged(own_stack: Stack, name: str, victim: str, seed: int) -> None:
    judge(asyncio.run(under_load(own_stack, name, [victim] * FEW_KILLS, seed, pause_s=0.06)))


@pytest.mark.soak
def test_crashes_of_everything_lose_nothing_acknowledged(own_stack: Stack, name: str, seed: int) -> None:
    """All parts but the pair of Redis and gateway, whose locks would be lost together, in a random order."""
    order = random.Random(seed)
    victims = [order.choice([victim for victim in VICTIMS if victim != "Redis"]) for _ in range(MANY_KILLS)]
    judge(asyncio.run(under_load(own_stack, name, victims, seed)))

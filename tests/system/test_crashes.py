"""kill -9 of each process under load: nothing acknowledged is lost, nothing accepted comes back, counts go on."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharequeue.stack import Stack
from tests.system.load import Load

VICTIMS = ("gateway", "group coordinator", "share coordinator", "PostgreSQL", "Redis")
FEW_KILLS, MANY_KILLS = 3, 20


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack with stores of its own, which a test may break."""
    stack = Stack(tmp_path / "data")
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        if stack.postgres is not None:
            stack.postgres.remove()


def crash(stack: Stack, victim: str) -> Callable[[], object]:
    """kill -9. Returns: what starts the victim again."""
    if victim == "PostgreSQL":
        assert stack.postgres is not None
        stack.postgres.kill()
        return stack.postgres.start
    if victim == "Redis":
        assert stack.redis is not None
        stack.redis.kill()
        return stack.redis.start
    service = stack.service(victim)
    service.kill()
    return service.start


async def under_load(stack: Stack, victims: list[str], seed: int) -> Load:
    """Run a load while the victims are killed one after the other, at random moments. Returns: the finished load."""
    load = Load(stack.url, "crashes", seed)
    await load.start()
    moments = random.Random(seed)
    try:
        for victim in victims:
            await asyncio.sleep(moments.uniform(0.2, 1.2))
            load.check()
            restart = crash(stack, victim)
            await asyncio.sleep(moments.uniform(0, 0.5))
            await asyncio.to_thread(restart)
        await load.finish()
    except BaseException:
        await load.cancel()
        raise
    return load


def judge(load: Load) -> None:
    assert not load.book.broken, "\n".join(load.book.broken[:20])
    assert len(load.book.produced) > 100


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_crash_loses_nothing_acknowledged(own_stack: Stack, victim: str, seed: int) -> None:
    judge(asyncio.run(under_load(own_stack, [victim] * FEW_KILLS, seed)))


@pytest.mark.soak
@pytest.mark.parametrize("victim", VICTIMS)
def test_twenty_crashes_lose_nothing_acknowledged(own_stack: Stack, victim: str, seed: int) -> None:
    judge(asyncio.run(under_load(own_stack, [victim] * MANY_KILLS, seed)))


@pytest.mark.soak
def test_crashes_of_everything_lose_nothing_acknowledged(own_stack: Stack, seed: int) -> None:
    """All parts but the pair of Redis and gateway, whose locks would be lost together, in a random order."""
    order = random.Random(seed)
    victims = [order.choice([victim for victim in VICTIMS if victim != "Redis"]) for _ in range(MANY_KILLS)]
    judge(asyncio.run(under_load(own_stack, victims, seed)))

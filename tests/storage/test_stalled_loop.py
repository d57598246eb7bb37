"""A loop of events that stands still while a connection is terminated: asyncpg then raises faults of its own."""

import asyncio
import random
import time
from collections import Counter

import pytest
from sharequeue_gateway.record_log.database import LogDatabase


@pytest.mark.parametrize("tries", [30, pytest.param(300, marks=pytest.mark.soak)])
def test_a_connection_terminated_between_prepare_and_execute_is_a_fault_of_the_store(
    database_url: str, seed: int, tries: int
) -> None:
    """Each statement is new to the connection, so it is prepared first. The loop stands still around the deadline."""
    chance = random.Random(seed)

    async def ask(database: LogDatabase, number: int) -> str:
        loop = asyncio.get_running_loop()
        try:
            async with database.connections.lend(0.1, lent_s=0.005) as connection:
                loop.call_later(chance.uniform(0, 0.004), time.sleep, 0.02)
                for statement in range(3):
                    await connection.execute(f"SELECT $1::int AS a{number}_{statement}", 1)
        except TimeoutError:
            return "late"
        return "done"

    async def go() -> Counter[str]:
        database = await LogDatabase.open(database_url)
        try:
            outcomes = Counter([await ask(database, number) for number in range(tries)])
            assert await database.now_ms() > 0
        finally:
            await database.close()
        return outcomes

    outcomes = asyncio.run(go())
    assert outcomes["late"] > tries // 2, outcomes

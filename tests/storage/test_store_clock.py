"""The gateway's clock after one question to PostgreSQL: within 50 ms of it, however wrong it was."""

import asyncio
import time

import pytest
from sharequeue_gateway.cluster.store_clock import adjust
from sharequeue_gateway.record_log.database import LogDatabase

from sharequeue.clock import Clock

HOUR_MS = 3_600_000


@pytest.mark.parametrize("wrong_ms", [-HOUR_MS, -500, 0, HOUR_MS])
def test_one_question_brings_a_clock_to_postgresql_s_time(database_url: str, wrong_ms: int) -> None:
    async def work() -> tuple[float, float, int]:
        database = await LogDatabase.open(database_url)
        try:
            clock = Clock(time.time() * 1000 + wrong_ms)
            await adjust(clock, database.now_ms)
            earliest_ms = await database.now_ms()
            now_ms = clock.now_ms()
            return earliest_ms, await database.now_ms(), now_ms
        finally:
            await database.close()

    earliest_ms, latest_ms, now_ms = asyncio.run(work())
    assert earliest_ms - 50 <= now_ms <= latest_ms + 50

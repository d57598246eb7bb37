"""A consumer keeps its locks while no group coordinator answers, which knows whether the group allows renewing."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharequeue.client import Producer, ShareConsumer
from sharequeue.stack.stack import Stack, temporary_stack

LOCK_MS = 16_000
"""Half of it is shorter than the 10 s for which a client repeats a call."""
HANG_S = 120


@pytest.fixture
def stack(tmp_path: Path, database_url: str, redis_url: str) -> Iterator[Stack]:
    with temporary_stack(tmp_path / "data", postgres_url=database_url, redis_url=redis_url) as stack:
        yield stack


async def hold(stack: Stack, name: str) -> None:
    async with (
        Producer(stack.url) as producer,
        ShareConsumer(stack.url, name, [name], acknowledgement="explicit", lock_duration_ms=LOCK_MS) as consumer,
        ShareConsumer(stack.url, name, [name]) as other,
    ):
        await other.poll(0)
        await producer.send(name, 1)
        (record,) = await consumer.poll()
        stack.service("group coordinator").kill()
        async with asyncio.timeout(HANG_S):
            left_ms = record.lock_remaining_ms
            while record.lock_remaining_ms <= left_ms and not record.delivery.lost:
                left_ms = record.lock_remaining_ms
                assert await other.poll(200) == []
        assert record.lock_remaining_ms > left_ms, "the lock has ended"
        consumer.acknowledge(record)
        await consumer.commit()


def test_a_lock_is_renewed_while_the_group_coordinator_is_away(stack: Stack, name: str) -> None:
    asyncio.run(hold(stack, name))

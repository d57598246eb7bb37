"""Acquisition locks as tests write them to Redis and read them back, and the lock store that does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from sharequeue_gateway.cluster.redis_client import RedisKeys, redis_client
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.locks.lock_store import LockStore

from sharequeue.protocol.types import RestoredLock, SharePartitionKey
from tests.storage.record_logs import new_topic

LOCK_MS = 30_000
Entries = Mapping[tuple[int, int], tuple[str, int, int]]
"""(member id, delivery count, deadline) by first and last offset."""


def new_key(group_id: str = "g", partition: int = 0) -> SharePartitionKey:
    return SharePartitionKey(group_id, new_topic(), partition)


def lock_write(
    key: SharePartitionKey,
    entries: Entries,
    *,
    leader_epoch: int = 1,
    state_epoch: int = 1,
    whole: bool = False,
    fetch: tuple[str, bytes, int] | None = None,
) -> LockWrite:
    return LockWrite(key, leader_epoch, state_epoch, restored(entries), whole, fetch)


def restored(entries: Entries) -> list[RestoredLock]:
    return [RestoredLock(*name, *entry, LOCK_MS, 0) for name, entry in sorted(entries.items())]


class HeardStore(LockStore):
    """A lock store that asks the test for `all_locks`."""

    all_locks: Callable[[], Iterable[LockWrite]] = staticmethod(list)

    def led_locks(self) -> Iterable[LockWrite]:
        return self.all_locks()


@asynccontextmanager
async def timers(
    url: str,
    node_id: str = "gateway-0",
    timeout_ms: int = 5000,
    keys: RedisKeys | None = None,
) -> AsyncIterator[HeardStore]:
    """The lock store of one gateway, with its loops running."""
    redis = redis_client(url)
    started = HeardStore(redis, node_id, timeout_ms, keys or RedisKeys())
    loops = [asyncio.create_task(started.run()), asyncio.create_task(started.watch(started.led_locks))]
    try:
        yield started
        assert not any(loop.done() for loop in loops), "a loop ended"
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops)
        await redis.aclose()


async def locks_of(
    lock_timers: LockStore,
    key: SharePartitionKey,
    leader_epoch: int = 1,
    state_epoch: int = 1,
    lost: tuple[int, int] = (0, 0),
) -> list[RestoredLock] | None:
    (found,) = await lock_timers.load([(key, leader_epoch, state_epoch)], lost)
    return None if isinstance(found, int) else sorted(found.locks)


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


HELD: Entries = {(0, 9): ("m1", 1, 5_000_000_000_123), (10, 10): ("m2", 3, 5_000_000_000_456)}

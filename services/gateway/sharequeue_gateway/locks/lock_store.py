"""Reads acquisition locks back for the next leader, and notices when Redis is away, back, or has lost its data.

For each share-partition, one key holds the epoch of its leader, and a list its locks. The deadline in the leader's
memory decides when a lock ends.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from redis.asyncio import Redis

from sharequeue.protocol.types import RestoredLock, SharePartitionKey
from sharequeue.repeats import REDIS_REFUSES, REDIS_SILENT, Every
from sharequeue.slices import Slices, in_slices
from sharequeue_gateway.cluster.redis_client import LOST, RedisKeys
from sharequeue_gateway.cluster.redis_faults import SILENT
from sharequeue_gateway.locks.eviction import Eviction
from sharequeue_gateway.locks.lock_calls import LockWrite, encode
from sharequeue_gateway.locks.lock_writer import (
    LOADED_AT_ONCE,
    LOCKS_TTL_MS,
    LockWriter,
    heed_cancellation,
    round_trips,
)
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

PROBE_BYTES: Final = 64 << 10
"""The size of a probe. Redis must have room for it before it is used again, or it would refuse the first lock."""
LOOK_S: Final = 0.5
"""How often a gateway looks whether Redis has lost its data."""
WRITE_AGAIN_S: Final = LOCKS_TTL_MS / 4000
"""All locks are written again after this time."""
LOAD_TIMEOUT_S: Final = 2.0  # longer than for a fetch: locks that a load misses may be lost
WRITE_BACK_TIMEOUT_S: Final = 5.0
MARK_TTL_MS: Final = 3_600_000
NO_LOCKS: Final = b"[]"
_decode: Final = msgspec.json.Decoder(list[tuple[int, int, str, int, int, int, int, int]]).decode
"""An entry: locks, each with the fields of RestoredLock; behind the deadline, the state epoch."""


class Found(NamedTuple):
    """The locks that Redis has. `entries`: so many were written: some are of another state epoch, or were replaced."""

    locks: list[RestoredLock]
    entries: int


def fetch_key(group_id: str, member_id: str, fetch_id: str) -> str:
    return encode([group_id, member_id, fetch_id]).decode()


class LockStore(LockWriter):
    """Writes locks and reads them back. While `degraded`, probes until Redis is back."""

    def __init__(self, redis: Redis, node_id: str, timeout_ms: int, keys: RedisKeys) -> None:
        super().__init__(redis, node_id, timeout_ms, keys)
        self.eviction: Final = Eviction(redis)
        self._mark = keys.mark(node_id)
        self._marked = False
        self._write_again_at = time.monotonic() + WRITE_AGAIN_S
        self._load_timeout_s = max(LOAD_TIMEOUT_S, self._timeout_s)

    async def with_locks(self, keys: Sequence[SharePartitionKey]) -> list[SharePartitionKey]:
        """The share-partitions of which Redis has entries of locks."""
        if self.degraded or not keys:
            return []
        asked = self._execute([["GET", self._keys.leader(key)] for key in keys], self._load_timeout_s)
        epochs = await self._guard(asked)
        if epochs is None:
            return []
        lists = [self._keys.locks(key, int(epoch or 0)) for key, epoch in zip(keys, epochs, strict=True)]
        asked = self._execute([["LINDEX", name, -1] for name in lists], self._load_timeout_s)
        entries = await self._guard(asked) or [None] * len(keys)
        return [key for key, last in zip(keys, entries, strict=True) if last not in (None, NO_LOCKS)]

    async def load(
        self, epochs: Sequence[tuple[SharePartitionKey, int, int]], lost: tuple[int, int] = (0, 0)
    ) -> list[Found | int]:
        """Raise leader epochs and read the locks, also while degraded: Redis may be back, with the locks.

        Args:
            epochs: (key, leader epoch, state epoch); locks of another state epoch are left out.
            lost: as LeaderEpochs.lost; their locks are deleted.
        Returns: the locks of each; in the place of one for which Redis knows a higher leader epoch, that epoch.
        """
        found: list[Found | int] = [Found([], 0) for _ in epochs]
        for start in range(0, len(epochs), LOADED_AT_ONCE):
            some = epochs[start : start + LOADED_AT_ONCE]
            answers = await self._guard(self._load([each[:2] for each in some], lost, self._load_timeout_s))
            if answers is None:  # Redis fails; what was read is valid
                break
            for place, answer in enumerate(answers, start):
                found[place] = answer if isinstance(answer, int) else await _restored(answer, epochs[place][2])
        return found

    async def leader_epoch(self, key: SharePartitionKey) -> int | None:
        """The highest leader epoch that Redis knows, 0 if it knows none; None while it does not answer."""
        if self.degraded:
            return None
        epochs = await self._guard(self._execute([["GET", self._keys.leader(key)]], self._timeout_s))
        return None if epochs is None else int(epochs[0] or 0)

    async def fetched(self, name: str) -> list[bytes]:
        """The stored answer of a fetch of that name, one entry per partition, while Redis keeps it."""
        if self.degraded:
            return []
        values = await self._guard(self._execute([["HVALS", self._keys.fetch(name)]], self._timeout_s))
        return values[0] if values else []

    def _pause_s(self) -> float:
        if not self.degraded:
            return LOOK_S
        return (REDIS_SILENT if self.trouble == SILENT else REDIS_REFUSES).pause_s

    async def watch(self, led_locks: Callable[[], Iterable[LockWrite]]) -> None:
        """Notice that Redis has lost its data; while degraded, probe until Redis is back. Runs until it is cancelled.

        Locks that Redis has lost are written again, and all of them long before Redis would remove them.

        Args:
            led_locks: all locks of this gateway, to be written again; an iterator may make each write when it is due.
        """
        async for _ in Every(self._pause_s):
            if self.degraded:
                if not self._busy and not self._gathered:  # they would come behind what is written back
                    await self._recover(led_locks)
                continue
            if self._incomplete:
                log.warning("Redis has lost its data; all locks are written again")
            if self._incomplete or time.monotonic() > self._write_again_at:
                self._incomplete = False
                self._write_again_at = time.monotonic() + WRITE_AGAIN_S
                await self._write_all(led_locks())
            await self._guard(self._look_at_mark())

    async def _look_at_mark(self) -> None:
        (marked,) = await self._execute([self._set_mark()], self._timeout_s)
        self._incomplete |= self._marked and marked is None
        self._marked = True

    def _set_mark(self) -> list[Any]:
        """The command that leaves a mark. It is answered with the earlier mark, which Redis loses with its data."""
        return ["SET", self._mark, 1, "PX", MARK_TTL_MS, "GET"]

    async def _write_all(self, locks: Iterable[LockWrite]) -> int:
        """Write all locks, in slices: no write that comes between two slices is overtaken. Returns: how many writes."""
        count = 0
        async for write in in_slices(locks):
            self.write(write)
            count += 1
        return count

    async def _recover(self, led_locks: Callable[[], Iterable[LockWrite]]) -> None:
        """Write back every lock, including those that are acquired at this time. Only then is Redis used again."""
        try:
            await self._probe()
            self._incomplete = False
            self._while_writing_back = []
            count = await self._write_all(led_locks())
            while self._while_writing_back:
                taken, self._while_writing_back = self._while_writing_back, []
                await self._write_back(taken)
        except LOST as fault:
            self._note(fault)
            heed_cancellation()
            return
        finally:
            self._while_writing_back = None
        self._turn(degraded=False)
        heed_cancellation()
        log.info("Redis is back", extra=fields(share_partitions=count))

    async def _write_back(self, writes: Sequence[LockWrite]) -> None:
        """Raises: the errors of LOST."""
        await self._lead(writes, WRITE_BACK_TIMEOUT_S)
        for trip in round_trips(writes, self._keys):
            await self._own_connection.execute([call.command for call in trip], WRITE_BACK_TIMEOUT_S)

    async def _probe(self) -> None:
        """Write a probe, then a second value, which a full Redis refuses. Raises: the errors of LOST.

        It stands in place of earlier ones, which have no time to live if this user may not set one.
        """
        probe = self._keys.probe(self._node_id)
        some, more = ["RPUSH", probe, b"x" * PROBE_BYTES], ["RPUSHX", probe, b""]
        last, expire = ["LTRIM", probe, -1, -1], ["PEXPIRE", probe, 1000, "NX"]
        await self._execute([some, last, expire, more, self._set_mark()], WRITE_BACK_TIMEOUT_S)


async def _restored(entries: Sequence[bytes], state_epoch: int) -> Found:
    """Decode the entries of one list, in slices. Where two locks have the same offsets, the later one counts."""
    locks: dict[tuple[int, int], RestoredLock] = {}
    count = 0
    slices = Slices()
    for entry in entries:
        if slices.over():
            await slices.pause()
        written = _decode(entry)
        count += len(written)
        for lock in written:
            if lock[5] == state_epoch:
                locks[lock[:2]] = RestoredLock(*lock[:5], *lock[6:])
    return Found(list(locks.values()), count)

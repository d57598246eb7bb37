"""Reads acquisition locks back for the next leader, and notices when Redis is away, back, or has lost its data.

One hash per share-partition holds the epoch of its leader and its locks. The deadline in the leader's memory decides
when a lock ends.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from sharequeue.protocol.types import RestoredLock, SharePartitionKey
from sharequeue.repeats import REDIS_REFUSES, REDIS_SILENT, Every
from sharequeue.slices import Slices, in_slices
from sharequeue_gateway.cluster.redis_client import LOST, RedisKeys, asking
from sharequeue_gateway.cluster.redis_faults import SILENT
from sharequeue_gateway.locks import scripts
from sharequeue_gateway.locks.eviction import Eviction
from sharequeue_gateway.locks.lock_calls import LockWrite, encode
from sharequeue_gateway.locks.lock_writer import (
    HASH_TTL_MS,
    Commands,
    LockWriter,
    heed_cancellation,
    in_time,
    round_trips,
)
from sharequeue_gateway.locks.scripts import sha1
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

PROBE_BYTES: Final = 64 << 10
"""The size of a probe. Redis must have room for it before it is used again, or it would refuse the first lock."""
LOOK_S: Final = 0.5
"""How often a gateway looks whether Redis has lost its data."""
LOADED_AT_ONCE: Final = 256
LOAD_TIMEOUT_S: Final = 2.0  # longer than for a fetch: locks that a load misses may be lost
WRITE_BACK_TIMEOUT_S: Final = 5.0
MARK_TTL_MS: Final = 3_600_000
_decode: Final = msgspec.json.Decoder(tuple[str, int, int, int, int, int]).decode
"""The value of a lock: the fields of RestoredLock behind its offsets, which are its name; the state epoch is fourth."""


def fetch_key(group_id: str, member_id: str, fetch_id: str) -> str:
    return encode([group_id, member_id, fetch_id]).decode()


class LockStore(LockWriter):
    """Writes locks and reads them back. While `degraded`, probes until Redis is back."""

    def __init__(self, redis: Redis, node_id: str, timeout_ms: int, keys: RedisKeys) -> None:
        super().__init__(redis, node_id, timeout_ms, keys)
        self.eviction: Final = Eviction(redis)
        self._mark = keys.mark(node_id)
        self._marked = False
        self._load_timeout_s = max(LOAD_TIMEOUT_S, self._timeout_s)

    async def with_locks(self, keys: Sequence[SharePartitionKey]) -> list[SharePartitionKey]:
        """The share-partitions of which Redis has entries of locks."""
        if self.degraded or not keys:
            return []
        commands = [["HLEN", self._keys.locks(key)] for key in keys]
        counts = await self._guard(self._execute(commands), self._load_timeout_s) or [0] * len(keys)
        return [key for key, count in zip(keys, counts, strict=True) if count > 1]  # one field is the epoch

    async def _execute(self, commands: Commands) -> list[Any]:
        try:
            return await self._execute_once(commands)
        except NoScriptError:
            return await self._with_scripts(self._execute_once, commands)

    async def _execute_once(self, commands: Commands) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        with asking():
            answers: list[Any] = await pipeline.execute()
        return answers

    async def load(
        self, epochs: Sequence[tuple[SharePartitionKey, int, int]], lost: tuple[int, int] = (0, 0)
    ) -> list[list[RestoredLock] | int]:
        """Raise leader epochs and read the locks, also while degraded: Redis may be back, with the locks.

        Args:
            epochs: (key, leader epoch, state epoch); locks of another state epoch are left out.
            lost: as LeaderEpochs.lost; their locks are deleted.
        Returns: the locks of each; in the place of one for which Redis knows a higher leader epoch, that epoch.
        """
        found: list[list[RestoredLock] | int] = [[] for _ in epochs]
        for start in range(0, len(epochs), LOADED_AT_ONCE):
            some = epochs[start : start + LOADED_AT_ONCE]
            commands = [
                ["EVALSHA", sha1(scripts.LOAD), 1, self._keys.locks(key), leader_epoch, HASH_TTL_MS, *lost]
                for key, leader_epoch, _ in some
            ]
            answers = await self._guard(self._execute(commands), self._load_timeout_s)
            if answers is None:  # Redis fails; what was read is valid
                break
            for place, answer in enumerate(answers, start):
                found[place] = answer if isinstance(answer, int) else await _restored(answer, epochs[place][2])
        return found

    async def leader_epoch(self, key: SharePartitionKey) -> int | None:
        """The highest leader epoch that Redis knows, 0 if it knows none; None while it does not answer."""
        if self.degraded:
            return None
        epochs: list[bytes | None] | None = await self._guard(self._redis.hmget(self._keys.locks(key), ["epoch"]))
        return None if epochs is None else int(epochs[0] or 0)

    async def fetched(self, name: str) -> list[bytes]:
        """The stored answer of a fetch of that name, one entry per partition, while Redis keeps it."""
        if self.degraded:
            return []
        values: list[bytes] | None = await self._guard(self._redis.hvals(self._keys.fetch(name)))
        return values or []

    def _pause_s(self) -> float:
        if not self.degraded:
            return LOOK_S
        return (REDIS_SILENT if self.trouble == SILENT else REDIS_REFUSES).pause_s

    async def watch(self, led_locks: Callable[[], Iterable[LockWrite]]) -> None:
        """Notice that Redis has lost its data; while degraded, probe until Redis is back. Runs until it is cancelled.

        Args:
            led_locks: all locks of this gateway, to be written again; an iterator may make each write when it is due.
        """
        async for _ in Every(self._pause_s):
            if self.degraded:
                await self._recover(led_locks)
                continue
            if self._incomplete:  # Redis was restarted and has lost its data, and no call of this gateway failed
                self._incomplete = False
                count = await self._write_all(led_locks())
                log.warning(
                    "Redis has lost its data; all locks are written again", extra=fields(share_partitions=count)
                )
            await self._guard(self._look_at_mark())

    async def _look_at_mark(self) -> None:
        (marked,) = await self._execute_once([self._set_mark()])
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
            await in_time(self._probe(), WRITE_BACK_TIMEOUT_S)
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
        answers = [1] * len(writes)
        for trip in round_trips(writes, self._keys):
            await in_time(self._round_trip(trip, answers), WRITE_BACK_TIMEOUT_S)

    async def _probe(self) -> None:
        """Write a probe, then a second value, which a full Redis refuses. Raises: the errors of LOST."""
        probe = self._keys.probe(self._node_id)
        await self._execute_once(
            [
                ["HSET", probe, "x", b"x" * PROBE_BYTES],
                ["PEXPIRE", probe, 1000],
                ["HSET", probe, "x", b""],
                self._set_mark(),
            ]
        )


async def _restored(entries: Sequence[bytes], state_epoch: int) -> list[RestoredLock]:
    """Decode the locks of one hash, in slices. `entries`: its fields, each with its value behind it."""
    locks: list[RestoredLock] = []
    slices = Slices()
    for name, value in zip(entries[::2], entries[1::2], strict=True):
        if slices.over():
            await slices.pause()
        if name == b"epoch":
            continue
        lock = _decode(value)
        if lock[3] == state_epoch:
            first_offset, _, last_offset = name.partition(b"-")
            locks.append(RestoredLock(int(first_offset), int(last_offset), *lock[:3], *lock[4:]))
    return locks

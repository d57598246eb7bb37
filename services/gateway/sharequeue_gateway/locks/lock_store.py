"""Reads acquisition locks back for the next leader, and names the share-partitions with a due lock.

One hash per share-partition holds the epoch of its leader and its locks. A sorted set per gateway, its due set, names
the share-partitions with a lock, by the time at which it is due. One more set lists all due sets that are not empty, so
any gateway finds the due set of a gateway that has died. The deadline in the leader's memory decides: an early, late or
lost reminder is harmless.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import REDIS_REFUSES, REDIS_SILENT, Every
from sharequeue.slices import Slices
from sharequeue_gateway.cluster.redis_client import LOST, RedisKeys, asking
from sharequeue_gateway.cluster.redis_faults import SILENT
from sharequeue_gateway.locks import scripts
from sharequeue_gateway.locks.eviction import Eviction
from sharequeue_gateway.locks.lock_calls import LockEntry, LockWrite, encode
from sharequeue_gateway.locks.lock_writer import (
    HASH_TTL_MS,
    Commands,
    LockWriter,
    heed_cancellation,
    in_time,
    round_trips,
)
from sharequeue_gateway.locks.scripts import sha1
from sharequeue_gateway.share_partition.machine import RestoredLock
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

PROBE_BYTES: Final = 64 << 10
"""The size of a probe. Redis must have room for it before it is used again, or it would refuse the first lock."""
DUE_PAUSE_S: Final = 0.1
LOOK_PAUSE_MS: Final = 500
"""The longest pause between two looks at the due set: other gateways add names to it. Own locks are named in time."""
DUE_BATCH: Final = 256
LOAD_TIMEOUT_S: Final = 2.0  # longer than for a fetch: locks that a load misses may be lost
WRITE_BACK_TIMEOUT_S: Final = 5.0
SCANNED_AT_ONCE: Final = 1000
MARK_TTL_MS: Final = 3_600_000
_decode: Final = msgspec.json.Decoder(LockEntry).decode


def _decode_key(encoded: bytes) -> SharePartitionKey:
    return SharePartitionKey(*msgspec.json.decode(encoded))


def fetch_key(group_id: str, member_id: str, fetch_id: str) -> str:
    return encode([group_id, member_id, fetch_id]).decode()


class LockEvents(Protocol):
    """Receives due locks, and knows all locks of this gateway."""

    def locks_due(self, key: SharePartitionKey) -> None: ...

    def led_locks(self) -> list[LockWrite]:
        """All locks, to write them back when Redis answers again."""


class LockTimers(LockWriter):
    """Writes locks, reads them back, and names those that are due. While `degraded`, probes until Redis is back."""

    def __init__(self, redis: Redis, clock: Clock, node_id: str, timeout_ms: int, keys: RedisKeys) -> None:
        super().__init__(redis, node_id, timeout_ms, keys)
        self._clock = clock
        self.eviction: Final = Eviction(redis)
        self._mark = keys.mark(node_id)
        self._marked = False
        self._load_timeout_s = max(LOAD_TIMEOUT_S, self._timeout_s)
        self._to_adopt: tuple[Collection[str], Callable[[SharePartitionKey], bool]] | None = None

    async def hand_over(self, keys: Mapping[SharePartitionKey, str]) -> None:
        """Move share-partitions to the due sets of the gateways (node ids) that lead them now, which then load them."""
        if keys:
            now_ms = self._clock.now_ms()
            commands: list[list[Any]] = []
            for key, node_id in keys.items():
                commands.append(["ZREM", self._due_set, encode(key)])
                commands.append(["ZADD", self._keys.due(node_id), now_ms, encode(key)])
                commands.append(["SADD", self._keys.due_sets, self._keys.due(node_id)])
            await self._guard(self._execute(commands))

    def adopt(self, live: Collection[str], leads: Callable[[SharePartitionKey], bool]) -> None:
        """Once Redis answers, take over from departed gateways the due share-partitions that this one leads now.

        Args:
            live: the node ids of the live gateways.
        """
        self._to_adopt = (live, leads)

    async def _adopt(self, live: Collection[str], leads: Callable[[SharePartitionKey], bool]) -> None:
        """Take over from departed gateways. If Redis fails on the way, `degraded` is set afterwards."""
        kept = {self._keys.due(node_id) for node_id in (self._node_id, *live)}
        named: set[bytes] = await self._guard(self._redis.smembers(self._keys.due_sets), self._load_timeout_s) or set()
        for left in {name.decode() for name in named} - kept:
            await self._guard(self._take_due(left, leads), self._load_timeout_s)

    async def _take_due(self, left: str, leads: Callable[[SharePartitionKey], bool]) -> None:
        """Move the names that this gateway leads from another due set to its own. If gateways do so at once, a name
        moves once."""
        move = ["EVALSHA", sha1(scripts.MOVE_DUE), 3, self._due_set, left, self._keys.due_sets, self._clock.now_ms()]
        cursor = 0
        while True:
            page: Any = await self._redis.zscan(left, cursor, count=SCANNED_AT_ONCE)
            cursor, due = page
            led = [name for name, _ in due if leads(_decode_key(name))]
            moved = [led[start : start + DUE_BATCH] for start in range(0, len(led), DUE_BATCH)]
            await self._execute([[*move, *names] for names in moved or [[]]])
            if not cursor:
                break
        self._look_ms = 0

    async def put_off(self, key: SharePartitionKey, pause_ms: int) -> None:
        """Make a share-partition due again after a pause."""
        again_ms = self._clock.now_ms() + pause_ms
        await self._guard(self._redis.zadd(self._due_set, {encode(key): again_ms}, xx=True))
        self._look_ms = min(self._look_ms, again_ms)

    async def timed(self, keys: Sequence[SharePartitionKey]) -> list[SharePartitionKey]:
        """The share-partitions of which Redis knows a lock or a delay."""
        if self.degraded or not keys:
            return []
        commands = [["ZSCORE", self._due_set, encode(key)] for key in keys]
        scores = await self._guard(self._execute(commands), self._load_timeout_s) or [None] * len(keys)
        return [key for key, score in zip(keys, scores, strict=True) if score is not None]

    async def forget_due(self, key: SharePartitionKey) -> None:
        """Forget a share-partition whose topic or state is gone."""
        await self._guard(self._redis.zrem(self._due_set, encode(key)))

    async def _execute(self, commands: Commands) -> list[Any]:
        """Run commands in one round trip."""
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
        for start in range(0, len(epochs), DUE_BATCH):
            some = epochs[start : start + DUE_BATCH]
            answers = await self._guard(
                self._execute(
                    [
                        ["EVALSHA", sha1(scripts.LOAD), 1, self._keys.locks(key), leader_epoch, HASH_TTL_MS, *lost]
                        for key, leader_epoch, _ in some
                    ]
                ),
                self._load_timeout_s,
            )
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
            return DUE_PAUSE_S
        return (REDIS_SILENT if self.trouble == SILENT else REDIS_REFUSES).pause_s

    async def remind(self, events: LockEvents) -> None:
        """Report share-partitions with a due lock; while degraded, probe until Redis is back. Runs until it is
        cancelled."""
        async for _ in Every(self._pause_s):
            if self.degraded:
                await self._recover(events)
                continue
            if self._incomplete:
                self._write_again(events)
            to_adopt = self._to_adopt
            if to_adopt is not None:
                await self._adopt(*to_adopt)
                if self._to_adopt is to_adopt and not self.degraded:
                    self._to_adopt = None
            if self._clock.now_ms() >= self._look_ms:
                await self._guard(self._remind_once(events))

    async def _remind_once(self, events: LockEvents) -> None:
        now_ms = self._clock.now_ms()
        self._look_ms = now_ms + LOOK_PAUSE_MS
        marked, due = await self._execute_once(
            [self._set_mark(), ["ZRANGE", self._due_set, 0, now_ms, "BYSCORE", "LIMIT", 0, DUE_BATCH]]
        )
        self._incomplete |= self._marked and marked is None
        self._marked = True
        if due:
            self._look_ms = now_ms  # there may be more; a name that is not handled by then is reported again
        for member in due:
            events.locks_due(_decode_key(member))

    def _set_mark(self) -> list[Any]:
        """The command that leaves a mark. It is answered with the earlier mark, which Redis loses with its data."""
        return ["SET", self._mark, 1, "PX", MARK_TTL_MS, "GET"]

    def _write_again(self, events: LockEvents) -> None:
        """Redis was restarted and has lost its data, and no call of this gateway failed: write all locks again."""
        self._incomplete = False
        locks = events.led_locks()
        for write in locks:
            self.write(write)
        log.warning("Redis has lost its data; all locks are written again", extra=fields(share_partitions=len(locks)))

    async def _recover(self, events: LockEvents) -> None:
        """Write back every lock, including those that are acquired at this time. Only then is Redis used again."""
        try:
            await in_time(self._probe(), WRITE_BACK_TIMEOUT_S)
            self._incomplete = False
            locks = events.led_locks()
            self._while_writing_back = []
            await self._write_back(locks)
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
        log.info("Redis is back", extra=fields(share_partitions=len(locks)))

    async def _write_back(self, writes: Sequence[LockWrite]) -> None:
        """Raises: the errors of LOST."""
        answers = [1] * len(writes)
        for trip in round_trips(writes, self._keys, self._node_id):
            await in_time(self._round_trip(trip, writes, answers), WRITE_BACK_TIMEOUT_S)

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
        entry = _decode(value)
        if entry.state_epoch == state_epoch:
            first_offset, _, last_offset = name.partition(b"-")
            locks.append(
                RestoredLock(
                    int(first_offset),
                    int(last_offset),
                    entry.member_id,
                    entry.delivery_count,
                    entry.deadline_ms,
                    entry.lock_duration_ms,
                    entry.forgiven,
                )
            )
    return locks

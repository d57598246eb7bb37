"""Acquisition locks in Redis: written before a fetch is answered, read back by the next leader, listed by when they end.

One hash per share-partition holds the epoch of its leader and its locks; a sorted set per gateway says which
share-partition has a lock that is due, and a set names those that are not empty, so that the one of a gateway that is
gone is found by who never knew it. The leader's own deadline decides; Redis only reminds, so an early, late or lost
timer is harmless. A script refuses a leader epoch below the stored one: a zombie leader can hand out nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.protocol.types import MAX_DELAY_MS, SharePartitionKey
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.redis_client import LOST, OwnConnection
from sharequeue_gateway.cluster.redis_faults import SILENT, trouble_of
from sharequeue_gateway.locks import scripts
from sharequeue_gateway.locks.scripts import sha1
from sharequeue_gateway.share_partition.machine import RestoredLock

log = logging.getLogger(__name__)

HASH_TTL_MS: Final = 2 * MAX_DELAY_MS
PROBE_PAUSE_S: Final = 0.5
REFUSED_PAUSE_S: Final = 2.0
"""How often a Redis that refuses is asked whether it still does: somebody must do something first."""
PROBE_BYTES: Final = 64 << 10
"""So much room Redis must have before it is used again; else the first lock would be refused."""
LOG_PAUSE_S: Final = 60.0
"""How often the same trouble with Redis is logged, were it to come and go."""
DUE_PAUSE_S: Final = 0.1
LOOK_PAUSE_MS: Final = 500
"""How long what others made due here may stay unnoticed. What is written here is named when it is due."""
DUE_BATCH: Final = 256
LOAD_TIMEOUT_S: Final = 2.0  # a load waits longer than a fetch: what it misses may be lost
TURNS: Final = 10

DUE_SETS: Final = "sharequeue:due"
"""A set of the names of all due sets that are not empty."""

Commands = Sequence[Sequence[Any]]

LockName = tuple[int, int]
"""First and last offset: parts of a range that others came to hold are locks of their own, beside what is left of it."""


class LockEntry(msgspec.Struct, array_like=True, frozen=True):
    """One acquired range as the hash keeps it, under its name. Where locks overlap the later delivery counts."""

    member_id: str
    delivery_count: int
    deadline_ms: int
    state_epoch: int


class LockWrite(NamedTuple):
    """Changes of one share-partition's locks: entries by name, and names of locks that are over; None: all others are."""

    key: SharePartitionKey
    leader_epoch: int
    next_deadline_ms: int | None
    entries: Mapping[LockName, LockEntry]
    over: Sequence[LockName] | None
    fetch: tuple[str, bytes, int] | None
    """(key, value, time to live in ms) of a fetch's answer, for a repeat of it."""


class _Waiting(NamedTuple):
    write: LockWrite
    done: asyncio.Future[bool]


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(LockEntry).decode


def lock_hash(key: SharePartitionKey) -> str:
    return f"sharequeue:locks:{key.topic_id}:{key.partition}:{key.group_id}"


def _decode_key(encoded: bytes) -> SharePartitionKey:
    return SharePartitionKey(*msgspec.json.decode(encoded))


def due_set(node_id: str) -> str:
    return f"sharequeue:due:{node_id}"


def fetch_key(group_id: str, member_id: str, fetch_id: str) -> str:
    return _encode([group_id, member_id, fetch_id]).decode()


class LockEvents(Protocol):
    """Hears of locks that are due, and knows all locks of this gateway."""

    def locks_due(self, key: SharePartitionKey) -> None: ...

    def led_locks(self) -> list[LockWrite]:
        """All locks, to write them back when Redis answers again."""


class LockTimers:
    """Writes and reads locks. While Redis does not answer in time it is left out: `degraded` until a probe answers."""

    def __init__(self, redis: Redis, clock: Clock, node_id: str, timeout_ms: int) -> None:
        self._redis = redis
        self._writer = OwnConnection(redis)
        self._clock = clock
        self._node_id = node_id
        self._due_set = due_set(node_id)
        self._timeout_s = timeout_ms / 1000
        self._load_timeout_s = max(LOAD_TIMEOUT_S, self._timeout_s)
        self._gathered: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._while_writing_back: list[LockWrite] | None = None
        self._to_adopt: tuple[Collection[str], Callable[[SharePartitionKey], bool]] | None = None
        self._look_ms = 0
        """When Redis is to be asked what is due."""
        self.degraded = False
        self.trouble = SILENT
        """What is wrong with Redis while `degraded`."""
        self._logged = ("", 0.0)
        """The trouble that was logged last, and when."""

    def write(self, write: LockWrite) -> asyncio.Future[bool]:
        """Write locks with the next pipeline. Returns: False if a higher leader epoch is known: hand out nothing."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.degraded:
            if self._while_writing_back is not None:
                self._while_writing_back.append(write)
            done.set_result(True)
        else:
            self._gathered.append(_Waiting(write, done))
            self._wake.set()
        return done

    async def hand_over(self, keys: Mapping[SharePartitionKey, str]) -> None:
        """Make share-partitions due at the gateways (node ids) that lead them now: they load what is held there."""
        if keys:
            now_ms = self._clock.now_ms()
            commands: list[list[Any]] = []
            for key, node_id in keys.items():
                commands.append(["ZREM", self._due_set, _encode(key)])
                commands.append(["ZADD", due_set(node_id), now_ms, _encode(key)])
                commands.append(["SADD", DUE_SETS, due_set(node_id)])
            await self._guard(self._execute(commands))

    def adopt(self, live: Collection[str], leads: Callable[[SharePartitionKey], bool]) -> None:
        """Take over what is led here now of what is due at gateways other than these (node ids), once Redis answers."""
        self._to_adopt = (live, leads)

    async def _adopt(self, live: Collection[str], leads: Callable[[SharePartitionKey], bool]) -> None:
        """`degraded` tells whether that went well."""
        kept = {due_set(node_id) for node_id in (self._node_id, *live)}
        named: set[bytes] = await self._guard(self._redis.smembers(DUE_SETS), self._load_timeout_s) or set()
        for left in {name.decode() for name in named} - kept:
            await self._guard(self._take_due(left, leads), self._load_timeout_s)

    async def _take_due(self, left: str, leads: Callable[[SharePartitionKey], bool]) -> None:
        """Move to the own due set what is led here of another; others may do the same, and each is moved once."""
        due: list[Any] = await self._redis.zrange(left, 0, -1)
        led = [name for name in due if leads(_decode_key(name))]
        move = ["EVALSHA", sha1(scripts.MOVE_DUE), 3, self._due_set, left, DUE_SETS, self._clock.now_ms()]
        moved = [led[start : start + DUE_BATCH] for start in range(0, len(led), DUE_BATCH)]
        await self._execute([[*move, *names] for names in moved or [[]]])
        self._look_ms = 0

    async def put_off(self, key: SharePartitionKey, pause_ms: int) -> None:
        """Name a share-partition that is due again, but not before a while."""
        again_ms = self._clock.now_ms() + pause_ms
        await self._guard(self._redis.zadd(self._due_set, {_encode(key): again_ms}, xx=True))
        self._look_ms = min(self._look_ms, again_ms)

    async def timed(self, keys: Sequence[SharePartitionKey]) -> list[SharePartitionKey]:
        """Those that have a lock or a delay, as far as Redis knows."""
        if self.degraded or not keys:
            return []
        commands = [["ZSCORE", self._due_set, _encode(key)] for key in keys]
        scores = await self._guard(self._execute(commands), self._load_timeout_s) or [None] * len(keys)
        return [key for key, score in zip(keys, scores, strict=True) if score is not None]

    async def forget_due(self, key: SharePartitionKey) -> None:
        """No lock of this share-partition is of use any more: its topic or its state is gone."""
        await self._guard(self._redis.zrem(self._due_set, _encode(key)))

    async def run(self) -> None:
        """Send gathered writes, one round trip at a time, for ever."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._gathered:
                    gathered, self._gathered = self._gathered, []
                    answers = await self._guard(self._send([waiting.write for waiting in gathered]))
                    if answers is None:
                        answers = [1] * len(gathered)
                    for waiting, answer in zip(gathered, answers, strict=True):
                        if not waiting.done.done():
                            waiting.done.set_result(answer != 0)
        finally:
            await self._writer.close()

    async def _send(self, writes: Sequence[LockWrite]) -> list[Any]:
        commands: list[list[Any]] = []
        for write in writes:
            command: list[Any] = [
                "EVALSHA",
                sha1(scripts.WRITE),
                3,
                lock_hash(write.key),
                self._due_set,
                DUE_SETS,
                write.leader_epoch,
                _encode(write.key),
                "" if write.next_deadline_ms is None else write.next_deadline_ms,
                HASH_TTL_MS,
                "" if write.over is None else len(write.over),
            ]
            command += [f"{first_offset}-{last_offset}" for first_offset, last_offset in write.over or ()]
            for (first_offset, last_offset), entry in write.entries.items():
                command += (f"{first_offset}-{last_offset}", _encode(entry))
            commands.append(command)
        for write in writes:
            if write.fetch is not None:
                name, value, ttl_ms = write.fetch
                place = f"{write.key.topic_id}:{write.key.partition}"
                commands.append(["HSET", f"sharequeue:fetch:{name}", place, value])
                commands.append(["PEXPIRE", f"sharequeue:fetch:{name}", ttl_ms])
        answers = await self._with_scripts(self._writer.execute, commands)
        for write in writes:
            if write.next_deadline_ms is not None and write.next_deadline_ms < self._look_ms:
                self._look_ms = write.next_deadline_ms
        return answers[: len(writes)]

    async def _execute(self, commands: Commands) -> list[Any]:
        """Run commands in one round trip."""
        return await self._with_scripts(self._execute_once, commands)

    async def _with_scripts(self, execute: Callable[[Commands], Awaitable[list[Any]]], commands: Commands) -> list[Any]:
        """A Redis that lost the scripts is given them again."""
        try:
            return await execute(commands)
        except NoScriptError:
            for script in scripts.ALL:
                await self._redis.script_load(script)
            return await execute(commands)

    async def _execute_once(self, commands: Commands) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        answers: list[Any] = await pipeline.execute()
        return answers

    async def load(self, epochs: Sequence[tuple[SharePartitionKey, int, int]]) -> list[list[RestoredLock] | None]:
        """Raise leader epochs and read the locks; also while degraded: Redis may be back, and the locks are there.

        Args:
            epochs: (key, leader epoch, state epoch); locks of another state epoch are left out.
        Returns: for each its locks; None if a higher leader epoch is known.
        """
        if not epochs:
            return []
        commands = [["EVALSHA", sha1(scripts.LOAD), 1, lock_hash(key), epoch, HASH_TTL_MS] for key, epoch, _ in epochs]
        answers = await self._guard(self._execute(commands), self._load_timeout_s)
        if answers is None:
            return [[] for _ in epochs]
        return [
            None if answer is None else _restored(answer, state_epoch)
            for (_, _, state_epoch), answer in zip(epochs, answers, strict=True)
        ]

    async def leader_epoch(self, key: SharePartitionKey) -> int | None:
        """The highest leader epoch that Redis knows, 0 if it knows none; None while it does not answer."""
        if self.degraded:
            return None
        epochs: list[bytes | None] | None = await self._guard(self._redis.hmget(lock_hash(key), ["epoch"]))
        return None if epochs is None else int(epochs[0] or 0)

    async def fetched(self, name: str) -> list[bytes]:
        """What a fetch of that name acquired, one entry per partition, as far as it is still known."""
        if self.degraded:
            return []
        values: list[bytes] | None = await self._guard(self._redis.hvals(f"sharequeue:fetch:{name}"))
        return values or []

    async def _guard(self, call: Awaitable[Any], timeout_s: float | None = None) -> Any:
        """Await a call of Redis; if it fails or is late go on without Redis and return None."""
        try:
            answer = await _in_time(call, timeout_s or self._timeout_s)
        except LOST as fault:
            if not self.degraded:
                self._turn(degraded=True)
                self._note(fault)
            answer = None
        _heed_cancellation()
        return answer

    def _note(self, fault: BaseException) -> None:
        """Keep what is wrong, and log it once."""
        self.trouble = trouble_of(fault)
        logged, at = self._logged
        if self.trouble != logged or time.monotonic() >= at + LOG_PAUSE_S:
            self._logged = (self.trouble, time.monotonic())
            log.warning("Redis %s; locks end by the sweep", self.trouble, extra=fields(cause=repr(fault)))

    def _turn(self, *, degraded: bool) -> None:
        self.degraded = degraded
        metrics.LOCK_TIMERS_DEGRADED.set(degraded)

    async def remind(self, events: LockEvents) -> None:
        """Name share-partitions with a due lock; while degraded probe until Redis is back. Runs until it is cancelled."""
        while True:
            if self.degraded:
                await asyncio.sleep(PROBE_PAUSE_S if self.trouble == SILENT else REFUSED_PAUSE_S)
                await self._recover(events)
                continue
            await asyncio.sleep(DUE_PAUSE_S)
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
        due: list[Any] = await self._redis.zrange(self._due_set, 0, now_ms, byscore=True, offset=0, num=DUE_BATCH)
        if due:
            self._look_ms = now_ms  # whatever is not seen to by then is named again, and there may be more
        for member in due:
            events.locks_due(_decode_key(member))

    async def _recover(self, events: LockEvents) -> None:
        """Write every lock back, and those that are taken during that; only then is Redis used again."""
        try:
            async with asyncio.timeout(5):
                await self._probe()
                locks = events.led_locks()
                self._while_writing_back = []
                for start in range(0, len(locks), DUE_BATCH):
                    await self._send(locks[start : start + DUE_BATCH])
                while self._while_writing_back:
                    taken, self._while_writing_back = self._while_writing_back, []
                    await self._send(taken)
        except LOST as fault:
            self._note(fault)
            _heed_cancellation()
            return
        finally:
            self._while_writing_back = None
        self._turn(degraded=False)
        _heed_cancellation()
        log.info("Redis is back", extra=fields(share_partitions=len(locks)))

    async def _probe(self) -> None:
        """Write something, then see whether Redis would take more. Raises: what LOST says."""
        probe = f"sharequeue:probe:{self._node_id}"
        await self._execute_once(
            [["HSET", probe, "x", b"x" * PROBE_BYTES], ["PEXPIRE", probe, 1000], ["HSET", probe, "x", b""]]
        )


async def _in_time(call: Awaitable[Any], timeout_s: float) -> Any:
    """Await a call for as long as the event loop runs meanwhile: a loop that is busy is not a Redis that is away.

    Time passes in turns, and what else keeps the loop busy makes none of them longer. Raises: TimeoutError.
    """
    loop = asyncio.get_running_loop()
    turns = 0
    timer: asyncio.TimerHandle

    def turn() -> None:
        nonlocal turns, timer
        turns += 1
        if turns == TURNS:
            limit.reschedule(loop.time())
        else:
            timer = loop.call_later(timeout_s / TURNS, turn)

    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(timeout_s / TURNS, turn)
        try:
            return await call
        finally:
            timer.cancel()


def _heed_cancellation() -> None:
    """Before Python 3.12 `asyncio.wait_for`, which redis-py sends with, may swallow a cancellation."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _restored(answer: Sequence[bytes], state_epoch: int) -> list[RestoredLock]:
    locks = []
    for name, value in zip(answer[::2], answer[1::2], strict=True):
        if name == b"epoch":
            continue
        entry = _decode(value)
        if entry.state_epoch == state_epoch:
            first_offset, _, last_offset = name.partition(b"-")
            locks.append(
                RestoredLock(
                    int(first_offset), int(last_offset), entry.member_id, entry.delivery_count, entry.deadline_ms
                )
            )
    return locks

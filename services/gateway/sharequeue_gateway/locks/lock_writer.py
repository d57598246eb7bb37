"""Writes acquisition locks to Redis: gathered, one pipeline at a time, on a connection of its own.

A request that finds nothing under way sends its locks in its own task. As long as pipelines have company, the task of
`run` sends them.

Redis has no list of locks for a leader epoch below the last one, so a replaced gateway hands out nothing. If Redis does
not answer in time, writes succeed without it: see the page of this folder.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterator, Sequence
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from sharequeue.background import IN_COMPANY
from sharequeue.protocol.types import MAX_DELAY_MS, SharePartitionKey
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.redis_client import LOST, Commands, OwnConnection, RedisKeys, asking, in_time
from sharequeue_gateway.cluster.redis_faults import SILENT, trouble_of
from sharequeue_gateway.locks.lock_calls import LOCKS_PER_ENTRY, LOCKS_PER_WRITE, MOST_LOCKS, Call, LockWrite, encode
from sharequeue_gateway.locks.scripts import LOAD, LOAD_SHA1
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LOCKS_TTL_MS: Final = 2 * MAX_DELAY_MS
LOADED_AT_ONCE: Final = 256
LOG_PAUSE_S: Final = 60.0
"""The shortest pause between two log lines about the same trouble with Redis."""


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    write: LockWrite
    done: asyncio.Future[bool]


def round_trips(writes: Sequence[LockWrite], keys: RedisKeys) -> Iterator[list[Call]]:
    """The calls of these writes, in order. Several share a round trip if they count as at most MOST_LOCKS locks.

    A write is one RPUSHX. If it stands in place of all locks, the entries before it go. All of that may happen twice:
    the connection sends calls again.
    """
    trip: list[Call] = []
    left = MOST_LOCKS
    for place, write in enumerate(writes):
        locks = [(*lock[:5], write.state_epoch, *lock[5:]) for lock in write.locks]
        counted = LOCKS_PER_WRITE + len(locks)
        if trip and counted > left:
            yield trip
            trip, left = [], MOST_LOCKS
        left -= counted
        name = keys.locks(write.key, write.leader_epoch)
        starts = range(0, max(len(locks), 1), LOCKS_PER_ENTRY)
        entries = [encode(locks[start : start + LOCKS_PER_ENTRY]) for start in starts]
        trip.append(Call(["RPUSHX", name, *entries], place))
        if write.whole:
            trip.append(Call(["LTRIM", name, -len(entries), -1], None))
            trip.append(Call(["PEXPIRE", name, LOCKS_TTL_MS], None))
            trip.append(Call(["PEXPIRE", keys.leader(write.key), LOCKS_TTL_MS], place))
    for write in writes:
        if write.fetch is not None:
            fetch_name, value, ttl_ms = write.fetch
            partition = f"{write.key.topic_id}:{write.key.partition}"
            trip.append(Call(["HSET", keys.fetch(fetch_name), partition, value], None))
            trip.append(Call(["PEXPIRE", keys.fetch(fetch_name), ttl_ms], None))
    if trip:
        yield trip


class LockWriter:
    """Writes locks. `degraded`: Redis failed, and is not used until `LockStore` has written all back."""

    def __init__(self, redis: Redis, node_id: str, timeout_ms: int, keys: RedisKeys) -> None:
        self._redis = redis
        self._keys = keys
        self._node_id = node_id
        self._own_connection = OwnConnection(redis)
        self._timeout_s = timeout_ms / 1000
        self._gathered: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._busy = False
        """Whether a pipeline is under way."""
        self._in_company = IN_COMPANY
        """How many further pipelines are not done by a request itself."""
        self._while_writing_back: list[LockWrite] | None = None
        self._incomplete = False
        """Whether Redis has lost entries: all locks are written back, while it stays in use."""
        self.degraded = False
        self.trouble = SILENT
        """What is wrong with Redis while `degraded`."""
        self._logged = ("", 0.0)
        """The last trouble in the log, and its time."""

    def write(self, write: LockWrite) -> asyncio.Future[bool]:
        """Write locks with the next pipeline. Returns: False if Redis knows a higher leader epoch: hand out nothing."""
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self.degraded:
            if self._while_writing_back is not None:
                self._while_writing_back.append(write)
            done.set_result(True)
        else:
            self._gathered.append(_Waiting(write, done))
            if not self._busy:
                self._wake.set()
        return done

    async def write_now(self, write: LockWrite) -> bool:
        """As `write`. Sends the locks in the task that calls this, if nothing is under way."""
        if self.degraded or self._busy or self._in_company or self._gathered:
            return await self.write(write)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._gathered.append(_Waiting(write, done))
        try:
            await self._send_next()
        except BaseException:
            done.cancel()  # nobody awaits it
            raise
        return await done

    async def run(self) -> None:
        """Send gathered writes, one round trip at a time. Never returns."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._gathered and not self._busy:
                    await self._send_next()
        finally:
            await self._own_connection.close()

    async def _send_next(self) -> None:
        """Send what has gathered, in the task that calls this."""
        gathered, self._gathered = self._gathered, []
        self._busy = True
        self._in_company = IN_COMPANY if len(gathered) > 1 else max(self._in_company - 1, 0)
        try:
            refused = await self._without_key(gathered)
            if refused:  # Redis has lost their lists or who leads, or knows a later leader
                await self._guard(self._lead([waiting.write for waiting in refused], self._timeout_s))
                refused = await self._without_key(list(refused))
        finally:
            self._busy = False
            if self._gathered:
                self._in_company = IN_COMPANY
                self._wake.set()
        for waiting in gathered:
            if not waiting.done.done():
                waiting.done.set_result(waiting not in refused)

    async def _without_key(self, gathered: Sequence[_Waiting]) -> dict[_Waiting, None]:
        """Write locks. Returns: the writes that Redis lacks a key for; none once it is not used."""
        refused: dict[_Waiting, None] = {}
        for trip in round_trips([waiting.write for waiting in gathered], self._keys):
            answers = await self._guard(self._own_connection.execute([call.command for call in trip], self._timeout_s))
            if answers is None:
                return {}
            failed = [call.write for call, answer in zip(trip, answers, strict=True) if not answer]
            refused.update((gathered[place], None) for place in failed if place is not None)
        return refused

    async def _lead(self, writes: Sequence[LockWrite], timeout_s: float) -> None:
        """Have Redis make the lists of these writes, unless it knows a later leader."""
        for start in range(0, len(writes), LOADED_AT_ONCE):
            some = writes[start : start + LOADED_AT_ONCE]
            await self._load([(write.key, write.leader_epoch) for write in some], (0, 0), timeout_s)

    async def _load(
        self, epochs: Sequence[tuple[SharePartitionKey, int]], lost: tuple[int, int], timeout_s: float
    ) -> list[Any]:
        """Make each epoch the last one. Returns: the entries of each, or the higher epoch that Redis knows."""
        commands = [
            ["EVALSHA", LOAD_SHA1, 2, self._keys.leader(key), self._keys.locks(key), leader_epoch, LOCKS_TTL_MS, *lost]
            for key, leader_epoch in epochs
        ]
        try:
            return await self._execute(commands, timeout_s)
        except NoScriptError:  # Redis has lost the script, for example by a restart
            await self._execute([["SCRIPT LOAD", LOAD]], timeout_s)
            return await self._execute(commands, timeout_s)

    async def _execute(self, commands: Commands, timeout_s: float) -> list[Any]:
        """Run commands in one round trip on a connection of the pool."""
        pipeline = self._redis.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        with asking():
            answers: list[Any] = await in_time(pipeline.execute(), timeout_s)
        return answers

    async def _guard(self, call: Awaitable[Any]) -> Any:
        """Await a call. Returns: its answer; None if it fails or is late: Redis is not used any more."""
        try:
            answer = await call
        except LOST as fault:
            if not self.degraded:
                self._turn(degraded=True)
                self._note(fault)
            answer = None
        heed_cancellation()
        return answer

    def _note(self, fault: BaseException) -> None:
        """Remember the trouble, and log it once: probes that find it again a minute later say so again."""
        self.trouble = trouble_of(fault)
        logged, at = self._logged
        if self.trouble != logged or time.monotonic() >= at + LOG_PAUSE_S:
            self._logged = (self.trouble, time.monotonic())
            log.warning(
                "Redis %s; a crash of this gateway would forget locks",
                self.trouble,
                extra=fields(cause=f"{fault!r}: {fault}"),
            )

    def _turn(self, *, degraded: bool) -> None:
        self.degraded = degraded
        if not degraded:
            self._logged = ("", 0.0)  # the next trouble is another one, however soon it comes
        metrics.LOCK_TIMERS_DEGRADED.set(degraded)


def heed_cancellation() -> None:
    """Raises: CancelledError: before Python 3.12 `asyncio.wait_for`, which redis-py uses, may swallow one."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

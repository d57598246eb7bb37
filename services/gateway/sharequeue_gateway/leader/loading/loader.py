"""Loading a share-partition: initialise it, read its state, restore its locks, find its start, be a reader of the log.

The order fences earlier leaders. Reading the state records the leader epoch at the share coordinator: from then on no
earlier leader can write. Then the lock script raises it in Redis: no earlier leader can acquire.
A share-partition whose start was never stored has no locks, so its load does not wait for Redis. It replaces all locks
there by none. Source: KIP-932.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sharequeue.clock import Clock
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.errors import KAFKA_CODES, InvalidRecordState, NotLeaderOrFollower, error_of
from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.protocol.types import LeftLocks, RestoredLock, SharePartitionKey, TopicIdPartition
from sharequeue.slices import Slices
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.paged_state import restored_from_pages
from sharequeue_gateway.leader.loading.start_offsets import StartOffsets, stored_start
from sharequeue_gateway.leader.persister import persist_error
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.record_log.removing.readers import Begun, Readers
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.runs import DeadLetter
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable, InvalidRequest

LOADS_AT_ONCE: Final = 64
NOT_INITIALIZED: Final = KAFKA_CODES[InvalidRequest.error]
"""The code of the share coordinator for a share-partition that was never initialised."""

Wanted = tuple[SharePartitionKey, KnownTopic]
Outcome = tuple[LedSharePartition, Sequence[DeadLetter]] | ApiError
Take = Callable[[Sequence[SharePartitionKey]], Awaitable[dict[SharePartitionKey, list[LeftLocks]]]]
"""Asks other gateways to yield share-partitions. Returns: the locks that each of them knew."""


class Fenced(NotLeaderOrFollower):
    """A store knows a higher leader epoch: `seen`."""

    def __init__(self, detail: str, seen: int) -> None:
        super().__init__(detail)
        self.seen = seen


@dataclass(eq=False, slots=True)
class _Loading:
    """One share-partition that is being loaded, and what the steps have found. `error`: the step that failed, if one
    has; the later steps leave it out.

    `kept`: the locks of Redis, of `entries` that it has; `missed`: those that Redis may have missed.
    """

    key: SharePartitionKey
    topic: KnownTopic
    error: ApiError | None = None
    state: PartitionStateResult = field(init=False)
    kept: Sequence[RestoredLock] = ()
    entries: int = 0
    missed: Sequence[RestoredLock] = ()
    begun: Begun = field(init=False)
    machine: SharePartition = field(init=False)
    dead_letters: Sequence[DeadLetter] = ()

    @property
    def place(self) -> TopicIdPartition:
        return self.key.topic_id, self.key.partition

    @property
    def locks(self) -> list[RestoredLock]:
        return [*self.kept, *self.missed]


@dataclass(eq=False)
class Loader:
    """Builds loaded share-partitions from the answers of the coordinators, Redis and the log."""

    clock: Clock
    metadata: Metadata
    share_coordinator: ShareStateClient
    record_log: RecordLog
    readers: Readers
    lock_timers: LockStore
    take_from_former: Take
    take_from_others: Take
    epochs: LeaderEpochs
    _at_once: asyncio.Semaphore = field(init=False, default_factory=lambda: asyncio.Semaphore(LOADS_AT_ONCE))

    def __post_init__(self) -> None:
        self._start_offsets = StartOffsets(self.record_log, self.readers, self.share_coordinator, self.clock)

    async def load(
        self,
        group_id: str,
        wanted: Sequence[Wanted],
        left: Mapping[SharePartitionKey, LeftLocks],
        *,
        initialize: bool,
    ) -> list[Outcome]:
        """Load share-partitions of one group.

        Args:
            left: the kept locks of share-partitions that this gateway led before. They stay held even if Redis has
                missed them, and so do the locks that another former leader answers with.
            initialize: create the group and its share-partitions.
        Returns: for each, the loaded share-partition with dead letters to resume, or its error.
        """
        async with self._at_once:
            leader_epoch, loads = self.epochs.current, [_Loading(*item) for item in wanted]
            group_known = self.metadata.config(group_id) is not None
            ask_first = self.metadata.reachable() or not group_known
            if initialize and ask_first:
                await self._initialize(group_id, loads)
            given = await self.take_from_former([load.key for load in _going_on(loads)])
            await self._read(group_id, _going_on(loads), leader_epoch)
            if initialize and not ask_first:  # without the group coordinator, the state shows whether it is initialised
                unknown = [load for load in _going_on(loads) if load.state.error_code == NOT_INITIALIZED]
                if unknown:
                    await self._initialize(group_id, unknown)
                    await self._read(group_id, _going_on(unknown), leader_epoch)
            for load in _going_on(loads):
                load.error = _read_error(load.state, initialized=initialize) if load.state.error_code else None
            await self._find_locks(_going_on(loads), left, given, leader_epoch)
            if _going_on(loads):
                await self._restore(group_id, _going_on(loads), leader_epoch)
            return [load.error or self._led(load) for load in loads]

    async def _initialize(self, group_id: str, loads: Sequence[_Loading]) -> None:
        partitions: dict[str, list[int]] = {}
        for load in loads:
            partitions.setdefault(load.key.topic_id, []).append(load.key.partition)
        response = await self.metadata.initialize(group_id, partitions)
        failed = {
            (each.topic_id, each.partition): error_of(each.error_code, each.error_message) for each in response.failed
        }
        for load in loads:
            load.error = failed.get(load.place)

    async def _read(self, group_id: str, loads: Sequence[_Loading], leader_epoch: int) -> None:
        if loads:
            states = await self.share_coordinator.read(group_id, [load.key for load in loads], leader_epoch)
            for load in loads:
                load.state = states[load.key]

    async def _find_locks(
        self,
        loads: Sequence[_Loading],
        left: Mapping[SharePartitionKey, LeftLocks],
        given: Mapping[SharePartitionKey, Sequence[LeftLocks]],
        leader_epoch: int,
    ) -> None:
        """Find the locks in Redis and at former leaders; none from before the state was reset."""
        begun = [load for load in loads if stored_start(load.state) is not None]
        epochs = [(load.key, leader_epoch, load.state.state_epoch or 0) for load in begun]
        kept = dict(zip(begun, await self.lock_timers.load(epochs, self.epochs.lost), strict=True))
        away = begun and self.lock_timers.degraded
        others = await self.take_from_others([load.key for load in begun]) if away else {}
        for load in loads:
            key, found = load.key, kept.get(load)
            if isinstance(found, int):
                load.error = Fenced("another gateway leads this share-partition", found)
                continue
            earlier = [*([left[key]] if key in left else ()), *given.get(key, ()), *others.get(key, ())]
            load.kept, load.entries = found or ((), 0)
            load.missed = [
                lock for each in earlier if each.state_epoch == load.state.state_epoch for lock in each.locks
            ]

    async def _restore(self, group_id: str, loads: Sequence[_Loading], leader_epoch: int) -> None:
        """Find the starts, and rebuild the machines page by page. Other tasks run between two slices."""
        # only now: otherwise requests with unknown group names would fill the memory
        config = self.metadata.config(group_id) or await self.metadata.learn_config(group_id)
        begun = await self._start_offsets.begin(
            group_id, {load.key: load.state for load in loads}, leader_epoch, config
        )
        for load in loads:
            found = begun[load.key]
            if isinstance(found, ApiError):
                load.error = found
            else:
                load.begun = found
        await self._drop_lost(_going_on(loads))
        slices = Slices()
        beyond: dict[TopicIdPartition, int] = {}
        for load in _going_on(loads):
            try:
                load.machine, load.dead_letters = await restored_from_pages(
                    self.share_coordinator,
                    load.key,
                    load.state,
                    self.metadata.config(group_id) or config,  # the settings may have changed since
                    start_offset=load.begun.start_offset,
                    leader_epoch=leader_epoch,
                    locks=load.locks,
                    now_ms=self.clock.now_ms(),
                    slices=slices,
                )
            except ApiError as error:
                load.error = error
                continue
            end = load.machine.end_offset + 1 if load.machine.runs else load.machine.start_offset
            if 0 <= load.begun.log_end_offset < end:  # the log is older than the state
                beyond[load.place] = end
        if beyond:
            await self.record_log.end_above(beyond)

    async def _drop_lost(self, loads: Sequence[_Loading]) -> None:
        """Keep the locks whose records the log has. The offsets of the others are given to no record."""
        for load in loads:
            end, reach = load.begun.log_end_offset, max((lock.last_offset for lock in load.locks), default=-1) + 1
            if reach == 0 or end < 0:
                continue
            if end < reach:
                await self.record_log.end_above({load.place: reach})
            elif not self.record_log.ever_skipped:
                continue
            locks = load.locks
            ranges = [(lock.first_offset, lock.last_offset) for lock in locks]
            held = await self.record_log.with_records(load.place, ranges)
            if len(held) < len(locks):  # none as kept: then all of them are written to Redis again
                load.kept, load.missed = (), [locks[index] for index in held]

    def _led(self, load: _Loading) -> tuple[LedSharePartition, Sequence[DeadLetter]]:
        key, state = load.key, load.state
        load.machine.config = self.metadata.config(key.group_id) or load.machine.config
        led = LedSharePartition(key, load.machine, load.topic.name, self.clock.now_ms())
        led.stored_start, led.floor, _, *led.told_ahead = load.begun
        led.version, led.store = -1 if state.version is None else state.version, state.store
        if load.missed or stored_start(state) is None:
            self.lock_timers.write(led.all_locks())
        else:
            led.lock_entries = load.entries
        return led, load.dead_letters


def _going_on(loads: Iterable[_Loading]) -> list[_Loading]:
    """The loads of which no step has failed."""
    return [load for load in loads if load.error is None]


def _read_error(state: PartitionStateResult, *, initialized: bool) -> ApiError:
    if state.error_code == NOT_INITIALIZED:
        if initialized:
            return CoordinatorNotAvailable("the group's state was deleted just now; try again in a moment")
        return InvalidRecordState("this group has never fetched from this partition, so there is nothing to settle")
    error = persist_error(state.error_code, state.error_message)
    return Fenced(error.detail, state.leader_epoch) if state.leader_epoch is not None else error

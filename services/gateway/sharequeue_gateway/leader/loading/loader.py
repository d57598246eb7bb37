"""Loading a share-partition: initialise it, read its state, restore its locks, find its start, be a reader of the log.

The order fences earlier leaders. Reading the state records the leader epoch at the share coordinator: from then on no
earlier leader can write. Then the lock script raises it in Redis: no earlier leader can acquire.
A share-partition whose start was never stored has no locks, so its load does not wait for Redis. It replaces all locks
there by none. Source: KIP-932.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sharequeue.clock import Clock
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import KAFKA_CODES, InvalidRecordState, NotLeaderOrFollower, error_of
from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.protocol.types import LeftLocks, RestoredLock, SharePartitionKey, TopicIdPartition
from sharequeue.slices import Slices
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.leader import lock_entries
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.paged_state import restored_from_pages
from sharequeue_gateway.leader.loading.start_offsets import StartOffsets, stored_start
from sharequeue_gateway.leader.persister import persist_error
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.record_log.removing.readers import Begun, Readers
from sharequeue_gateway.share_partition.machine import DeadLetter, Loaded
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


class Locks(NamedTuple):
    """The locks of a share-partition. `kept`: those of Redis; `missed`: those that Redis may have missed."""

    kept: Sequence[RestoredLock]
    missed: Sequence[RestoredLock]


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

    @property
    def trouble(self) -> str:
        """As `RecordLog.trouble`."""
        return self.record_log.trouble

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
            leader_epoch = self.epochs.current
            faults: dict[SharePartitionKey, ApiError] = {}
            group_known = self.metadata.config(group_id) is not None
            ask_first = self.metadata.reachable() or not group_known
            if initialize and ask_first:
                faults = await self._initialize(group_id, wanted)
            to_read = [item for item in wanted if item[0] not in faults]
            given = await self.take_from_former([key for key, _ in to_read])
            states = await self._read(group_id, to_read, leader_epoch)
            if initialize and not ask_first:  # without the group coordinator, the state shows whether it is initialised
                unknown = [item for item in to_read if states[item[0]].error_code == NOT_INITIALIZED]
                if unknown:
                    faults = await self._initialize(group_id, unknown)
                    to_read = [item for item in to_read if item[0] not in faults]
                    again = [item for item in unknown if item[0] not in faults]
                    states = {**states, **await self._read(group_id, again, leader_epoch)}
            readable = [item for item in to_read if states[item[0]].error_code == 0]
            known, fenced = await self._locks([key for key, _ in readable], states, left, given, leader_epoch)
            faults |= fenced
            if known:
                # only now: otherwise requests with unknown group names would fill the memory
                config = self.metadata.config(group_id) or await self.metadata.learn_config(group_id)
                begun = await self._start_offsets.begin(
                    group_id, {key: states[key] for key in known}, leader_epoch, config
                )
                known = await self._of_records(known, begun)
                # the settings may have changed while the start offsets were resolved
                config = self.metadata.config(group_id) or config
            slices = Slices()
            machines = {
                key: await self._restored(key, config, states[key], begun[key], locks, leader_epoch, slices)
                for key, locks in known.items()
            }
            if known:  # they may have changed again in the pauses
                config = self.metadata.config(group_id) or config
                if lost := _beyond_log(machines, begun):
                    await self.record_log.end_above(lost)
            outcomes: list[Outcome] = []
            for key, topic in wanted:
                if key in faults:
                    outcomes.append(faults[key])
                elif states[key].error_code:
                    outcomes.append(_read_error(states[key], initialized=initialize))
                else:
                    outcomes.append(self._led(key, topic, machines[key], config, begun[key], known[key], states[key]))
            return outcomes

    async def _initialize(self, group_id: str, wanted: Sequence[Wanted]) -> dict[SharePartitionKey, ApiError]:
        partitions: dict[str, list[int]] = {}
        for key, _ in wanted:
            partitions.setdefault(key.topic_id, []).append(key.partition)
        response = await self.metadata.initialize(group_id, partitions)
        return {
            SharePartitionKey(group_id, failed.topic_id, failed.partition): error_of(
                failed.error_code, failed.error_message
            )
            for failed in response.failed
        }

    async def _read(
        self, group_id: str, wanted: Sequence[Wanted], leader_epoch: int
    ) -> Mapping[SharePartitionKey, PartitionStateResult]:
        if not wanted:
            return {}
        return await self.share_coordinator.read(group_id, [key for key, _ in wanted], leader_epoch)

    async def _locks(
        self,
        keys: Sequence[SharePartitionKey],
        states: Mapping[SharePartitionKey, PartitionStateResult],
        left: Mapping[SharePartitionKey, LeftLocks],
        given: Mapping[SharePartitionKey, Sequence[LeftLocks]],
        leader_epoch: int,
    ) -> tuple[dict[SharePartitionKey, Locks], dict[SharePartitionKey, ApiError]]:
        """The locks of share-partitions, from Redis and from former leaders, and those that Redis refuses, because it
        knows a higher leader epoch."""
        begun = [key for key in keys if stored_start(states[key]) is not None]
        epochs = [(key, leader_epoch, states[key].state_epoch or 0) for key in begun]
        kept = dict(zip(begun, await self.lock_timers.load(epochs, self.epochs.lost), strict=True))
        others = await self.take_from_others(begun) if begun and self.lock_timers.degraded else {}
        known: dict[SharePartitionKey, Locks] = {}
        fenced: dict[SharePartitionKey, ApiError] = {}
        for key in keys:
            locks = kept.get(key, ())
            if isinstance(locks, int):
                fenced[key] = Fenced("another gateway leads this share-partition", locks)
            else:
                missed = _missed(
                    [*([left[key]] if key in left else ()), *given.get(key, ()), *others.get(key, ())], states[key]
                )
                known[key] = Locks(locks, missed)
        return known, fenced

    async def _of_records(
        self, known: Mapping[SharePartitionKey, Locks], begun: Mapping[SharePartitionKey, Begun | ApiError]
    ) -> dict[SharePartitionKey, Locks]:
        """The locks whose records the log has. The offsets of the others are given to no record."""
        within: dict[SharePartitionKey, Locks] = dict(known)
        for key, (kept, missed) in known.items():
            locks, found = [*kept, *missed], begun[key]
            reach = max((lock.last_offset for lock in locks), default=-1) + 1
            if reach == 0 or isinstance(found, ApiError) or found.log_end_offset < 0:
                continue
            if found.log_end_offset < reach:
                await self.record_log.end_above({(key.topic_id, key.partition): reach})
            elif not self.record_log.ever_skipped:
                continue
            ranges = [(lock.first_offset, lock.last_offset) for lock in locks]
            held = await self.record_log.with_records((key.topic_id, key.partition), ranges)
            if len(held) < len(locks):  # none as kept: then all of them are written to Redis again
                within[key] = Locks((), [locks[index] for index in held])
        return within

    async def _restored(
        self,
        key: SharePartitionKey,
        config: ShareGroupConfig,
        state: PartitionStateResult,
        begun: Begun | ApiError,
        locks: Locks,
        leader_epoch: int,
        slices: Slices,
    ) -> Loaded | ApiError:
        """Rebuild the machine of a share-partition, page by page. Other tasks run between two slices."""
        if isinstance(begun, ApiError):
            return begun
        try:
            return await restored_from_pages(
                self.share_coordinator,
                key,
                state,
                config,
                start_offset=begun.start_offset,
                leader_epoch=leader_epoch,
                locks=[*locks.kept, *locks.missed],
                now_ms=self.clock.now_ms(),
                slices=slices,
            )
        except ApiError as error:
            return error

    def _led(
        self,
        key: SharePartitionKey,
        topic: KnownTopic,
        loaded: Loaded | ApiError,
        config: ShareGroupConfig,
        begun: Begun | ApiError,
        locks: Locks,
        state: PartitionStateResult,
    ) -> Outcome:
        if isinstance(loaded, ApiError):
            return loaded
        if isinstance(begun, ApiError):
            return begun
        now_ms = self.clock.now_ms()
        loaded.share_partition.config = config
        led = LedSharePartition(key, topic.name, loaded.share_partition, now_ms)
        led.stored_start, led.floor, _, *led.told_ahead = begun
        led.version, led.store = -1 if state.version is None else state.version, state.store
        if locks.missed or stored_start(state) is None:
            self.lock_timers.write(lock_entries.whole(led))
        elif locks.kept:
            led.lock_entries = len(locks.kept)
        return led, loaded.dead_letters


def _read_error(state: PartitionStateResult, *, initialized: bool) -> ApiError:
    if state.error_code == NOT_INITIALIZED:
        if initialized:
            return CoordinatorNotAvailable("the group's state was deleted just now; try again in a moment")
        return InvalidRecordState("this group has never fetched from this partition, so there is nothing to settle")
    error = persist_error(state.error_code, state.error_message)
    return Fenced(error.detail, state.leader_epoch) if state.leader_epoch is not None else error


def _beyond_log(
    machines: Mapping[SharePartitionKey, Loaded | ApiError], begun: Mapping[SharePartitionKey, Begun | ApiError]
) -> dict[TopicIdPartition, int]:
    """Return where the states end that name records behind the log's end: the log is older than they are."""
    beyond = {}
    for key, loaded in machines.items():
        found = begun[key]
        if isinstance(loaded, ApiError) or isinstance(found, ApiError):
            continue
        machine = loaded.share_partition
        end = machine.end_offset + 1 if machine.runs else machine.start_offset
        if 0 <= found.log_end_offset < end:
            beyond[key.topic_id, key.partition] = end
    return beyond


def _missed(left: Sequence[LeftLocks], state: PartitionStateResult) -> list[RestoredLock]:
    """The locks that earlier leaders left; none from before the state was reset."""
    return [lock for locks in left if locks.state_epoch == state.state_epoch for lock in locks.locks]

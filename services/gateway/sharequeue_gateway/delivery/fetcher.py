"""The fetch: takes share-partitions in turn, acquires what it may, and waits until there is something.

A fetch is answered when it has acquired records, when reading a partition failed, one is led elsewhere or none is left to
wait for, or when its time is over. A client that disconnects while its fetch waits acquires nothing. Source: KIP-932, delayed share fetch.
"""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from sharequeue.clock import Clock
from sharequeue.protocol.errors import ApiError, NotLeaderOrFollower
from sharequeue.protocol.types import AcknowledgeType, TopicIdPartition
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import Topic
from sharequeue_gateway.delivery.partition_reader import Acquisition, FetchLimits, PartitionReader
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.leader import led_metrics
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition, may_acquire
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.share_partition.acquisition import can_acquire
from sharequeue_gateway.share_partition.fetch_limits import rotate, split_bytes
from sharequeue_gateway.share_partition.machine import AcknowledgementBatch
from sharequeue_gateway.share_partition.turns import in_turn

log = logging.getLogger(__name__)

LOADED_AT_ONCE: Final = 500
"""How many share-partitions a fetch has loaded before it looks whether they have records."""
LOOKED_AT_ONCE: Final = 500
"""How many share-partitions a fetch looks at before others have their turn, and before it is answered with those."""
ASKED_ALONE: Final = 16
"""Of how many logs at most the ends are asked for one by one."""
MANY_WAITED_FOR: Final = 10_000
LOOK_S: Final = 1.0
"""How long a fetch that has found nothing waits to learn where the log ends now."""
NOTICED_MS: Final = 1000
"""A fetch that waits for so long is woken by other gateways' appends in any case."""
PASS_ON_PAUSE_S: Final = 0.05
"""How long another gateway that was woken has to fetch before the next one is woken."""


class PartitionFault(NamedTuple):
    topic: str
    partition: int
    error: ApiError

    @property
    def led_elsewhere(self) -> bool:
        return self.error.error is NotLeaderOrFollower.error


class Fetcher:
    """Runs fetches over the share-partitions of a leader and the record log."""

    def __init__(self, leader: Leader, record_log: RecordLog, clock: Clock) -> None:
        self._leader = leader
        self._record_log = record_log
        self._reader = PartitionReader(leader, record_log, clock)
        self._clock = clock
        leader.on_log_changed = self._note_left
        self._turns: Final = itertools.count(1)
        self._waiting: dict[WaitingFetch, Sequence[LedSharePartition]] = {}
        self._under_way: dict[WaitingFetch, str] = {}
        """Fetches of what is led here, with their groups: those that wait, and those that still load or read."""
        self.routed: dict[WaitingFetch, str] = {}
        """Fetches over several gateways, also while they wait at another one, with their groups."""
        self.elsewhere: set[WaitingFetch] = set()
        """Those that were passed on whole to the only leader, who waits for them."""

    @property
    def waiting(self) -> int:
        """Fetches that wait for records, here or at another gateway."""
        return len(self._waiting) + len(self.elsewhere)

    def waited_for(self) -> set[TopicIdPartition]:
        """The partitions somebody waits for."""
        leds: Iterable[LedSharePartition] = itertools.chain.from_iterable(self._waiting.values())
        if sum(map(len, self._waiting.values())) > MANY_WAITED_FOR:  # many fetches wait for the same ones
            leds = (led for led in self._leader.all() if led.waiters is not None)
        return {(led.key.topic_id, led.key.partition) for led in leds}

    def under_way(self, group_id: str) -> list[WaitingFetch]:
        """A group's fetches that wait for records, or will."""
        return [waiting for waiting, of_group in self._under_way.items() if of_group == group_id]

    def end(self, group_id: str) -> None:
        """Answer a group's fetches now: its state is set anew, and they must not begin it again."""
        routed = [waiting for waiting, of_group in self.routed.items() if of_group == group_id]
        for waiting in {*self.under_way(group_id), *routed}:
            waiting.end()

    async def finish(self) -> None:
        """Answer every waiting fetch now: the gateway stops."""
        for waiting in {*self._waiting, *self.routed}:
            waiting.finish()

    async def fetch(
        self,
        waiting: WaitingFetch,
        group_id: str,
        member_id: str,
        partitions: Sequence[tuple[Topic, int]],
        limits: FetchLimits,
        turn: int | None,
    ) -> tuple[list[Acquisition], list[PartitionFault]]:
        """Acquire from the partitions, in turn; wait until the deadline while there is nothing.

        Args:
            turn: the session's epoch, which rotates partitions that gave records equally long ago, as new ones.
        """
        rotated = partitions if turn is None else rotate(partitions, turn)
        self._under_way[waiting] = group_id
        try:
            while True:
                acquired, faults, stale = await self._fetch_once(waiting, group_id, member_id, rotated, limits)
                if waiting.ended:
                    return acquired, []
                if acquired or not stale or waiting.over:
                    return acquired, faults
        finally:
            del self._under_way[waiting]

    async def _fetch_once(
        self,
        waiting: WaitingFetch,
        group_id: str,
        member_id: str,
        partitions: Sequence[tuple[Topic, int]],
        limits: FetchLimits,
    ) -> tuple[list[Acquisition], list[PartitionFault], bool]:
        """Of many partitions that are not loaded some are loaded and looked at, then the next ones: what is there is
        taken at once. A fetch that does not wait leaves the others to the next one.

        Returns: what was acquired, faults, and whether a share-partition was unloaded meanwhile and must be loaded again.
        """
        leds, missing = self._leader.find(group_id, partitions)
        if len(missing) > LOADED_AT_ONCE:  # else those that cannot be loaded might be tried first each time
            missing = rotate(missing, random.randrange(len(missing)))
        faults: list[PartitionFault] = []
        waits = limits.deadline_ms > self._clock.now_ms()
        last_look = registered = looked_at_ends = False
        waits_since_ms = 0
        try:
            while True:
                missing = await self._load(group_id, missing, leds, faults, limits.deadline_ms)
                not_loaded = len(faults)
                acquired = await self._attempt(waiting, member_id, leds, limits, faults, last_look)
                if acquired or waiting.over or last_look or waiting.failed_acknowledgement:
                    return acquired, faults, False
                if len(faults) > not_loaded or (faults and not leds) or any(fault.led_elsewhere for fault in faults):
                    return [], faults, False
                if any(led.fenced for led in leds):
                    return [], faults, True
                if limits.max_records == 0 or limits.max_bytes == 0:
                    return [], faults, False
                now_ms = self._clock.now_ms()
                remaining_ms = limits.deadline_ms - now_ms
                if remaining_ms <= 0:
                    if looked_at_ends or not await self._look_at_ends(leds, limits):
                        if limits.min_bytes <= 1 or not waits:
                            return [], faults, False
                        last_look = True  # the wait ended while it loaded: less than min_bytes has to do
                    looked_at_ends = True
                    continue
                if missing:
                    continue
                if not registered:  # what happened until now has woken nobody: look once more
                    for led in leds:
                        led.add_waiter(waiting)
                    registered = True
                    continue
                waits_since_ms = waits_since_ms or now_ms
                self._pass_on(leds, waiting)
                self._waiting[waiting] = leds
                try:
                    woken = await waiting.wait(remaining_ms / 1000)
                finally:
                    del self._waiting[waiting]
                last_look = not woken
                if last_look:
                    metrics.DELAYED_FETCHES_EXPIRED.inc()
                    if self._clock.now_ms() - waits_since_ms < NOTICED_MS:
                        await self._look_at_ends(leds, limits)
        finally:
            if registered:
                for led in leds:
                    led.remove_waiter(waiting)
            self._pass_on(leds)

    async def _load(
        self,
        group_id: str,
        missing: Sequence[tuple[Topic, int]],
        leds: list[LedSharePartition],
        faults: list[PartitionFault],
        deadline_ms: int | None,
    ) -> Sequence[tuple[Topic, int]]:
        """Load some of the partitions into `leds`, those that cannot be into `faults`. Returns: those that are left."""
        if not missing:
            return missing
        some = missing[:LOADED_AT_ONCE]
        loaded = await self._leader.get(group_id, some, deadline_ms=deadline_ms)
        for (topic, partition), outcome in zip(some, loaded, strict=True):
            if isinstance(outcome, LedSharePartition):
                leds.append(outcome)
            else:
                faults.append(PartitionFault(topic.name, partition, outcome))
        return missing[LOADED_AT_ONCE:]

    async def _look_at_ends(self, leds: Sequence[LedSharePartition], limits: FetchLimits) -> bool:
        """Learn what other gateways appended: a produce that was answered 200 is found by the next fetch.

        Returns: whether it is worth looking for records again; not where there is no other gateway.
        """
        if self._leader.alone or not limits.look_at_ends:
            return False
        try:
            async with asyncio.timeout(LOOK_S):
                await self._record_log.look([(led.key.topic_id, led.key.partition) for led in leds])
        except (ApiError, TimeoutError):
            return False
        return True

    async def wait(
        self, waiting: WaitingFetch, group_id: str, partitions: Sequence[tuple[Topic, int]], seconds: float
    ) -> Sequence[LedSharePartition]:
        """Wait until one of the partitions may have something or is led elsewhere, or the time is over.

        Nothing is acquired. Returns: the share-partitions waited for; `pass_on_later` hands the wake-up on if nobody
        fetches.
        """
        self._under_way[waiting] = group_id
        leds, missing = self._leader.find(group_id, partitions)
        faults: list[PartitionFault] = []
        waited_at = 0
        try:
            while True:
                missing = await self._load(group_id, missing, leds, faults, None)
                new, waited_at = leds[waited_at:], len(leds)
                for led in new:
                    led.add_waiter(waiting)
                self._waiting[waiting] = leds
                now_ms = self._clock.now_ms()
                moved = any(fault.led_elsewhere for fault in faults) or any(led.fenced for led in leds)
                if moved or any(may_acquire(led, self._record_log, now_ms) for led in new):
                    return leds
                if waiting.woken or not missing:
                    await waiting.wait(seconds)
                    return leds
        finally:
            self._waiting.pop(waiting, None)
            del self._under_way[waiting]
            for led in leds[:waited_at]:
                led.remove_waiter(waiting)

    def pass_on_later(self, leds: Sequence[LedSharePartition]) -> None:
        """Another gateway was told to fetch: if it takes nothing, the next one that waits is told."""
        asyncio.get_running_loop().call_later(PASS_ON_PAUSE_S, self._pass_on, leds)

    def _pass_on(self, leds: Sequence[LedSharePartition], waiting: WaitingFetch | None = None) -> None:
        """What this fetch leaves is for the next one that waits.

        Args:
            waiting: the fetch if it goes on waiting: then it is for those behind it, and whoever it turned away.
        """
        now_ms = self._clock.now_ms()
        for led in leds:
            if led.waiters is None or led.empty_until_ms > now_ms:
                continue
            if waiting is not None and len(led.waiters) == 1 and not led.turned_away:
                continue
            if led.reading:
                led.turned_away = True  # whoever reads passes it on
            elif may_acquire(led, self._record_log, now_ms):
                if waiting is None or led.turned_away:
                    led.turned_away = False
                    led.wake()
                else:
                    led.wake_after(waiting)

    async def _attempt(
        self,
        waiting: WaitingFetch,
        member_id: str,
        leds: Sequence[LedSharePartition],
        limits: FetchLimits,
        faults: list[PartitionFault],
        last_look: bool,
    ) -> list[Acquisition]:
        if limits.max_records == 0 or limits.max_bytes == 0:
            return []
        now_ms = self._clock.now_ms()
        there = []
        for led in leds:
            led.used_at_ms = now_ms
            if led.empty_until_ms <= now_ms:
                there.append(led)
        there = in_turn(there)
        known_faults = len(faults)
        min_bytes = 1 if last_look else limits.min_bytes
        if min_bytes > 1:
            there = await self._with_records(there, now_ms, faults)
            if not there or not await self._reader.min_bytes_there(there, limits):
                return []
        for start in range(0, len(there), LOOKED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            taken = self._takeable(there[start : start + LOOKED_AT_ONCE], now_ms)
            if not taken:
                continue
            if min_bytes <= 1 and len(taken) > ASKED_ALONE and not await self._learn_ends(taken, faults):
                return []
            acquired = await self._take(waiting, member_id, taken, limits, faults)
            if acquired or waiting.over or len(faults) > known_faults:
                return acquired
        return []

    async def _with_records(
        self, leds: Sequence[LedSharePartition], now_ms: int, faults: list[PartitionFault]
    ) -> list[LedSharePartition]:
        """Those that may have something; none if that cannot be known. Others have their turns in between."""
        there: list[LedSharePartition] = []
        for start in range(0, len(leds), LOOKED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            takeable = self._takeable(leds[start : start + LOOKED_AT_ONCE], now_ms)
            if len(takeable) > ASKED_ALONE and not await self._learn_ends(takeable, faults):
                return []
            there += [led for led in takeable if may_acquire(led, self._record_log, now_ms)]
        return there

    def _takeable(self, leds: Sequence[LedSharePartition], now_ms: int) -> list[LedSharePartition]:
        """Those that no other fetch reads and whose limits leave room; the others are turned away."""
        taken = []
        for led in leds:
            if led.fenced:
                continue
            if not led.reading:
                self._leader.expire_if_due(led, now_ms)
                if can_acquire(led.machine):
                    taken.append(led)
                    continue
            led.turned_away = True
        return taken

    async def _learn_ends(self, leds: Sequence[LedSharePartition], faults: list[PartitionFault]) -> bool:
        """Have the ends of logs known. Returns: False if they cannot be: then each is a fault."""
        try:
            for start in range(0, len(leds), LOOKED_AT_ONCE):
                some = leds[start : start + LOOKED_AT_ONCE]
                await self._record_log.learn_ends([(led.key.topic_id, led.key.partition) for led in some])
        except ApiError as error:
            faults += [PartitionFault(led.topic_name, led.key.partition, error) for led in leds]
            return False
        return True

    async def _take(
        self,
        waiting: WaitingFetch,
        member_id: str,
        taken: Sequence[LedSharePartition],
        limits: FetchLimits,
        faults: list[PartitionFault],
    ) -> list[Acquisition]:
        """Acquire from each in order until the limits are used up."""
        acquired: list[Acquisition] = []
        records_left = limits.max_records
        for led, max_bytes in zip(taken, split_bytes(limits.max_bytes, len(taken)), strict=True):
            if records_left <= 0:
                if not led.unserved_since_ms:
                    self._note_left(led)
                continue
            if led.fenced:
                continue
            if led.reading:
                led.turned_away = True
                continue
            started_s = time.perf_counter()
            try:
                acquisition = await self._reader.acquire(
                    waiting, member_id, led, limits, records_left, max(1, max_bytes)
                )
            except ApiError as error:
                faults.append(PartitionFault(led.topic_name, led.key.partition, error))
                continue
            finally:
                led_metrics.observe_fetch_lock(led, started_s)
            if acquisition is not None:
                self._leader.unserved.forget(led)
                led.served_turn = next(self._turns)
                acquired.append(acquisition)
                led.note_times(acquisition.batches)
                self._leader.activity.delivered(led, acquisition.ranges)
                for first_offset, last_offset, *_ in acquisition.ranges:
                    records = last_offset - first_offset + 1
                    records_left -= records
                    metrics.IN_FLIGHT_BATCH_RECORDS.observe(records)
            self._note_left(led)
        return acquired

    def _note_left(self, led: LedSharePartition) -> None:
        """Note whether there is something left in a share-partition; if not, the next fetches pass it over."""
        now_ms = self._clock.now_ms()
        if may_acquire(led, self._record_log, now_ms):
            self._leader.unserved.note(led, now_ms)
        else:
            self._leader.unserved.forget(led)

    def give_back(self, member_id: str, acquired: Sequence[Acquisition]) -> None:
        """Release at once what was acquired for a client that is gone; the delivery count stays."""
        now_ms = self._clock.now_ms()
        for led, ranges, _ in acquired:
            if led.fenced:
                continue
            for first_offset, last_offset, delivery_count, _ in ranges:
                release = AcknowledgementBatch(first_offset, last_offset, (AcknowledgeType.RELEASE,), delivery_count)
                try:
                    for write in led.machine.acknowledge(member_id, [release], now_ms).writes:
                        self._leader.persist(led, write)
                except ApiError as error:
                    log.info("a client that left keeps its lock until it ends: %s", error.detail)

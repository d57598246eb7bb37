"""A fetch that finds nothing at once: it loads share-partitions, looks again, and waits until its deadline.

    load some ──▶ look ──▶ nothing ──▶ register ──▶ look ──▶ nothing ──▶ sleep ──▶ woken ──▶ look …
      ▲             │                                                      │
      ╰─ more to load                                              deadline ──▶ look at the log ends, once

It is answered when it has acquired records, when a partition cannot be read or has another leader, or after its
deadline. A wake-up between a look and the registration would be lost, so a registered fetch looks again before it
sleeps, unless it knows that all are empty.
Source: KIP-932, delayed share fetch.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol.messages.leaders import Asked
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Partitions
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, PartitionFault
from sharequeue_gateway.delivery.waiting import Life, WaitingFetch, WaitingFetches
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import Sought
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.wake_up import may_acquire, pass_on
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.share_partition.fetch_limits import rotate
from sharequeue_http.forms.errors import ApiError

LOADED_AT_ONCE: Final = 500
"""The most share-partitions that a fetch loads before it looks for records in them."""
LOOK_S: Final = 1.0
"""The longest wait of a fetch that has found nothing for the current log ends."""
NOTICED_MS: Final = 1000
"""A fetch that waits this long is woken by appends of other gateways. A shorter one reads the log ends itself."""
PASS_ON_PAUSE_S: Final = 0.05
"""The time that another gateway has to fetch after its wake-up, before the next waiting fetch is woken."""


Look = Callable[[WaitingFetch, Asked, Sought, list[PartitionFault], int, bool], Awaitable[list[AcquiredRecords]]]
"""Acquires the available records of the loaded share-partitions: see `Fetcher.look`."""


@dataclass(eq=False)
class DelayedFetches:
    """Runs delayed fetches over the share-partitions of a leader and the record log."""

    leader: Leader
    record_log: RecordLog
    cluster: Cluster
    clock: Clock
    fetches: WaitingFetches
    look: Look

    async def fetch(
        self, waiting: WaitingFetch, asked: Asked, sought: Sought, faults: list[PartitionFault]
    ) -> tuple[list[AcquiredRecords], list[PartitionFault]]:
        """Acquire records, or wait for them until the deadline. A share-partition that is unloaded is loaded again.

        If none is missing, the caller has looked and found nothing. Afterwards it passes on the records left there.
        """
        looked = not sought.missing
        while True:
            if len(sought.missing) > LOADED_AT_ONCE:  # or each fetch could begin with those that cannot be loaded
                sought.missing = rotate(sought.missing, random.randrange(len(sought.missing)))
            delayed = _DelayedFetch(self, waiting, asked, sought, faults)
            acquired, unloaded = await delayed.run(looked=looked)
            if waiting.life is Life.ENDED:
                return acquired, []
            if acquired or not unloaded or waiting.over:
                return acquired, faults
            now_ms = self.clock.now_ms()
            pass_on(sought.ready(now_ms), self.record_log, now_ms)
            sought.find()
            faults, looked = [], False

    async def wait(
        self, waiting: WaitingFetch, group_id: str, partitions: Partitions, seconds: float
    ) -> Sequence[LedSharePartition]:
        """Wait until one of the partitions may have records or has another leader, or the time is over.

        Nothing is acquired. Returns: the share-partitions that were waited for. The caller passes them to
        `pass_on_later`, which wakes the next fetch if the woken gateway acquires nothing.
        """
        self.fetches.under_way[waiting] = group_id
        sought = self.leader.seek(group_id, partitions)
        sought.find()
        leds, missing = sought.leds, sought.missing
        faults: list[PartitionFault] = []
        waited_at = 0
        try:
            while True:
                missing = await self.load(group_id, missing, leds, faults, None)
                new, waited_at = leds[waited_at:], len(leds)
                for led in new:
                    led.add_waiter(waiting)
                self.fetches.waiting[waiting] = sought
                now_ms = self.clock.now_ms()
                moved = any(fault.led_elsewhere for fault in faults) or any(led.fenced for led in leds)
                if moved or any(may_acquire(led, self.record_log, now_ms) for led in new):
                    return leds
                if waiting.woken or not missing:
                    await waiting.wait(seconds)
                    return leds
        finally:
            self.fetches.waiting.pop(waiting, None)
            del self.fetches.under_way[waiting]
            for led in leds[:waited_at]:
                led.remove_waiter(waiting)

    def pass_on_later(self, leds: Sequence[LedSharePartition]) -> None:
        """Another gateway was woken to fetch: if it acquires nothing, the next waiting fetch is woken."""

        def wake_next() -> None:
            pass_on(leds, self.record_log, self.clock.now_ms())

        asyncio.get_running_loop().call_later(PASS_ON_PAUSE_S, wake_next)

    async def load(
        self,
        group_id: str,
        missing: Partitions,
        leds: list[LedSharePartition],
        faults: list[PartitionFault],
        deadline_ms: int | None,
    ) -> Partitions:
        """Load some of the partitions into `leds`; those that cannot be loaded go to `faults`. Returns: the others."""
        if not missing:
            return missing
        some = missing[:LOADED_AT_ONCE]
        loaded = await self.leader.get(group_id, some, deadline_ms=deadline_ms)
        for (topic, partition), outcome in zip(some, loaded, strict=True):
            if isinstance(outcome, LedSharePartition):
                leds.append(outcome)
            else:
                faults.append(PartitionFault(topic.name, partition, outcome))
        return missing[LOADED_AT_ONCE:]


@dataclass(eq=False)
class _DelayedFetch:
    """One delayed fetch, and its progress."""

    _shared: DelayedFetches
    _waiting: WaitingFetch
    _asked: Asked
    _sought: Sought
    _faults: list[PartitionFault]
    _registered: bool = False
    _waits_since_ms: int = 0
    _looked_at_ends: bool = False
    _last_look: bool = False

    def __post_init__(self) -> None:
        self._waits = self._asked.limits.deadline_ms > self._shared.clock.now_ms()

    async def run(self, *, looked: bool) -> tuple[list[AcquiredRecords], bool]:
        """Returns: the acquired records, and whether a share-partition was unloaded and must be loaded again."""
        shared, asked, faults, sought = self._shared, self._asked, self._faults, self._sought
        known_faults = 0
        acquired: list[AcquiredRecords] = []
        try:
            while True:
                if not looked:
                    sought.missing = await shared.load(
                        asked.group_id, sought.missing, sought.leds, faults, asked.limits.deadline_ms
                    )
                    known_faults = len(faults)
                    now_ms = shared.clock.now_ms()
                    acquired = await shared.look(self._waiting, asked, sought, faults, now_ms, self._last_look)
                looked = False
                if acquired or self._is_over() or self._fails(known_faults):
                    return acquired, False
                if sought.unloaded():
                    return [], True
                if not await self._next_look():
                    return [], False
        finally:
            if self._registered:
                sought.remove_waiter(self._waiting)

    def _is_over(self) -> bool:
        """Return whether this was the last look: the deadline has passed, or an event ended the fetch."""
        return self._last_look or self._waiting.life is not Life.OPEN

    def _fails(self, known_faults: int) -> bool:
        """Return whether a partition could not be read, none could be loaded, or one has another leader."""
        faults = self._faults
        if len(faults) > known_faults or (faults and not self._sought):
            return True
        return any(fault.led_elsewhere for fault in faults)

    async def _next_look(self) -> bool:
        """Load more, register or sleep before the next look. Returns: False if there is none: answer nothing."""
        limits, now_ms = self._asked.limits, self._shared.clock.now_ms()
        if limits.max_records == 0 or limits.max_bytes == 0:
            return False
        if now_ms >= limits.deadline_ms:
            return await self._look_after_deadline()
        if self._sought.missing:
            return True
        if not self._registered:
            self._sought.add_waiter(self._waiting)
            self._registered = True
            if self._sought.ready(now_ms, 1) or self._sought.unloaded():
                return True
        await self._sleep(now_ms)
        return True

    async def _look_after_deadline(self) -> bool:
        """After the deadline, read the log ends once. Then fewer bytes than `min_bytes` suffice."""
        if self._looked_at_ends or not await self._look_at_ends():
            if self._asked.limits.min_bytes <= 1 or not self._waits:
                return False
            self._last_look = True
        self._looked_at_ends = True
        return True

    async def _sleep(self, now_ms: int) -> None:
        """Sleep until an event wakes this fetch; if none does, the next look is the last one."""
        shared = self._shared
        self._waits_since_ms = self._waits_since_ms or now_ms
        pass_on(self._sought.ready(now_ms), shared.record_log, now_ms, self._waiting)
        shared.fetches.waiting[self._waiting] = self._sought
        try:
            woken = await self._waiting.wait((self._asked.limits.deadline_ms - now_ms) / 1000)
        finally:
            del shared.fetches.waiting[self._waiting]
        if not woken:
            self._last_look = True
            metrics.DELAYED_FETCHES_EXPIRED.inc()
            if shared.clock.now_ms() - self._waits_since_ms < NOTICED_MS:
                await self._look_at_ends()

    async def _look_at_ends(self) -> bool:
        """Read the log ends, so that the answer counts every append that was answered 200, at any gateway.

        Returns: whether another look may find records.
        """
        cluster = self._shared.cluster
        alone = cluster.alone and not cluster.changed_lately()  # a gateway that leaves may still append
        if alone or not self._asked.limits.look_at_ends:
            return False
        try:
            async with asyncio.timeout(LOOK_S):
                await self._shared.record_log.look([(led.key.topic_id, led.key.partition) for led in self._sought])
        except (ApiError, TimeoutError):
            return False
        return True

"""Fetches share-partitions that this gateway leads: acquires in turn, and writes the locks to Redis before the answer.

    find ──▶ look ──▶ acquire in turn ──▶ record the locks ──▶ answer
               │ nothing                        │ not recorded, or the client is gone: give back
               ▼
         delayed_fetch: load, wait, look again

A client that disconnects while its fetch waits acquires nothing. Source: KIP-932.
"""

import asyncio
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.clock import Clock
from sharequeue.protocol.messages.leaders import Asked
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Partitions
from sharequeue_gateway.delivery.delayed_fetch import DelayedFetches
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, PartitionFault
from sharequeue_gateway.delivery.partition_reader import PartitionReader
from sharequeue_gateway.delivery.repeated_fetches import RepeatedFetches
from sharequeue_gateway.delivery.waiting import Life, WaitingFetch, WaitingFetches
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import Sought
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.wake_up import may_acquire, pass_on
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.share_partition.acquisition import can_acquire
from sharequeue_gateway.share_partition.fetch_limits import split_bytes
from sharequeue_gateway.share_partition.turns import by_level
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable

LOOKED_AT_ONCE: Final = 500
"""How many share-partitions a fetch looks at before others have their turn, and before it is answered with those."""
ASKED_ALONE: Final = 16
"""Up to this many share-partitions are looked at first. If the log end of the first one is known, the others ask for
theirs one by one."""
MANY_WAITED_FOR: Final = 10_000


def parts_of(
    there: Sequence[LedSharePartition], levels: Mapping[str, int] | None, max_bytes: int
) -> Iterator[tuple[Sequence[LedSharePartition], int, bool]]:
    """Divide what a fetch looks at: each level, and of a level a few first, as these often use up the limits.

    Yields: share-partitions, the bytes for them, and whether the next ones follow although these gave records.
    """
    for leds in [there] if levels is None else by_level(there, lambda led: levels[led.key.topic_id]):
        first, some = leds[:ASKED_ALONE], leds[ASKED_ALONE:LOOKED_AT_ONCE]
        first_bytes = max(1, max_bytes * len(first) // (len(first) + len(some)))
        yield first, first_bytes, bool(some)
        if some:
            yield some, max_bytes - first_bytes, False
        for start in range(LOOKED_AT_ONCE, len(leds), LOOKED_AT_ONCE):
            yield leds[start : start + LOOKED_AT_ONCE], max_bytes, False


def parts_in_turn(
    sought: Sought, now_ms: int, max_bytes: int
) -> Iterator[tuple[Sequence[LedSharePartition], int, bool]]:
    """Divide whole topics as `parts_of` does. Those behind the first ones are found only if these leave something."""
    some = sought.ready(now_ms, ASKED_ALONE)
    count = min(sum([len(topic.in_turn) for topic in sought.topics]), LOOKED_AT_ONCE)
    if count:
        first_bytes = max(1, max_bytes * len(some) // count)
        yield some, first_bytes, count > len(some)
        looked_at = set(some)
        for most, bytes_left in ((LOOKED_AT_ONCE, max_bytes - first_bytes), (None, max_bytes)):
            some = [led for led in sought.ready(now_ms, most) if led not in looked_at]
            looked_at.update(some)
            for start in range(0, len(some), LOOKED_AT_ONCE):
                yield some[start : start + LOOKED_AT_ONCE], bytes_left, False


@dataclass(eq=False)
class Fetcher:
    """Runs fetches over the share-partitions of a leader and the record log."""

    _leader: Leader
    _record_log: RecordLog
    _repeated: RepeatedFetches
    _cluster: Cluster
    _clock: Clock
    fetches: WaitingFetches

    def __post_init__(self) -> None:
        leader, record_log, clock = self._leader, self._record_log, self._clock
        self._reader = PartitionReader(leader.locks, record_log, clock)
        self._turns = itertools.count(1)
        self.delayed = DelayedFetches(leader, record_log, self._cluster, clock, self.fetches, self.look)

    def waited_for(self) -> set[TopicIdPartition]:
        """The partitions for which any fetch waits."""
        waiting = self.fetches.waiting.values()
        leds: Iterable[LedSharePartition] = itertools.chain.from_iterable(waiting)
        if sum(map(len, waiting)) > MANY_WAITED_FOR:  # many fetches wait for the same ones
            leds = (led for led in self._leader.led if led.awaiting())
        return {(led.key.topic_id, led.key.partition) for led in leds}

    async def fetch(
        self, waiting: WaitingFetch, asked: Asked, partitions: Partitions
    ) -> tuple[list[AcquiredRecords], list[PartitionFault]]:
        """Acquire from the partitions in turn, or wait for records until the deadline.

        A repeat of a `fetch_id` gets the records that the first fetch still holds, and acquires nothing. While neither
        Redis nor the lease keeps other gateways from handing out the same records, every partition is a fault.
        """
        try:
            self._leader.locks.check_may_acquire()
        except CoordinatorNotAvailable as away:
            return [], [PartitionFault(topic.name, partition, away) for topic, partition in partitions]
        waiting.member_id = asked.member_id
        self.fetches.under_way[waiting] = asked.group_id
        try:
            if asked.fetch_id is None or asked.new_id:
                return await self._acquire(waiting, asked, partitions)
            async with self._repeated.under_way(asked, waiting):
                again = await self._repeated.still_held(asked, partitions)
                if again or waiting.over:
                    return again, []
                return await self._acquire(waiting, structs.replace(asked, now_ms=self._clock.now_ms()), partitions)
        finally:
            del self.fetches.under_way[waiting]

    async def _acquire(
        self, waiting: WaitingFetch, asked: Asked, partitions: Partitions
    ) -> tuple[list[AcquiredRecords], list[PartitionFault]]:
        started_s = time.perf_counter()
        faults: list[PartitionFault] = []
        sought = self._leader.seek(asked.group_id, partitions, asked.turn)
        sought.find()
        try:
            acquired = [] if sought.missing else await self.look(waiting, asked, sought, faults, asked.now_ms)
            if not acquired:
                acquired, faults = await self.delayed.fetch(waiting, asked, sought, faults)
        finally:
            # wake other fetches for the records that this one leaves where it was woken, or kept others away
            leds = sought.ready(self._clock.now_ms()) if sought.topics and sought.waits else sought.looked_at
            awaited = [led for led in leds if led.waiters or (led.of_topic is not None and led.of_topic.waiters)]
            if awaited:
                pass_on(awaited, self._record_log, self._clock.now_ms())
        if waiting.life is not Life.ENDED:  # else the group may be deleted by now
            metrics.ACQUIRE_SECONDS.observe(time.perf_counter() - started_s)
            metrics.FETCH_RATIO.observe(100 * len(acquired) / len(partitions))
        if acquired:
            acquired = await self._with_recorded_locks(waiting, asked, acquired)
        elif self._leader.failing:
            faults = [*faults, *self._not_settling(sought)]
        return acquired, faults

    def _not_settling(self, leds: Iterable[LedSharePartition]) -> list[PartitionFault]:
        """The share-partitions whose records could not be settled now, so that none was acquired."""
        faults = []
        for led in leds:
            cause = self._leader.cause_of_failing(led.key)
            if cause is not None and not led.fenced:
                away = CoordinatorNotAvailable(
                    f"nothing is acquired while acknowledgements cannot be made durable: {cause}"
                )
                faults.append(PartitionFault(led.topic_name, led.key.partition, away))
        return faults

    async def _with_recorded_locks(
        self, waiting: WaitingFetch, asked: Asked, acquired: list[AcquiredRecords]
    ) -> list[AcquiredRecords]:
        """Write the locks to Redis. Returns: the records that the client may get; the others are given back."""
        member_id, record = asked.member_id, self._leader.locks.record
        fetches = [None if asked.fetch_id is None else self._repeated.remember(asked, item) for item in acquired]
        if len(acquired) == 1:  # at once, as a task would begin later: its locks are not noted as unanswered
            outcomes = [await record(acquired[0].led, member_id, acquired[0].ranges, fetches[0])]
        else:
            writes = [
                record(item.led, member_id, item.ranges, fetch) for item, fetch in zip(acquired, fetches, strict=True)
            ]
            outcomes = await asyncio.gather(*writes)
        if not all(outcomes):
            each = list(zip(acquired, outcomes, strict=True))
            self.give_back(member_id, [item for item, outcome in each if not outcome])
            acquired = [item for item, outcome in each if outcome]
        if waiting.gone() and (asked.fetch_id is None or waiting.release):  # else a repeat may have got them
            self.give_back(member_id, acquired)
            return []
        return acquired

    async def look(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        sought: Sought,
        faults: list[PartitionFault],
        now_ms: int,
        last: bool = False,
    ) -> list[AcquiredRecords]:
        """Acquire the available records, in turn.

        Args:
            last: the deadline has passed: fewer bytes than `min_bytes` suffice.
        """
        limits = asked.limits
        if limits.max_records == 0 or limits.max_bytes == 0:
            return []
        counts_bytes, levels, known_faults = limits.min_bytes > 1 and not last, asked.levels, len(faults)
        parts: Iterable[tuple[Sequence[LedSharePartition], int, bool]]
        if sought.topics and levels is None and not counts_bytes:
            parts = parts_in_turn(sought, now_ms, limits.max_bytes)
        else:
            there = sought.ready(now_ms)
            if counts_bytes:
                there = await self._with_min_bytes(waiting, there, asked, faults, now_ms)
                now_ms = self._clock.now_ms()
            if not there:
                return []
            parts = [(there, limits.max_bytes, False)]
            if levels is not None or len(there) > ASKED_ALONE:
                parts = parts_of(there, levels, limits.max_bytes)
        acquired: list[AcquiredRecords] = []
        records_left = limits.max_records
        for number, (some, most_bytes, goes_on) in enumerate(parts):
            if number:
                await asyncio.sleep(0)
                now_ms = self._clock.now_ms()
            if sought.topics and not sought.waits:
                sought.looked_at += some
            takeable = await self._takeable(some, faults, now_ms)
            if takeable:
                taken = await self._take(waiting, asked, takeable, records_left, most_bytes, faults, now_ms)
                acquired += taken
                records_left -= sum([last - first + 1 for item in taken for first, last, *_ in item.ranges])
            if (acquired and not (goes_on and records_left > 0)) or waiting.over or len(faults) > known_faults:
                break
        return acquired

    async def _with_min_bytes(
        self,
        waiting: WaitingFetch,
        leds: Sequence[LedSharePartition],
        asked: Asked,
        faults: list[PartitionFault],
        now_ms: int,
    ) -> list[LedSharePartition]:
        """The ones to take from; none if they have less than `min_bytes`, as `waiting` notes, or a fault."""
        there: list[LedSharePartition] = []
        for start in range(0, len(leds), LOOKED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            known_faults = len(faults)
            takeable = await self._takeable(leds[start : start + LOOKED_AT_ONCE], faults, now_ms)
            if len(faults) > known_faults:
                return []
            there += [led for led in takeable if may_acquire(led, self._record_log, now_ms)]
        waiting.too_few = await self._reader.too_few(there, asked.limits)
        return [] if waiting.too_few else there

    async def _follow_log_starts(self, leds: Sequence[LedSharePartition], now_ms: int) -> list[LedSharePartition]:
        """Move share-partitions to their log starts, which they may have missed. Returns: those that have room now."""
        places = [(led.key.topic_id, led.key.partition) for led in leds]
        try:
            await self._record_log.learn_ends(places)
        except ApiError:
            return []
        for led, place in zip(leds, places, strict=True):
            led.machine.move_log_start(self._record_log.known_log_start(place), now_ms)
        return [led for led in leds if can_acquire(led.machine)]

    async def _takeable(
        self, leds: Sequence[LedSharePartition], faults: list[PartitionFault], now_ms: int
    ) -> list[LedSharePartition]:
        """The share-partitions that no other fetch reads, whose limits leave room and whose records can be settled. The
        others turn this fetch away. If there are many, or the log end of the first is unknown, all are learned; those
        that stay unknown are faults."""
        takeable, full = [], []
        failing = self._leader.failing
        for led in leds:
            if led.fenced:
                continue
            if failing:
                led.halted = self._leader.cause_of_failing(led.key) is not None
            if not led.reading and not led.halted and not led.machine.config.paused:
                if led.machine.held_count or led.machine.delayed_count:
                    self._leader.expire_if_due(led, now_ms)
                if can_acquire(led.machine):
                    takeable.append(led)
                    continue
                full.append(led)
            led.turned_away = True
        if full:
            takeable += await self._follow_log_starts(full, now_ms)
        places = [(led.key.topic_id, led.key.partition) for led in takeable]
        if len(places) > ASKED_ALONE or (len(places) > 1 and self._record_log.known_log_start(places[0]) < 0):
            try:
                await self._record_log.learn_ends(places)
            except ApiError as error:
                starts = [self._record_log.known_log_start(place) for place in places]
                found = list(zip(takeable, starts, strict=True))
                faults += [PartitionFault(led.topic_name, led.key.partition, error) for led, at in found if at < 0]
                return [led for led, at in found if at >= 0]
        return takeable

    async def _take(
        self,
        waiting: WaitingFetch,
        asked: Asked,
        takeable: Sequence[LedSharePartition],
        max_records: int,
        max_bytes: int,
        faults: list[PartitionFault],
        now_ms: int,
    ) -> list[AcquiredRecords]:
        """Acquire from each in order until `max_records` are acquired."""
        taken: list[AcquiredRecords] = []
        if asked.fetch_id is not None and waiting.gone():  # what such a fetch acquires is not given back
            return taken
        alone = len(takeable) == 1
        records_left = max_records
        each = [max_bytes] if alone else split_bytes(max_bytes, len(takeable))
        for led, bytes_each in zip(takeable, each, strict=True):
            if not alone:  # the earlier ones may have taken time
                now_ms = self._clock.now_ms()
                if records_left <= 0 or waiting.over:
                    break
                if led.fenced or led.reading:
                    led.turned_away |= led.reading
                    continue
            started_s = time.perf_counter()
            try:
                acquired = await self._reader.acquire(
                    waiting, asked, led, records_left, max(1, bytes_each), now_ms, alone=alone
                )
            except ApiError as error:
                faults.append(PartitionFault(led.topic_name, led.key.partition, error))
                continue
            finally:
                if not led.fenced:  # else its group may have been deleted
                    metrics.FETCH_LOCK_SECONDS.observe(time.perf_counter() - started_s)
            if acquired is not None:
                led.served_turn = next(self._turns)
                taken.append(acquired)
                self._leader.activity.delivered(led, acquired.ranges, acquired.batches)
                for first_offset, last_offset, *_ in acquired.ranges:
                    records = last_offset - first_offset + 1
                    records_left -= records
                    metrics.IN_FLIGHT_BATCH_RECORDS.observe(records)
            if led.empty_until_ms <= now_ms:  # if nothing is left, the next fetches pass it over
                may_acquire(led, self._record_log, self._clock.now_ms())
            if led.of_topic is not None:
                led.of_topic.note(led)
        return taken

    def give_back(self, member_id: str, acquired: Sequence[AcquiredRecords]) -> None:
        """Release records that were acquired for a client that is gone. Their deliveries are forgiven."""
        now_ms = self._clock.now_ms()
        for item in acquired:
            if not item.led.fenced:
                for write in item.led.release_unseen(member_id, item.ranges, now_ms):
                    self._leader.persist(item.led, write)

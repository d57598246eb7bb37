"""Counts for reports: records by hour, group and partition; and who has finished a record, for groups that keep it.

Counts are in memory and are written every few seconds. A row has the total of one part: the counts of one gateway in
one hour, or of a piece of that hour. So a write whose answer was lost can be repeated. A crash loses the counts since
the last write. Counting costs time per range, not per record.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import sub
from typing import Any, Final

from sharequeue.clock import Clock
from sharequeue.protocol.histogram import BUCKETS, SHORT_MS, bucket_of
from sharequeue.protocol.messages.reports import FiguresRequest
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import count_failed_look
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log import activity_store, outcome_store
from sharequeue_gateway.record_log.activity_store import ActivityRow, ActivityTotal
from sharequeue_gateway.record_log.outcome_store import Outcome
from sharequeue_gateway.record_log.store import HOUR_MS, Query
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_gateway.share_partition.batch_times import BatchTimes
from sharequeue_gateway.share_partition.runs import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    REJECTED,
    DeadLetter,
    LogBatch,
    StateWrite,
)
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

SHOWN_MS: Final = 600_000
"""Totals have series for this time after their last change."""
MOST_COUNTED: Final = 20_000
"""The most share-partitions of one part. When it is full, a new part begins."""
MOST_UNWRITTEN: Final = 10 * MOST_COUNTED
"""The most share-partitions, and the most outcomes, that wait for a write."""
CLOSE_S: Final = 2.0
NOTHING_HAPPENED: Final = (0, 0, 0, 0)
SUMS: Final = ("produced", "delivered", "accepted", "released", "rejected", "expired")


@dataclass(eq=False, slots=True, kw_only=True)
class Counts:
    """Records by what became of them: one of SUMS, and `dead_letters` by their cause."""

    sums: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)

    def add(self, others: "Counts") -> None:
        self.sums.update(others.sums)
        self.dead_letters.update(others.dead_letters)


@dataclass(eq=False, slots=True)
class Totals(Counts):
    """The counts of a group and a topic since this gateway counts them; of a topic alone, the records produced to it.

    `used_at_ms`: when they last changed, a few seconds late. `sampled`: those that a sample has; `answered`: those that
    it has, too, if it has the last answer, which was for `asked`.
    """

    used_at_ms: int = 0
    sampled: Sequence[int] = NOTHING_HAPPENED
    answered: Sequence[int] = NOTHING_HAPPENED
    asked: FiguresRequest | None = None

    def reset(self) -> None:
        self.sums.clear()
        self.dead_letters.clear()
        self.used_at_ms, self.sampled, self.answered = 0, NOTHING_HAPPENED, NOTHING_HAPPENED

    def happened(self, asked: FiguresRequest) -> list[int]:
        """Return how many records were produced, accepted, failed, and became dead letters, and are in no sample."""
        last = self.asked
        if last is not None and last.asker == asked.asker and last.number > asked.number:
            return [*NOTHING_HAPPENED]  # it came late: nobody waits for the answer any more
        self.asked = asked
        if last is None or last.asker != asked.asker or last.number == asked.taken:
            self.sampled = self.answered
        sums = self.sums
        failed = sums["released"] + sums["rejected"] + sums["expired"]
        self.answered = sums["produced"], sums["accepted"], failed, self.dead_letters.total()
        return [*map(sub, self.answered, self.sampled)]

    def written(self, now_ms: int) -> None:
        """Counts were written. Those of before a reset are in these totals no more."""
        if self.sums or self.dead_letters:
            self.used_at_ms = now_ms


@dataclass(eq=False, slots=True)
class Counters(Counts):
    """The counts of one share-partition in one hour; for produced records, of one partition.

    `totals`: those of its group and topic, which are counted at the same time. `deliveries`: records delivered, by
    delivery count. `times_to_accept`: records accepted, by the bucket of the time since they were produced.
    """

    totals: Totals
    dirty: bool = True
    deliveries: Counter[int] = field(default_factory=Counter)
    times_to_accept: Counter[int] = field(default_factory=Counter)

    def count(self, event: str, records: int) -> None:
        self.sums[event] += records
        self.totals.sums[event] += records


class Part:
    """Counts of one hour, under an id of their own."""

    def __init__(self, hour: int) -> None:
        self.part_id = uuid.uuid4()
        self.hour = hour
        self.counters: dict[SharePartitionKey, Counters] = {}


@dataclass(eq=False)
class Activity:
    """Counts for one gateway. `topic_name`: the name of a topic id, if it is known."""

    _query: Query
    _clock: Clock
    _topic_name: Callable[[str], str | None]
    flush_ms: int
    retention_ms: int

    def __post_init__(self) -> None:
        self._parts = [Part(self._clock.now_ms() // HOUR_MS)]
        self._current = self._parts[0].counters
        self._outcomes: dict[tuple[SharePartitionKey, int], Outcome] = {}
        self._flushing = asyncio.Lock()
        self.totals: dict[tuple[str, str], Totals] = {}
        """By group and topic id; under the group "", the records produced to a topic."""

    def _of(self, key: SharePartitionKey) -> Counters:
        counters = self._current.get(key)
        if counters is None:
            totals = self.totals.get((key.group_id, key.topic_id))
            if totals is None:
                totals = self.totals[key.group_id, key.topic_id] = Totals()
            counters = self._current[key] = Counters(totals)
        counters.dirty = True
        return counters

    # Counting

    def produced(self, topic_id: str, partition: int, records: int) -> None:
        key = SharePartitionKey("", topic_id, partition)
        counters = self._current.get(key) or self._of(key)
        counters.dirty = True
        counters.sums["produced"] += records
        counters.totals.sums["produced"] += records

    def delivered(self, led: LedSharePartition, ranges: Sequence[AcquiredRange], batches: Sequence[LogBatch]) -> None:
        """A fetch acquired ranges out of these batches, whose times are kept until they are finished."""
        if led.batch_times is None:
            led.batch_times = BatchTimes()
        led.batch_times.note(batches)
        counters = self._of(led.key)
        for first_offset, last_offset, delivery_count, *_ in ranges:
            counters.count("delivered", last_offset - first_offset + 1)
            counters.deliveries[delivery_count] += last_offset - first_offset + 1

    def settled(self, led: LedSharePartition, write: StateWrite) -> None:
        """A write is durable: count its acknowledgements. Call this before the machine completes the write.

        The time to accept ends when the acknowledgement was applied, not when its write was durable.
        """
        if not write.runs:
            return
        counters = self._of(led.key)
        times = led.batch_times
        keep_ms = led.machine.config.outcomes_keep_ms
        for run in write.runs:
            if run.write is not write:
                continue
            if run.state is ACKNOWLEDGED:
                counters.sums["accepted"] += run.size
                counters.totals.sums["accepted"] += run.size
                if times is not None:
                    for records, timestamp_ms in times.parts(run.first, run.last):
                        took_ms = write.at_ms - timestamp_ms
                        bucket = BUCKETS[took_ms] if 0 <= took_ms < SHORT_MS else bucket_of(took_ms)
                        counters.times_to_accept[bucket] += records
            elif run.cause == REJECTED and run.state is not AVAILABLE:
                counters.count("rejected", run.size)
            elif run.state is not ARCHIVED or led.machine.is_last_attempt(run):
                counters.count("released", run.size)
            else:
                continue  # a gap: there is no record
            if keep_ms and run.state is not AVAILABLE:
                self._outcomes[led.key, run.first] = Outcome(
                    *led.key, run.first, run.last, run.member_id, write.at_ms, write.at_ms + keep_ms
                )
        if times is not None:
            times.forget_below(led.machine.start_offset)

    def expired(self, led: LedSharePartition, records: int) -> None:
        self._of(led.key).count("expired", records)

    def dead(self, led: LedSharePartition, letter: DeadLetter) -> str:
        """The dead letters of a range are written. Returns: their cause, as reports and metrics name it."""
        counters = self._of(led.key)
        cause = "rejected" if letter.cause == REJECTED else "delivery_limit"
        records = letter.last_offset - letter.first_offset + 1
        for causes in (counters.dead_letters, counters.totals.dead_letters):
            causes[cause] += records
        return cause

    # Writing

    async def run(self) -> None:
        """Write the counts, and remove old ones. Runs until it is cancelled."""
        purged_hour = 0
        async for _ in Every(lambda: min(self.flush_ms, HOUR_MS - self._clock.now_ms() % HOUR_MS) / 1000):
            await self.flush()
            hour = self._clock.now_ms() // HOUR_MS
            if hour > purged_hour:
                self._forget_unused()
                try:
                    await self._query(activity_store.remove_before, hour - self.retention_ms // HOUR_MS)
                    purged_hour = hour
                except ApiError as error:
                    log.info("cannot remove old activity", extra=fields(cause=error.detail))

    async def flush(self) -> None:
        """Write the counts that have changed. If the write fails, the next one has them."""
        async with self._flushing:
            hour = self._clock.now_ms() // HOUR_MS
            if self._parts[-1].hour != hour or len(self._current) > MOST_COUNTED:
                self._parts.append(Part(hour))
                self._current = self._parts[-1].counters
            for part in list(self._parts):
                changed = {key: counters for key, counters in part.counters.items() if counters.dirty}
                rows = [self._row(part, key, counters) for key, counters in changed.items()]
                now_ms = self._clock.now_ms()
                for counters in changed.values():
                    counters.dirty = False
                    counters.totals.written(now_ms)
                try:
                    for start in range(0, len(rows), activity_store.AT_ONCE):
                        await self._query(activity_store.write, rows[start : start + activity_store.AT_ONCE])
                except ApiError as error:
                    count_failed_look("activity")
                    log.warning("cannot write activity now", extra=fields(rows=len(rows), cause=error.detail))
                    for counters in changed.values():
                        counters.dirty = True
                    self._bound()
                    return
                if part is not self._parts[-1]:
                    self._parts.remove(part)
        await self.write_outcomes()

    async def write_outcomes(self) -> None:
        """Write who has finished records. If the write fails, a later one has it; without room the oldest are lost."""
        async with self._flushing:
            while self._outcomes:
                some = dict(islice(self._outcomes.items(), outcome_store.AT_ONCE))
                try:
                    await self._query(outcome_store.write, list(some.values()))
                except ApiError as error:
                    count_failed_look("outcomes")
                    log.warning("cannot write outcomes now", extra=fields(cause=error.detail))
                    for place in list(islice(self._outcomes, max(len(self._outcomes) - MOST_UNWRITTEN, 0))):
                        del self._outcomes[place]
                    return
                for place, outcome in some.items():
                    if self._outcomes[place] is outcome:
                        del self._outcomes[place]

    def _forget_unused(self) -> None:
        """Drop totals that nothing counts for any more."""
        counting = {id(counters.totals) for part in self._parts for counters in part.counters.values()}
        used_before_ms = self._clock.now_ms() - SHOWN_MS
        for names, totals in list(self.totals.items()):
            if id(totals) not in counting and totals.used_at_ms < used_before_ms:
                del self.totals[names]

    def forget_group(self, group_id: str) -> None:
        """The group is deleted: its totals begin again at zero."""
        for (of_group, _), totals in self.totals.items():
            if of_group == group_id:
                totals.reset()

    def _bound(self) -> None:
        while len(self._parts) > 1 and sum(len(part.counters) for part in self._parts) > MOST_UNWRITTEN:
            lost = self._parts.pop(0)
            log.error("counts of activity are lost: cannot write", extra=fields(rows=len(lost.counters)))

    async def close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_S):
                await self.flush()
        except TimeoutError:
            log.warning("counts of activity are lost: the last write failed")

    def _row(self, part: Part, key: SharePartitionKey, counters: Counters) -> ActivityRow:
        sums: dict[str, Any] = {name: counters.sums[name] for name in SUMS}
        total = ActivityTotal(
            part.hour,
            *key,
            self._topic_name(key.topic_id) or "",
            **sums,
            deliveries=dict(counters.deliveries),
            times_to_accept=dict(counters.times_to_accept),
            dead_letters=dict(counters.dead_letters),
        )
        return ActivityRow(part.part_id, total)

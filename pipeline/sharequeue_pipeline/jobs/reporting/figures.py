"""What a report says: the figures of a period, by topic, group and time. `--json` prints these structs.

Every list is bounded: `topics` by the number of topics and groups that the caller wants named, time by `MOST_STEPS`,
reasons of dead letters by `MOST_REASONS`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

HOUR_MS: Final = 3_600_000
MOST_STEPS: Final = 60
"""Columns of a chart over time."""
MOST_REASONS: Final = 30
STEPS_H: Final = (1, 2, 3, 6, 12, 24, 48, 168)
"""The hours that a column of a chart may stand for."""
COUNTS: Final = ("produced", "delivered", "accepted", "released", "rejected", "expired", "dead_letters")
"""The names of the counts of a `Step`."""

Bucket = tuple[int, int]
"""The first ms of a bucket, and the first ms after it."""


class Quantiles(msgspec.Struct, frozen=True):
    """Times from a record's timestamp to its acceptance, in ms; each is right within 13 %."""

    records: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float


class Step(msgspec.Struct, frozen=True):
    """The counts of the time from `at_ms` on, for `step_ms` of the report.
    A step in which nothing was counted is absent."""

    at_ms: int
    produced: int = 0
    delivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    expired: int = 0
    dead_letters: int = 0
    time_to_accept: Quantiles | None = None
    """Only in the steps of the whole report."""

    @property
    def unsuccessful(self) -> int:
        """Deliveries that did not end with an acceptance."""
        return self.released + self.rejected + self.expired


class Lag(msgspec.Struct, frozen=True):
    """What a group has not finished, when the report was made."""

    records: int
    unknown_partitions: int = 0
    """Partitions whose lag is not known; `records` lacks them."""
    open_dead_letters: int = 0
    """Dead letters that were neither redriven nor removed."""
    removed_unfinished: int = 0
    """Offsets that retention has removed before the group had finished them."""


class GroupFigures(msgspec.Struct, frozen=True):
    """A group in one topic."""

    group: str
    delivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    expired: int = 0
    dead_letters: dict[str, int] = {}
    """Records by cause."""
    deliveries: dict[int, int] = {}
    """Records by delivery count: 1 counts first deliveries."""
    time_to_accept: Quantiles | None = None
    lag: Lag | None = None
    """None: unknown."""
    steps: list[Step] = []

    @property
    def dead(self) -> int:
        return sum(self.dead_letters.values())

    @property
    def finished(self) -> int:
        """Records that will not come again: accepted, rejected, or at the delivery limit."""
        return self.accepted + self.rejected + self.dead_letters.get("delivery_limit", 0)


class TopicFigures(msgspec.Struct, frozen=True):
    """A topic, and the groups that read it: those that are named."""

    topic: str
    topic_id: str
    produced: int = 0
    steps: list[Step] = []
    groups: list[GroupFigures] = []
    again: bool = False
    """Whether the report names another topic of this name: it was deleted and created again."""


class Others(msgspec.Struct, frozen=True):
    """The topics and groups that are not named, added up."""

    topics: int
    groups: int
    produced: int = 0
    delivered: int = 0
    accepted: int = 0
    released: int = 0
    rejected: int = 0
    expired: int = 0
    dead_letters: int = 0
    lag: int = 0


class Sample(msgspec.Struct, frozen=True):
    """One record that died. `key`, `value`: their first bytes as text;
    None: it has none, or the dead letter no copy."""

    partition: int | None
    offset: int | None
    delivery_count: int | None
    died_ms: int
    reason: str | None = None
    key: str | None = None
    value: str | None = None
    value_bytes: int = 0
    """The size of the whole value."""


class Reason(msgspec.Struct, frozen=True):
    """Dead letters of one group and topic with the same cause and reason.

    Reasons that differ only in numbers are one: `reason` has `#` in their place. None: the client gave no reason.
    """

    group: str
    topic: str
    cause: str
    reason: str | None
    records: int
    samples: list[Sample] = []
    """The newest ones."""


class Report(msgspec.Struct, frozen=True):
    """A report. Times are milliseconds since the epoch; `to_ms` is exclusive."""

    from_ms: int
    to_ms: int
    made_ms: int
    step_ms: int
    only_group: str | None = None
    only_topic: str | None = None
    total: GroupFigures = GroupFigures("")
    """All groups together. Its lag adds up what every group has to do."""
    produced: int = 0
    topic_count: int = 0
    group_count: int = 0
    """Pairs of a group and a topic that it reads."""
    steps: list[Step] = []
    topics: list[TopicFigures] = []
    others: Others | None = None
    reasons: list[Reason] = []
    more_reasons: int = 0
    """Dead letters with other reasons."""
    notes: list[str] = []
    """What the report lacks, in whole sentences."""

    @property
    def pairs(self) -> list[tuple[TopicFigures, GroupFigures]]:
        return [(topic, group) for topic in self.topics for group in topic.groups]

    @property
    def moments(self) -> list[int]:
        """The start of every step, also of those without counts."""
        return list(range(self.from_ms - self.from_ms % self.step_ms, self.to_ms, self.step_ms))


def step_of(from_ms: int, to_ms: int) -> int:
    """The shortest step, in ms, that divides a period into at most `MOST_STEPS`."""
    hours = -(-(to_ms - from_ms) // HOUR_MS)
    for step in STEPS_H:
        if hours <= step * MOST_STEPS:
            return step * HOUR_MS
    weeks = -(-hours // (STEPS_H[-1] * MOST_STEPS))
    return weeks * STEPS_H[-1] * HOUR_MS


def quantile(buckets: Mapping[Bucket, int], share: float) -> float | None:
    """The time in ms below which this share of the records lies, if each bucket is filled evenly. None: no records."""
    wanted = share * sum(buckets.values())
    if not wanted:
        return None
    for (first, behind), records in sorted(buckets.items()):
        if records >= wanted:
            return first + (behind - first) * wanted / records
        wanted -= records
    return float(max(behind for _, behind in buckets))


def quantiles(buckets: Mapping[Bucket, int]) -> Quantiles | None:
    """The quantiles of a histogram. None: no records."""
    found = [quantile(buckets, share) for share in (0.5, 0.9, 0.99, 0.999)]
    times = [round(time, 3) for time in found if time is not None]
    return Quantiles(sum(buckets.values()), *times) if times else None

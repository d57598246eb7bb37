"""Samples of the whole cluster, as series of counts; and which groups need attention. Pure.

    a round: what each gateway counted, the backlog, open dead letters
        │ note
        ▼
    series: the cluster, each group, each topic ──┬─ due ──▶ rows to write, at most MOST_WRITTEN a round
                                                  └─ page ─▶ groups, those that need attention first

A series is due when it has changed since its last row, and every hour, unless there is nothing to say of it. The ones
that have waited longest are written first. What happened to the others gathers until their turn.
"""

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import add, itemgetter
from typing import Any, Final

from sharequeue.protocol.messages.reports import GroupAttention, Sample
from sharequeue_gateway.record_log.sample_store import BACKLOG, DELAYED, FAILED, HELD, OLDEST, OPEN, OUT, Counts
from sharequeue_gateway.record_log.store import HOUR_MS

MOST_WRITTEN: Final = 300
"""Rows of a round: 2.6 million in a day, some 600 MB."""
OLD_MS: Final = 60_000
"""A record that waits for longer is old, if its workers do not catch up."""
AGEING_ROUNDS: Final = 3
FADING: Final = 0.8
"""The part of an earlier round's failures that a round keeps: they are forgotten within a minute or two."""
CLUSTER: Final = ""
NOTHING: Final = (0,) * (OLDEST + 1)
URGENCY: Final[Mapping[str, int]] = {"no_worker": 8, "falling_behind": 4, "errors": 2, "dead_letters": 1}

Place = tuple[int, int, str]
"""The place of a group in the order of need, ascending: by its reasons, its backlog and its name."""


def of_group(group_id: str) -> str:
    return f"g/{group_id}"


def of_topic(topic_id: str) -> str:
    return f"t/{topic_id}"


def alone(place: int, count: int) -> Counts:
    """Counts of which one was read."""
    return [*NOTHING[:place], count, *NOTHING[place + 1 :]]


def fields_of(counts: Counts, at_ms: int, now_ms: int) -> dict[str, Any]:
    """The fields of a Sample. `at_ms`: the end of its step, which may not have come yet."""
    oldest_ms = max(min(at_ms, now_ms) - counts[OLDEST], 0) if counts[OLDEST] else None
    return {**dict(zip(Sample.__struct_fields__, (at_ms, *counts), strict=True)), "oldest_ready_ms": oldest_ms}


@dataclass(eq=False)
class Round:
    """The counts of one look by series: the cluster, groups, topics. `workers`: by group, its members' numbers."""

    at_ms: int
    series: dict[str, Counts] = field(default_factory=lambda: defaultdict(lambda: [*NOTHING]))
    workers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    paused: set[str] = field(default_factory=set)

    def add(self, group_id: str, topic_id: str, counts: Counts) -> None:
        """Add what a gateway counted, or what was read. `group_id`: empty for produced records."""
        for series in (CLUSTER, of_topic(topic_id), *((of_group(group_id),) if group_id else ())):
            sums = self.series[series]
            oldest = sums[OLDEST], counts[OLDEST]
            sums[:] = map(add, sums, counts)
            sums[OLDEST] = min(oldest) or max(oldest)


class Series:
    """One series. `last`: the counts of the last round. `gathered`: those since its last row, which was `written`.
    `ageing`: how many rounds the oldest record has become older; `failed`, `done`: of the last minute or two."""

    __slots__ = ("ageing", "done", "failed", "gathered", "last", "paused", "workers", "written", "written_at_ms")

    def __init__(self) -> None:
        self.last, self.gathered, self.written = [*NOTHING], [*NOTHING], [*NOTHING]
        self.written_at_ms = self.workers = self.ageing = 0
        self.failed = self.done = 0.0
        self.paused = False

    def note(self, counts: Counts, elapsed_ms: int) -> None:
        """A round has ended, `elapsed_ms` after the one before."""
        older = counts[OLDEST] and self.last[OLDEST] and counts[OLDEST] - self.last[OLDEST] < elapsed_ms
        self.ageing = self.ageing + 1 if older else 0
        self.failed = FADING * self.failed + counts[FAILED]
        self.done = FADING * self.done + counts[OUT]
        self.last = counts
        self.gathered = [*map(add, self.gathered[:BACKLOG], counts), *counts[BACKLOG:]]

    @property
    def idle(self) -> bool:
        """Return whether there is nothing to say: no row means the same."""
        return not any(self.gathered) and not any(self.written[BACKLOG:]) and not self.workers

    def due(self, at_ms: int) -> bool:
        changed = any(self.gathered[:BACKLOG]) or self.gathered[BACKLOG:] != self.written[BACKLOG:]
        return changed or (at_ms - self.written_at_ms >= HOUR_MS and not self.idle)

    def attention(self, group_id: str, at_ms: int) -> GroupAttention:
        """Return what there is to say of the group, and why it needs attention."""
        counts = self.last
        ready = max(counts[BACKLOG] - counts[HELD] - counts[DELAYED], 0)
        reasons = {
            "no_worker": ready > 0 and not self.workers,
            "falling_behind": self.ageing >= AGEING_ROUNDS and at_ms - counts[OLDEST] > OLD_MS,
            "errors": self.failed >= 1 and self.failed > self.done,
            "dead_letters": counts[OPEN] > 0,
        }
        return GroupAttention(
            **fields_of(counts, at_ms, at_ms),
            group_id=group_id,
            reasons=[reason for reason, holds in reasons.items() if holds],
            ready_count=ready,
            worker_count=self.workers,
            paused=self.paused,
        )


class Sampling:
    """All series. `at_ms`: the time of the last round, 0 before the first; `period_ms`: since the one before."""

    def __init__(self) -> None:
        self.at_ms = self.period_ms = 0
        self._series: dict[str, Series] = {}
        self._ranked: list[tuple[Place, GroupAttention]] = []
        self._due: list[tuple[int, str]] = []

    def note(self, ended: Round) -> Iterator[None]:
        """A round has ended: take its counts, in steps."""
        self.period_ms = ended.at_ms - self.at_ms if self.at_ms else 0
        self.at_ms = ended.at_ms
        self._due, ranked = [], []
        for name in {CLUSTER, *ended.series, *self._series, *map(of_group, ended.workers)}:
            yield
            series = self._series.setdefault(name, Series())
            group_id = name[2:] if name.startswith("g/") else ""
            series.workers, series.paused = len(ended.workers.get(group_id, ())), group_id in ended.paused
            series.note(ended.series[name], self.period_ms)
            if name != CLUSTER and series.due(self.at_ms):
                self._due.append((series.written_at_ms, name))
            if series.idle and name != CLUSTER:
                del self._series[name]
            elif group_id:
                group = series.attention(group_id, self.at_ms)
                urgency = sum(URGENCY[reason] for reason in group.reasons)
                ranked.append(((-urgency, -group.backlog, group_id), group))
        self._ranked = sorted(ranked, key=itemgetter(0))

    def behind(self, after: Place | None, most: int, group_id: str | None) -> list[tuple[Place, GroupAttention]]:
        """Some of the groups behind a place in the order of need, or one group, each with its place."""
        ranked = self._ranked
        if group_id is not None:
            ranked = [entry for entry in ranked if entry[1].group_id == group_id]
        begin = 0 if after is None else bisect_right(ranked, after, key=itemgetter(0))
        return ranked[begin : begin + most]

    def due(self) -> list[tuple[str, Counts]]:
        """The rows to write: the cluster, and the series that have waited longest."""
        longest = heapq.nsmallest(MOST_WRITTEN - 1, self._due)
        return [(name, self._series[name].gathered) for name in (CLUSTER, *(name for _, name in longest))]

    def written(self, rows: Iterable[tuple[str, Counts]]) -> None:
        """Rows are durable: later counts gather for the next ones."""
        for name, counts in rows:
            series = self._series[name]
            series.written, series.written_at_ms = counts, self.at_ms
            series.gathered = [*NOTHING[:BACKLOG], *counts[BACKLOG:]]

"""The tables of a report, from summed activity: by topic and group, by hour, deliveries, times, causes.

Rows are tuples in the order of the columns, with texts and numbers as readers see them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

COUNTS: Final = ("delivered", "accepted", "released", "rejected", "expired")
"""The counts of a group; `produced` is a count of the topic."""

Bucket = tuple[int, int]
"""The first ms of a bucket, and the first ms after it."""


class Table(NamedTuple):
    """`columns`: a name that begins with `#` is a column of numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


class Sums(NamedTuple):
    """Activity as Spark has added it up. Keys are (topic, group), and (hour in epoch ms, topic, group) with `by_hour`.

    The keys of `produced` are topics, and (hour, topic) by hour. `times` are histograms: records by bucket.
    """

    produced: Mapping[str, int]
    produced_by_hour: Mapping[tuple[int, str], int]
    counts: Mapping[tuple[str, str], Mapping[str, int]]
    counts_by_hour: Mapping[tuple[int, str, str], Mapping[str, int]]
    deliveries: Mapping[tuple[str, str], Mapping[int, int]]
    dead_letters: Mapping[tuple[str, str], Mapping[str, int]]
    times: Mapping[tuple[str, str], Mapping[Bucket, int]]
    times_by_hour: Mapping[tuple[int, str, str], Mapping[Bucket, int]]


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


def merged(histograms: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    """The sum of histograms."""
    total: dict[Any, int] = {}
    for histogram in histograms:
        for place, records in histogram.items():
            total[place] = total.get(place, 0) + records
    return total


def hour_of(hour_ms: int) -> str:
    return datetime.fromtimestamp(hour_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def duration(ms: float | None) -> str:
    """A duration as text with a unit; a dash for None."""
    if ms is None:
        return "–"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.1f} {unit}"
    return f"{ms:.0f} ms"


def tables(sums: Sums) -> list[Table]:
    """All tables of the report, in order."""
    return [_by_topic_and_group(sums), _by_hour(sums), _deliveries(sums), _times(sums), _dead_letters(sums)]


def _by_topic_and_group(sums: Sums) -> Table:
    groups: dict[str, list[str]] = {topic: [] for topic in sums.produced}
    for topic, group in sums.counts:
        groups.setdefault(topic, []).append(group)
    rows: list[Sequence[Any]] = []
    for topic in sorted(groups):
        produced = sums.produced.get(topic, 0)
        for group in sorted(groups[topic]) or ["–"]:
            counts = sums.counts.get((topic, group), {})
            dead = sum(sums.dead_letters.get((topic, group), {}).values())
            times = sums.times.get((topic, group), {})
            share = duration(quantile(times, 0.5)), duration(quantile(times, 0.99))
            rows.append((topic, group, produced, *(counts.get(name, 0) for name in COUNTS), dead, *share))
    columns = ("topic", "group", "#produced", *(f"#{name}" for name in COUNTS), "#dead letters", "#p50", "#p99")
    return Table("By topic and group", columns, rows)


def _by_hour(sums: Sums) -> Table:
    groups: dict[tuple[int, str], list[str]] = {place: [] for place in sums.produced_by_hour}
    for hour, topic, group in sums.counts_by_hour:
        groups.setdefault((hour, topic), []).append(group)
    rows: list[Sequence[Any]] = []
    for hour, topic in sorted(groups):
        produced = sums.produced_by_hour.get((hour, topic), 0)
        for group in sorted(groups[hour, topic]) or ["–"]:
            counts = sums.counts_by_hour.get((hour, topic, group), {})
            times = sums.times_by_hour.get((hour, topic, group), {})
            share = duration(quantile(times, 0.5)), duration(quantile(times, 0.99))
            rows.append((hour_of(hour), topic, group, produced, *(counts.get(name, 0) for name in COUNTS), *share))
    columns = ("hour (UTC)", "topic", "group", "#produced", *(f"#{name}" for name in COUNTS), "#p50", "#p99")
    return Table("By hour", columns, rows)


def _deliveries(sums: Sums) -> Table:
    rows = [
        (topic, group, count, records)
        for (topic, group), histogram in sorted(sums.deliveries.items())
        for count, records in sorted(histogram.items())
    ]
    return Table("Deliveries by delivery count", ("topic", "group", "#delivery count", "#records"), rows)


def _times(sums: Sums) -> Table:
    shares = (0.5, 0.9, 0.99, 0.999)
    rows = [
        (topic, group, sum(times.values()), *(duration(quantile(times, share)) for share in shares))
        for (topic, group), times in sorted(sums.times.items())
        if times
    ]
    columns = ("topic", "group", "#records", *(f"#p{100 * share:g}" for share in shares))
    return Table("Time from produce to accept", columns, rows)


def _dead_letters(sums: Sums) -> Table:
    rows = [
        (topic, group, cause, records)
        for (topic, group), causes in sorted(sums.dead_letters.items())
        for cause, records in sorted(causes.items())
    ]
    return Table("Dead letters by cause", ("topic", "group", "cause", "#records"), rows)

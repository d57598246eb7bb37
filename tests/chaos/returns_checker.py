"""Whether what returns is told apart: names of topics, offsets, a PostgreSQL. Pure: a history in, violations out.

Places, fetches and acknowledgements name a topic by its id. A produce request names it by its name: its records are in
a topic for sure if the topic had the name during the whole request. What overlaps the time from a copy of PostgreSQL
until the copy was back in its place may be lost or kept, so it proves nothing; what lies inside is lost.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple

from tests.chaos.history import Acknowledge, Fetch, History, Outcome, Place, Produce, Span
from tests.chaos.lives import Violation

Partition = tuple[str, int]
"""A topic id and an index."""


class Alive(NamedTuple):
    """A topic has its name for sure while this lasts."""

    span: Span
    topic: str
    topic_id: str


class Deleted(NamedTuple):
    span: Span
    topic_id: str


class Sized(NamedTuple):
    """A topic was made with this number of partitions, or grew to it."""

    span: Span
    topic_id: str
    partitions: int


class Trimmed(NamedTuple):
    """The answer to delete-records. `seen_s`: since when every gateway has refused to read what was removed."""

    span: Span
    topic_id: str
    partition: int
    before_offset: int
    seen_s: float = float("inf")


class Begun(NamedTuple):
    """A group had a start offset in a partition."""

    span: Span
    group: str
    topic_id: str
    partition: int


class WentBack(NamedTuple):
    """PostgreSQL was copied, and later replaced by the copy."""

    copied: Span
    restored: Span


@dataclass
class Returns(History):
    """A history by topic ids. `log`, `log_ends` and `lags` are those of the topics that live in the end."""

    alive: list[Alive] = field(default_factory=list)
    deleted: list[Deleted] = field(default_factory=list)
    sized: list[Sized] = field(default_factory=list)
    trimmed: list[Trimmed] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    went_back: list[WentBack] = field(default_factory=list)
    latest: dict[str, float] = field(default_factory=dict)
    """Groups at `latest`: when each was first asked to begin."""
    logs: dict[str, dict[Partition, dict[int, int]]] = field(default_factory=dict)
    """The log in the end, as each gateway alone shows it."""

    def kept(self, span: Span) -> bool:
        """Whether what was answered then is surely not lost."""
        return not any(span.overlaps(back.copied.started_s, back.restored.ended_s) for back in self.went_back)

    def lost(self, span: Span) -> bool:
        return any(
            back.copied.ended_s < span.started_s and span.ended_s < back.restored.started_s for back in self.went_back
        )

    def home(self, produce: Produce) -> str | None:
        """The id of the topic that surely took a request; None if that is not sure."""
        return next(
            (
                alive.topic_id
                for alive in self.alive
                if alive.topic == produce.topic
                and alive.span.started_s <= produce.span.started_s
                and produce.span.ended_s <= alive.span.ended_s
            ),
            None,
        )

    def deliveries(self) -> Iterator[tuple[Fetch, Place, int]]:
        for fetch in self.fetched:
            for range_ in fetch.ranges:
                for offset, value in range_.values:
                    yield fetch, (range_.topic, range_.partition, offset), value

    @cached_property
    def answered(self) -> list[tuple[Produce, Place, int]]:
        """The values of requests whose topic is sure."""
        return [
            (produce, (home, *place), value)
            for produce in self.produced
            if produce.outcome is Outcome.OK and (home := self.home(produce))
            for place, value in zip(produce.places, produce.values, strict=True)
        ]

    @cached_property
    def accepted(self) -> dict[tuple[str, Place], list[Acknowledge]]:
        """The acceptances of each record that may have happened and are not lost, by group and place."""
        found: dict[tuple[str, Place], list[Acknowledge]] = defaultdict(list)
        for ack in self.acknowledged:
            if ack.status != "failed" and not self.lost(ack.span):
                for place, kind in ack.places():
                    if kind == "accept":
                        found[ack.group, place].append(ack)
        return found

    def places(self) -> Iterator[tuple[Place, int]]:
        """All records of the log in the end."""
        for partition, values in self.log.items():
            yield from (((*partition, offset), value) for offset, value in values.items())


def identical(history: Returns) -> Iterator[Violation]:
    """A place has one value, for good: an offset that was lost is not given again. A value has one place in a topic."""
    in_the_end = Span(float("inf"), float("inf"))
    seen = chain(
        ((fetch.span, place, value) for fetch, place, value in history.deliveries()),
        ((produce.span, place, value) for produce, place, value in history.answered),
        ((in_the_end, place, value) for place, value in history.places()),
    )
    values: dict[Place, int] = {}
    places: dict[tuple[int, str], Place] = {}
    for span, place, value in seen:
        if values.setdefault(place, value) != value:
            yield Violation("identical", "", place, f"{value} and {values[place]} have one place")
        if history.kept(span) and places.setdefault((value, place[0]), place) != place:
            yield Violation("identical", "", place, f"{value} is also at {places[value, place[0]]}")


def produced(history: Returns) -> Iterator[Violation]:
    """Each value was produced, and to no other topic than the one that had the name."""
    homes: dict[int, set[str | None]] = defaultdict(set)
    for produce in history.produced:
        if produce.outcome is not Outcome.REFUSED:
            home = history.home(produce) if produce.outcome is Outcome.OK else None
            for value in produce.values:
                homes[value].add(home)
    for place, value in chain(((place, value) for _, place, value in history.deliveries()), history.places()):
        if value not in homes:
            yield Violation("produced", "", place, f"nobody produced {value}, or it was refused")
        elif None not in homes[value] and place[0] not in homes[value]:
            yield Violation("produced", "", place, f"{value} was produced to {homes[value]}")


def durable(history: Returns) -> Iterator[Violation]:
    """An answered record is in the log where it was answered, unless its topic or itself was deleted or lost."""
    living = {topic_id for topic_id, _ in history.log}
    starts: dict[Partition, int] = defaultdict(int)
    for trim in history.trimmed:
        starts[trim.topic_id, trim.partition] = max(starts[trim.topic_id, trim.partition], trim.before_offset)
    for produce, place, value in history.answered:
        topic_id, partition, offset = place
        if topic_id in living and history.kept(produce.span) and offset >= starts[topic_id, partition]:
            there = history.log.get((topic_id, partition), {}).get(offset)
            if there != value:
                yield Violation("durable", "", place, f"{value} was answered here; in the log: {there}")


def one_log(history: Returns) -> Iterator[Violation]:
    """Every gateway shows the same log in the end."""
    for gateway, log in history.logs.items():
        for partition in history.log.keys() | log.keys():
            differ = history.log.get(partition, {}).items() ^ log.get(partition, {}).items()
            if differ or partition not in log or partition not in history.log:
                yield Violation("one log", "", (*partition, 0), f"{gateway} shows another log: {sorted(differ)[:9]}")


def finished(history: Returns) -> Iterator[Violation]:
    """In the end each group has accepted all that it must, by its topic's id, and lags behind in no partition."""
    for group in (*history.groups, *history.latest):
        for partition in history.log:
            lag = history.lags.get((group, *partition))
            if lag != 0:
                yield Violation("finished", group, (*partition, 0), f"the group lags by {lag} in the end")
    for place, _ in history.places():
        for group in history.groups:
            if not history.accepted[group, place]:
                yield Violation("finished", group, place, "not accepted")
    for group in history.latest:
        for place in _due(history, group):
            if not history.accepted[group, place]:
                yield Violation("latest", group, place, "not accepted, although the group began before it")


def _due(history: Returns, group: str) -> Iterator[Place]:
    """The records that a group at `latest` must finish: those behind a delivered one, those that were produced after
    the group had begun in their partition, and those of partitions that their topic got later."""
    first: dict[Partition, int] = {}
    for fetch, (topic_id, partition, offset), _ in history.deliveries():
        if fetch.group == group:
            first[topic_id, partition] = min(offset, first.get((topic_id, partition), offset))
    begun_s: dict[Partition, float] = {}
    known_s: dict[str, float] = {}
    for begun in history.begun:
        if begun.group == group and history.kept(begun.span):
            place = begun.topic_id, begun.partition
            begun_s[place] = min(begun.span.ended_s, begun_s.get(place, begun.span.ended_s))
            known_s[begun.topic_id] = min(begun.span.ended_s, known_s.get(begun.topic_id, begun.span.ended_s))
    sent_s: dict[int, float] = {}
    for produce in history.produced:
        for value in produce.values:
            sent_s[value] = min(produce.span.started_s, sent_s.get(value, produce.span.started_s))
    for (topic_id, partition), values in history.log.items():
        sizes = [sized for sized in history.sized if sized.topic_id == topic_id and sized.partitions > partition]
        got_s = min((sized.span.started_s for sized in sizes), default=0.0)
        grown = known_s.get(topic_id, got_s) < got_s
        for offset, value in values.items():
            behind = offset >= first.get((topic_id, partition), offset + 1)
            later = sent_s.get(value, 0.0) > begun_s.get((topic_id, partition), float("inf"))
            if grown or behind or later:
                yield topic_id, partition, offset


def latest(history: Returns) -> Iterator[Violation]:
    """A group at `latest` gets no record that was answered before the group was first asked to begin."""
    answered_s = {
        value: produce.span.ended_s
        for produce in history.produced
        if produce.outcome is Outcome.OK
        for value in produce.values
    }
    for fetch, place, value in history.deliveries():
        began_s = history.latest.get(fetch.group, 0.0)
        if answered_s.get(value, began_s) < began_s:
            text = f"{value} was answered {began_s - answered_s[value]:.3f} s before the group began"
            yield Violation("latest", fetch.group, place, text)


def settled(history: Returns) -> Iterator[Violation]:
    """A record whose acceptance was answered is not delivered again."""
    done_s: dict[tuple[str, Place], float] = {}
    for key, acks in history.accepted.items():
        ends = [ack.span.ended_s for ack in acks if ack.status == "applied" and history.kept(ack.span)]
        if ends:
            done_s[key] = min(ends)
    for fetch, place, _ in history.deliveries():
        after_s = fetch.span.started_s - done_s.get((fetch.group, place), float("inf"))
        if after_s > 0:
            yield Violation("settled", fetch.group, place, f"delivered {after_s:.3f} s after its acceptance")


def old_ids(history: Returns) -> Iterator[Violation]:
    """An acknowledgement of a deleted topic changes nothing."""
    gone_s = {gone.topic_id: gone.span.ended_s for gone in history.deleted if history.kept(gone.span)}
    for ack in history.acknowledged:
        after_s = ack.span.started_s - gone_s.get(ack.topic, float("inf"))
        if ack.status == "applied" and after_s > 0:
            place = (ack.topic, ack.partition, ack.first_offset)
            yield Violation("old id", ack.group, place, f"applied {after_s:.3f} s after its topic was deleted")


def trimmed(history: Returns) -> Iterator[Violation]:
    """What every gateway refuses to read is not delivered."""
    for trim in history.trimmed:
        for fetch in history.fetched if history.kept(trim.span) else ():
            after_s = fetch.span.started_s - trim.seen_s
            for range_ in fetch.ranges if after_s > 0 else ():
                same = (range_.topic, range_.partition) == (trim.topic_id, trim.partition)
                if same and range_.first_offset < trim.before_offset:
                    place = (range_.topic, range_.partition, range_.first_offset)
                    text = f"delivered {after_s:.3f} s after all below {trim.before_offset} was removed"
                    yield Violation("trimmed", fetch.group, place, text)


RULES: Final = (identical, produced, durable, one_log, finished, latest, settled, old_ids, trimmed)


def check(history: Returns) -> list[Violation]:
    """Every promise that a history breaks; none if it keeps all."""
    return [violation for rule in RULES for violation in rule(history)]

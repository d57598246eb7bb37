"""Every request of a run with its answer, as the checker reads them. No IO.

Times are seconds by the monotonic clock of the process which asked: `started_s` before the request was sent,
`ended_s` after its answer came, or the hope of one was given up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

Place = tuple[str, int, int]
"""A record: topic, partition, offset."""


class Outcome(StrEnum):
    OK = "ok"
    REFUSED = "refused"
    """It surely did not happen."""
    UNKNOWN = "unknown"


class Span(NamedTuple):
    started_s: float
    ended_s: float

    def overlaps(self, started_s: float, ended_s: float) -> bool:
        return self.started_s <= ended_s and started_s <= self.ended_s


class Produce(NamedTuple):
    """One try of a produce request. `values` are unique in the run, so a repeat has the same ones."""

    span: Span
    topic: str
    values: tuple[int, ...]
    outcome: Outcome
    places: tuple[tuple[int, int], ...] = ()
    """(partition, offset) in request order; of an answered one."""
    transaction: str | None = None


class End(NamedTuple):
    """A call on a transaction that was answered with a state. `wish`: `commit`, `abort`, `terminate` or `describe`."""

    span: Span
    transaction: str
    wish: str
    state: str
    """`open`, `committed` or `aborted`; `forgotten`: nothing is known of it; `unknown`: no answer told it."""


class CommittedRead(NamedTuple):
    """The answer to a read of a partition's committed records, from `offset` on and before `end_offset`."""

    span: Span
    topic: str
    partition: int
    offset: int
    end_offset: int
    values: tuple[tuple[int, int], ...]
    """(offset, value)."""


class Range(NamedTuple):
    """Records that a fetch was answered with; `values` of first to last offset."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    values: tuple[tuple[int, int], ...]
    """(offset, value)."""

    def places(self) -> Iterator[Place]:
        return ((self.topic, self.partition, offset) for offset in range(self.first_offset, self.last_offset + 1))


class Fetch(NamedTuple):
    span: Span
    group: str
    member: str
    fetch_id: str | None
    gateway: str
    outcome: Outcome
    ranges: tuple[Range, ...] = ()


class Acknowledge(NamedTuple):
    """One acknowledgement of one request, piggybacked or not. `kinds`: one for all its offsets, or one for each."""

    span: Span
    group: str
    member: str
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int
    kinds: tuple[str, ...]
    gateway: str
    status: str
    """`applied`, `ignored`, `failed` (surely not done) or `unknown`."""
    kafka_code: int = 0
    delay_ms: int | None = None
    """Of a release: how long the records are to wait."""
    begun: bool = True
    """Of a release: whether the delivery is to count."""

    def places(self) -> Iterator[tuple[Place, str]]:
        for index, offset in enumerate(range(self.first_offset, self.last_offset + 1)):
            kind = self.kinds[0] if len(self.kinds) == 1 else self.kinds[index]
            yield (self.topic, self.partition, offset), kind


class LetGo(NamedTuple):
    """A member opened or closed a session: the records that it held may be released."""

    span: Span
    group: str
    member: str


class Reset(NamedTuple):
    """A group's offsets were reset; repeats of one request are one reset. `starts` by (topic, partition)."""

    span: Span
    group: str
    starts: Mapping[tuple[str, int], int]


class Trim(NamedTuple):
    """Somebody saw where a partition's log starts."""

    span: Span
    topic: str
    partition: int
    log_start_offset: int


class DeadLetter(NamedTuple):
    group: str
    topic: str
    partition: int
    offset: int
    delivery_count: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


class Trouble(NamedTuple):
    """A fault that was inflicted on the services; for readers of an excerpt."""

    span: Span
    what: str


@dataclass
class History:
    """All requests and answers of a run, and the state at its end."""

    limit: int
    """Deliveries of a record in each group."""
    lock_s: float
    groups: tuple[str, ...]
    backoff_s: Mapping[str, float] = field(default_factory=dict)
    """By group: the shortest time that a record waits after a delivery that ended without a delay of its own."""
    produced: list[Produce] = field(default_factory=list)
    fetched: list[Fetch] = field(default_factory=list)
    acknowledged: list[Acknowledge] = field(default_factory=list)
    let_go: list[LetGo] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    without_redis: list[Span] = field(default_factory=list)
    """When a gateway ran without Redis: locks acquired then do not survive the gateway."""
    troubles: list[Trouble] = field(default_factory=list)
    trims: list[Trim] = field(default_factory=list)
    """In topics in which retention spares what groups have not finished."""
    held_until_s: float = 0.0
    """Until then a group that was created first, and finished nothing, holds every record; 0: there is none."""
    committed_groups: frozenset[str] = frozenset()
    """Those that receive committed records only."""
    ends: list[End] = field(default_factory=list)
    committed_reads: list[CommittedRead] = field(default_factory=list)
    log: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    """In the end: value by offset, by (topic, partition). The end of a transaction has an offset without a value."""
    log_ends: dict[tuple[str, int], int] = field(default_factory=dict)
    """In the end: the log end by (topic, partition); without one the log ends behind its last record."""
    dead_letters: list[DeadLetter] = field(default_factory=list)
    in_kafka: bool = False
    """Whether the records are in Kafka: its log has the ends of transactions that nobody sees, and an append without a
    key to several partitions may be there in part."""
    lags: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """In the end: how many records a group has not finished, by (group, topic, partition)."""

    def end_of(self, topic: str, partition: int) -> int:
        """The offset behind the last one of the log."""
        last = max(self.log.get((topic, partition), ()), default=-1)
        return max(self.log_ends.get((topic, partition), 0), last + 1)

    def excerpt(self, group: str, place: Place) -> str:
        """All events of a record, in order of time; a line each, times from the first request on."""
        topic, partition, offset = place
        lines: list[tuple[Span, str]] = [
            (produce.span, f"produced {produce.outcome}")
            for produce in self.produced
            if produce.topic == topic and (partition, offset) in produce.places
        ]
        repeated = set()
        for fetch in self.fetched:
            if fetch.group != group:
                continue
            who = f"{fetch.member} via {fetch.gateway} fetch_id={fetch.fetch_id}"
            for range_ in fetch.ranges:
                if place in range_.places():
                    bounds = f"{range_.first_offset}-{range_.last_offset}"
                    lines.append((fetch.span, f"delivered to {who}: {bounds} count {range_.delivery_count}"))
                    repeated.add((group, fetch.member, fetch.fetch_id))
        lines += [
            (fetch.span, f"asked for by {fetch.member} via {fetch.gateway} fetch_id={fetch.fetch_id}: {fetch.outcome}")
            for fetch in self.fetched
            if not fetch.ranges and fetch.fetch_id and (fetch.group, fetch.member, fetch.fetch_id) in repeated
        ]
        for ack in self.acknowledged:
            if ack.group == group and any(place == touched for touched, _ in ack.places()):
                bounds = f"{ack.first_offset}-{ack.last_offset} count {ack.delivery_count}"
                answer = f"{ack.status} {ack.kafka_code or ''}"
                lines.append((ack.span, f"{','.join(ack.kinds)} by {ack.member} via {ack.gateway}: {bounds}: {answer}"))
        value = self.log.get((topic, partition), {}).get(offset)
        transactions = {one.transaction for one in self.produced if one.transaction and value in one.values}
        lines += [
            (end.span, f"{end.wish} of transaction {end.transaction}: {end.state}")
            for end in self.ends
            if end.transaction in transactions
        ]
        lines += [
            (read.span, f"read as committed: {read.offset} to {read.end_offset}{'' if seen else ', without it'}")
            for read in self.committed_reads
            if (read.topic, read.partition) == (topic, partition) and read.offset <= offset < read.end_offset
            for seen in [offset in dict(read.values)]
        ]
        if not lines:
            return "nothing touched it"
        from_s = min(span.started_s for span, _ in lines) - 1
        to_s = max(span.ended_s for span, _ in lines) + 1
        concerned = {fetch.member for fetch in self.fetched if any(place in r.places() for r in fetch.ranges)}
        lines += [
            (left.span, f"{left.member} let go")
            for left in self.let_go
            if left.group == group and left.member in concerned
        ]
        lines += [(reset.span, f"reset to {dict(reset.starts)}") for reset in self.resets if reset.group == group]
        lines += [(trouble.span, f"* {trouble.what}") for trouble in self.troubles]
        lines += [(span, "* a gateway without Redis") for span in self.without_redis]
        origin_s = min((produce.span.started_s for produce in self.produced), default=0.0)
        return "\n".join(
            f"    {span.started_s - origin_s:8.3f} to {span.ended_s - origin_s:8.3f}  {text}"
            for span, text in sorted(lines)
            if span.overlaps(from_s, to_s)
        )

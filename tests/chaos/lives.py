"""A history by record: the events of each record in each group, and how long a lock is surely held."""

from bisect import bisect_left, insort
from collections import defaultdict
from typing import Final, NamedTuple

from tests.chaos.history import Acknowledge, End, Fetch, History, LetGo, Place, Reset, Span

CLOCK_S: Final = 0.01
"""How much the rules about locks leave for clocks that count milliseconds."""


class Violation(NamedTuple):
    rule: str
    group: str
    place: Place | None
    text: str


class Delivery(NamedTuple):
    """One record in one answer."""

    span: Span
    member: str
    fetch_id: str | None
    count: int
    asked_s: float
    """When the first fetch of this id was sent, be it answered or not: the lock is not older, but may be as old."""

    def same_fetch(self, other: "Delivery") -> bool:
        return self.fetch_id is not None and (self.member, self.fetch_id) == (other.member, other.fetch_id)


class Settlement(NamedTuple):
    """One acknowledgement's request about one record."""

    span: Span
    member: str
    count: int
    kind: str
    status: str
    kafka_code: int
    delay_ms: int | None
    begun: bool


class RecordLife:
    """The events of one record in one group between two resets, in order of the answers."""

    def __init__(self, group: str, place: Place) -> None:
        self.group = group
        self.place = place
        self.deliveries: list[Delivery] = []
        self.settlements: list[Settlement] = []

    @property
    def never_begun(self) -> int:
        """How many deliveries may not count: their releases said that they were never begun."""
        return len({one.count for one in self.settlements if not one.begun and one.status != "failed"})

    def never_seen(self, count: int) -> int:
        """How many deliveries before this count no client saw."""
        return count - 1 - len({delivery.count for delivery in self.deliveries if delivery.count < count})

    def violation(self, rule: str, text: str) -> Violation:
        return Violation(rule, self.group, self.place, text)


class Known:
    """A history, by record."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.resets: dict[str, list[Reset]] = defaultdict(list)
        for reset in sorted(history.resets, key=lambda reset: reset.span):
            self.resets[reset.group].append(reset)
        self.lives: dict[tuple[str, int, Place], RecordLife] = {}
        self.between: dict[str, set[Place]] = defaultdict(set)
        """By group: records that were delivered in answers which overlap a reset."""
        self.maybe: dict[tuple[str, str], set[Place]] = defaultdict(set)
        """By (group, kind): records of acknowledgements that may have been applied, in any life."""
        self.let_go: dict[tuple[str, str], list[LetGo]] = defaultdict(list)
        for left in history.let_go:
            self.let_go[left.group, left.member].append(left)
        self._asked_s: dict[tuple[str, str, str], float] = {}
        """When each fetch id was first asked for, by (group, member, fetch id)."""
        for fetch in sorted(history.fetched, key=lambda fetch: fetch.span):
            self._take_fetch(fetch)
        for acknowledge in history.acknowledged:
            self._take_acknowledge(acknowledge)
        self._fetched_s: dict[str, list[float]] = defaultdict(list)
        for fetch in history.fetched:
            insort(self._fetched_s[fetch.group], fetch.span.started_s)
        for life in self.lives.values():
            life.deliveries.sort(key=lambda delivery: delivery.span.ended_s)
        self.dead = {(letter.group, letter.place) for letter in history.dead_letters}
        """Records with a dead letter in the end, by group."""
        self.transaction_of: dict[int, str] = {}
        """By value; records without a transaction are absent."""
        for produce in history.produced:
            if produce.transaction is not None:
                self.transaction_of.update(dict.fromkeys(produce.values, produce.transaction))
        self.ends: dict[str, list[End]] = defaultdict(list)
        """By transaction, in order of the answers."""
        for end in sorted(history.ends, key=lambda end: end.span.ended_s):
            self.ends[end.transaction].append(end)

    def aborted(self, value: int | None) -> bool:
        """Whether a record is of a transaction that was not committed."""
        transaction = None if value is None else self.transaction_of.get(value)
        return transaction is not None and all(end.state != "committed" for end in self.ends[transaction])

    def due(self, group: str, topic: str, partition: int) -> list[int]:
        """The offsets that the group must finish itself: without markers, and without what it must not receive."""
        log = self.history.log.get((topic, partition), {})
        committed = group in self.history.committed_groups
        return sorted(offset for offset, value in log.items() if not (committed and self.aborted(value)))

    def _take_fetch(self, fetch: Fetch) -> None:
        number = self.life_of(fetch.group, fetch.span)
        asked_s = fetch.span.started_s
        if fetch.fetch_id is not None:
            asked_s = self._asked_s.setdefault((fetch.group, fetch.member, fetch.fetch_id), asked_s)
        for range_ in fetch.ranges:
            for place in range_.places():
                if number is None:
                    self.between[fetch.group].add(place)
                    continue
                delivery = Delivery(fetch.span, fetch.member, fetch.fetch_id, range_.delivery_count, asked_s)
                self._life(fetch.group, number, place).deliveries.append(delivery)

    def _take_acknowledge(self, ack: Acknowledge) -> None:
        number = self.life_of(ack.group, ack.span)
        for place, kind in ack.places():
            if ack.status != "failed":
                self.maybe[ack.group, kind].add(place)
            if number is not None:
                self._life(ack.group, number, place).settlements.append(
                    Settlement(
                        ack.span,
                        ack.member,
                        ack.delivery_count,
                        kind,
                        ack.status,
                        ack.kafka_code,
                        ack.delay_ms,
                        ack.begun,
                    )
                )

    def _life(self, group: str, number: int, place: Place) -> RecordLife:
        life = self.lives.get((group, number, place))
        if life is None:
            life = self.lives[group, number, place] = RecordLife(group, place)
        return life

    def life_of(self, group: str, span: Span) -> int | None:
        """How many resets came before; None if one was under way."""
        number = 0
        for reset in self.resets.get(group, ()):
            if reset.span.overlaps(*span):
                return None
            number += reset.span.ended_s < span.started_s
        return number

    def without_redis(self, one_s: float, other_s: float) -> int:
        """How many windows without Redis overlap the time between two moments, whichever came first."""
        first_s, last_s = sorted((one_s, other_s))
        return sum(window.overlaps(first_s, last_s) for window in self.history.without_redis)

    def forgiven(self, life: RecordLife, delivery: Delivery) -> int:
        """The most deliveries before this one that do not count for the limit: never begun, or never seen.

        A gateway forgives what it gives back itself: a client hung up before its answer, or the gateway that was asked
        did not wait any longer for another one. So any fetch without this record may be the cause.
        """
        without = bisect_left(self._fetched_s[life.group], delivery.span.ended_s) - len(life.deliveries)
        return min(life.never_begun, self.history.limit) + min(life.never_seen(delivery.count), max(0, without))

    def lock_held_until(self, life: RecordLife, delivery: Delivery, at_s: float, but: Span | None = None) -> float:
        """The earliest moment at which the lock of a delivery may end, seen from `at_s`; 0 if it may be gone already.

        Args:
            but: of the request that is judged: its own effect does not count.
        """
        until_s = delivery.asked_s + self.history.lock_s - CLOCK_S
        for settlement in life.settlements:
            if settlement.member != delivery.member or settlement.span.started_s > at_s or settlement.span == but:
                continue
            if settlement.kind == "renew":
                if settlement.count == delivery.count and settlement.status == "applied":
                    until_s = max(until_s, settlement.span.started_s + self.history.lock_s - CLOCK_S)
            elif settlement.status != "failed" and settlement.count == delivery.count:
                return 0
        for left in self.let_go.get((life.group, delivery.member), ()):
            if left.span.overlaps(delivery.asked_s, at_s):
                return 0
        return until_s

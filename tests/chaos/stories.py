"""Histories written event by event, and some that keep every promise."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.history import (
    Acknowledge,
    CommittedRead,
    DeadLetter,
    End,
    Fetch,
    History,
    LetGo,
    Outcome,
    Produce,
    Range,
    Reset,
    Span,
    Trim,
)

TOPIC, GROUP, LIMIT, LOCK_S = "t", "g", 3, 2.0


@dataclass
class HistoryWriter:
    """A history written in order; each request takes a tenth of a second, unless it says how long."""

    history: History = field(default_factory=lambda: History(limit=LIMIT, lock_s=LOCK_S, groups=(GROUP,)))
    now_s: float = 0.0

    def span(self, seconds: float = 0.1) -> Span:
        self.now_s += 0.1
        span = Span(self.now_s, self.now_s + seconds)
        self.now_s = span.ended_s
        return span

    def produce(
        self,
        *values: int,
        outcome: Outcome = Outcome.OK,
        kept: bool = True,
        transaction: str | None = None,
        partition: int = 0,
    ) -> None:
        log = self.history.log.setdefault((TOPIC, partition), {})
        end = self.history.end_of(TOPIC, partition)
        places = tuple((partition, end + index) for index in range(len(values)))
        if kept:
            log.update({offset: value for (_, offset), value in zip(places, values, strict=True)})
            self.history.log_ends[TOPIC, partition] = end + len(values)
        answered = places if outcome is Outcome.OK else ()
        self.history.produced.append(Produce(self.span(), TOPIC, values, outcome, answered, transaction))

    def end_transaction(self, transaction: str, wish: str, state: str, *partitions: int) -> None:
        """A call that ends or describes a transaction. `partitions`: those that get a marker by it."""
        self.history.ends.append(End(self.span(), transaction, wish, state))
        for partition in partitions:
            self.history.log_ends[TOPIC, partition] = self.history.end_of(TOPIC, partition) + 1

    def read_committed(self, offset: int, end: int, *without: int, partition: int = 0) -> None:
        """A committed read that shows all records of the log, but those at the offsets `without`."""
        log = self.history.log[TOPIC, partition]
        values = tuple((at, log[at]) for at in range(offset, end) if at in log and at not in without)
        self.history.committed_reads.append(CommittedRead(self.span(), TOPIC, partition, offset, end, values))

    def fetch(
        self,
        member: str,
        first: int,
        last: int,
        count: int,
        *,
        fetch_id: str | None = None,
        group: str = GROUP,
        partition: int = 0,
    ) -> None:
        log = self.history.log[TOPIC, partition]
        values = tuple((offset, log.get(offset, -1)) for offset in range(first, last + 1))
        ranges = (Range(TOPIC, partition, first, last, count, values),)
        self.history.fetched.append(Fetch(self.span(), group, member, fetch_id, "gateway-0", Outcome.OK, ranges))

    def fetch_without_an_answer(self, member: str, fetch_id: str) -> None:
        self.history.fetched.append(Fetch(self.span(), GROUP, member, fetch_id, "gateway-0", Outcome.UNKNOWN))

    def acknowledge(
        self,
        member: str,
        first: int,
        last: int,
        count: int,
        *kinds: str,
        status: str = "applied",
        group: str = GROUP,
        delay_ms: int | None = None,
        begun: bool = True,
        partition: int = 0,
    ) -> None:
        code = 121 if status == "failed" else 0
        where = (TOPIC, partition, first, last, count, kinds, "gateway-1", status, code)
        self.history.acknowledged.append(Acknowledge(self.span(), group, member, *where, delay_ms, begun))

    def close_session(self, member: str) -> None:
        self.history.let_go.append(LetGo(self.span(), GROUP, member))

    def reset(self, start: int) -> None:
        self.history.resets.append(Reset(self.span(), GROUP, {(TOPIC, 0): start}))

    def trim(self, log_start_offset: int) -> None:
        self.history.trims.append(Trim(self.span(), TOPIC, 0, log_start_offset))

    def dead(self, offset: int, count: int) -> None:
        self.history.dead_letters.append(DeadLetter(GROUP, TOPIC, 0, offset, count))

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def end(self) -> History:
        for group in self.history.groups:
            self.history.lags.setdefault((group, TOPIC, 0), 0)
        return self.history


Story = Callable[[HistoryWriter], None]


def accepted_at_once(writer: HistoryWriter) -> None:
    writer.produce(10, 11, 12)
    writer.fetch("a", 0, 2, 1)
    writer.acknowledge("a", 0, 2, 1, "accept")


def released_and_delivered_again(writer: HistoryWriter) -> None:
    writer.produce(10, 11)
    writer.fetch("a", 0, 1, 1)
    writer.acknowledge("a", 0, 1, 1, "release", "accept")
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def delivered_again_after_the_lock(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("a", 0, 0, 1, "accept", status="failed")
    writer.acknowledge("b", 0, 0, 2, "accept")


def delivered_again_after_the_session(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.close_session("a")
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def a_fetch_is_repeated(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1, fetch_id="f")
    writer.fetch("a", 0, 0, 1, fetch_id="f")
    writer.acknowledge("a", 0, 0, 1, "accept", status="unknown")
    writer.acknowledge("a", 0, 0, 1, "accept", status="ignored")


def the_lock_is_of_the_fetch_that_got_no_answer(writer: HistoryWriter) -> None:
    """The repeat is answered with the records of the first fetch, whose lock ends that much earlier."""
    writer.produce(10)
    writer.fetch_without_an_answer("a", "f")
    writer.wait(LOCK_S / 2)
    writer.fetch("a", 0, 0, 1, fetch_id="f")
    writer.wait(LOCK_S / 2)
    writer.acknowledge("a", 0, 0, 1, "accept", status="failed")
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def an_acknowledgement_is_repeated(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "accept", status="unknown")
    writer.acknowledge("a", 0, 0, 1, "accept")
    writer.acknowledge("b", 0, 0, 1, "accept")  # it is accepted already


def an_accept_is_repeated_on_the_way(writer: HistoryWriter) -> None:
    """The leader died with the answer; the gateway that was asked repeated it where the record was finished by then."""
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "accept", status="ignored")


def dead_after_the_limit(writer: HistoryWriter) -> None:
    writer.produce(10, 11)
    for count in range(1, LIMIT + 1):
        writer.fetch(f"m{count}", 0, 0, count)
        writer.acknowledge(f"m{count}", 0, 0, count, "release")
    writer.dead(0, LIMIT)
    writer.fetch("a", 1, 1, 1)
    writer.acknowledge("a", 1, 1, 1, "reject")
    writer.dead(1, 1)


def requests_without_an_answer(writer: HistoryWriter) -> None:
    writer.produce(10, 11, outcome=Outcome.UNKNOWN)
    writer.produce(12, outcome=Outcome.UNKNOWN, kept=False)
    writer.produce(13, outcome=Outcome.REFUSED, kept=False)
    writer.fetch("a", 0, 1, 1)
    writer.acknowledge("a", 0, 1, 1, "accept")


def begun_again_after_a_reset(writer: HistoryWriter) -> None:
    writer.produce(10, 11)
    writer.fetch("a", 0, 1, 1)
    writer.acknowledge("a", 0, 1, 1, "accept")
    writer.reset(1)
    writer.fetch("a", 1, 1, 1)
    writer.acknowledge("a", 1, 1, 1, "accept")


def locks_lost_without_redis(writer: HistoryWriter) -> None:
    writer.produce(10)
    writer.history.without_redis.append(Span(0.25, 0.5))
    for member in ("a", "b"):
        writer.fetch(member, 0, 0, 1)
    writer.acknowledge("b", 0, 0, 1, "accept")


def a_later_count_is_lost_without_redis(writer: HistoryWriter) -> None:
    """Another gateway leads, which could not read the lock: it delivers the record with the count it knows."""
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    lost_s = writer.now_s
    writer.wait(0.2)
    writer.history.without_redis.append(Span(lost_s, writer.now_s))
    writer.fetch("c", 0, 0, 1)
    writer.acknowledge("c", 0, 0, 1, "accept")


def a_later_count_is_lost_while_a_fetch_waits(writer: HistoryWriter) -> None:
    """As before, but Redis goes away between the fetch that gets the lower count and its answer."""
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    writer.fetch("c", 0, 0, 1)
    fetch = writer.history.fetched[-1].span
    writer.history.without_redis.append(Span((fetch.started_s + fetch.ended_s) / 2, fetch.ended_s))
    writer.acknowledge("c", 0, 0, 1, "accept")


def a_renewed_count_is_lost_without_redis(writer: HistoryWriter) -> None:
    """A renewed record is delivered to another member under the same count, long after the renewal."""
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "renew")
    writer.wait(LOCK_S)
    lost_s = writer.now_s
    writer.wait(0.2)
    writer.history.without_redis.append(Span(lost_s, writer.now_s))
    writer.fetch("b", 0, 0, 1)
    writer.acknowledge("b", 0, 0, 1, "accept")


def finished_records_are_passed_over(writer: HistoryWriter) -> None:
    """The lock of a range has ended; another member finished its first record, the second was delivered again."""
    writer.produce(10, 11)
    writer.fetch("a", 0, 1, 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")
    writer.acknowledge("a", 0, 1, 1, "release")
    writer.fetch("b", 1, 1, 2)
    writer.acknowledge("b", 1, 1, 2, "accept")


def a_dead_record_is_passed_over(writer: HistoryWriter) -> None:
    """The lock of the last delivery of the first record ended, which finished it; the second one is held still."""
    writer.produce(10, 11)
    writer.fetch("a", 0, 1, LIMIT - 1)
    writer.wait(LOCK_S)
    writer.fetch("b", 0, 0, LIMIT)
    writer.wait(LOCK_S)
    writer.dead(0, LIMIT)
    writer.acknowledge("a", 0, 1, LIMIT - 1, "release")
    writer.fetch("b", 1, 1, LIMIT)
    writer.acknowledge("b", 1, 1, LIMIT, "accept")


def trimmed_as_far_as_it_is_finished(writer: HistoryWriter) -> None:
    writer.produce(10, 11, 12)
    writer.fetch("a", 0, 2, 1)
    writer.acknowledge("a", 0, 2, 1, "accept", "reject", "accept")
    writer.dead(1, 1)
    writer.trim(3)


def delivered_when_its_delay_is_over(writer: HistoryWriter) -> None:
    """The first try of the release got no answer, and was in effect: the delay counts from there."""
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "release", status="unknown", delay_ms=1000)
    writer.wait(0.5)
    writer.acknowledge("a", 0, 0, 1, "release", delay_ms=1000)
    writer.wait(0.15)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "accept")


def delivered_when_its_backoff_is_over(writer: HistoryWriter) -> None:
    """After a release, after a lock that ended, and at once after a delivery that was never begun."""
    writer.history.backoff_s = {GROUP: 1.0}
    writer.produce(10)
    writer.fetch("a", 0, 0, 1)
    writer.acknowledge("a", 0, 0, 1, "release")
    writer.wait(1)
    writer.fetch("b", 0, 0, 2)
    writer.acknowledge("b", 0, 0, 2, "release", begun=False)
    writer.fetch("c", 0, 0, 3)
    writer.wait(LOCK_S + 1)
    writer.fetch("d", 0, 0, 4)
    writer.acknowledge("d", 0, 0, 4, "accept")


def given_back_by_a_session_without_a_backoff(writer: HistoryWriter) -> None:
    writer.history.backoff_s = {GROUP: 1.0}
    delivered_again_after_the_session(writer)


SOUND: tuple[Story, ...] = (
    delivered_when_its_delay_is_over,
    delivered_when_its_backoff_is_over,
    given_back_by_a_session_without_a_backoff,
    trimmed_as_far_as_it_is_finished,
    accepted_at_once,
    released_and_delivered_again,
    delivered_again_after_the_lock,
    delivered_again_after_the_session,
    a_fetch_is_repeated,
    the_lock_is_of_the_fetch_that_got_no_answer,
    an_acknowledgement_is_repeated,
    an_accept_is_repeated_on_the_way,
    dead_after_the_limit,
    requests_without_an_answer,
    begun_again_after_a_reset,
    locks_lost_without_redis,
    a_later_count_is_lost_without_redis,
    a_later_count_is_lost_while_a_fetch_waits,
    a_renewed_count_is_lost_without_redis,
    finished_records_are_passed_over,
    a_dead_record_is_passed_over,
)

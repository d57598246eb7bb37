"""Histories as texts, one step after another: `produce 10 11; fetch a 0-1 1; accept a 0-1 1`.

    produce VALUES [refused | unknown] [lost] [in=TRANSACTION] [@PARTITION]
    fetch MEMBER FIRST-LAST DELIVERY_COUNT [id=FETCH_ID] [of=GROUP] [@PARTITION]
    accept MEMBER FIRST-LAST DELIVERY_COUNT [failed | unknown | ignored] [delay=MS] [unbegun] [of=GROUP] [@PARTITION]

`accept` may be another type, or one for each offset: `release+accept`. The methods of `HistoryWriter` are all steps.
`@1` names partition 1. `as NAME` is another story of the table.
"""

from collections.abc import Mapping
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

TOPIC, GROUP, UNCOMMITTED, LIMIT, LOCK_S = "t", "g", "uncommitted", 3, 2.0
OUTCOMES = {"refused": Outcome.REFUSED, "unknown": Outcome.UNKNOWN}
STATUSES = {"failed": 121, "unknown": 0, "ignored": 0}


class Words:
    """The words of a step: plain ones, `name=value`, and the partition."""

    def __init__(self, words: list[str]) -> None:
        self.named = dict(word.split("=") for word in words if "=" in word)
        self.partition = int(next((word[1:] for word in words if word[0] == "@"), 0))
        self.plain = [word for word in words if "=" not in word and word[0] != "@"]

    def numbers(self) -> list[int]:
        return [int(word) for word in self.plain if word.isdigit()]

    def range_(self) -> tuple[str, int, int, int]:
        """Member, first and last offset, delivery count."""
        member, offsets, count, *_ = self.plain
        first, last = map(int, offsets.split("-"))
        return member, first, last, int(count)


@dataclass
class HistoryWriter:
    """Writes a history in order; each request takes a tenth of a second."""

    stories: Mapping[str, str]
    history: History = field(default_factory=lambda: History(limit=LIMIT, lock_s=LOCK_S, groups=(GROUP,)))
    now_s: float = 0.0

    def tell(self, text: str) -> None:
        for step in filter(None, map(str.strip, text.replace("\n", ";").split(";"))):
            verb, *words = step.split()
            if verb == "as":
                self.tell(self.stories[" ".join(words)])
            elif method := getattr(self, verb, None):
                method(Words(words))
            else:
                self._acknowledge(verb, Words(words))

    def span(self) -> Span:
        started_s = self.now_s + 0.1
        self.now_s = started_s + 0.1
        return Span(started_s, self.now_s)

    def produce(self, words: Words) -> None:
        values, partition = words.numbers(), words.partition
        outcome = next((OUTCOMES[word] for word in words.plain if word in OUTCOMES), Outcome.OK)
        log = self.history.log.setdefault((TOPIC, partition), {})
        end = self.history.end_of(TOPIC, partition)
        places = tuple((partition, end + index) for index in range(len(values)))
        if "lost" not in words.plain:
            log.update({offset: value for (_, offset), value in zip(places, values, strict=True)})
            self.history.log_ends[TOPIC, partition] = end + len(values)
        answered = places if outcome is Outcome.OK else ()
        made = Produce(self.span(), TOPIC, tuple(values), outcome, answered, words.named.get("in"))
        self.history.produced.append(made)

    def fetch(self, words: Words) -> None:
        member, first, last, count = words.range_()
        log = self.history.log[TOPIC, words.partition]
        values = tuple((offset, log.get(offset, -1)) for offset in range(first, last + 1))
        ranges = (Range(TOPIC, words.partition, first, last, count, values),)
        who = words.named.get("of", GROUP), member, words.named.get("id"), "gateway-0"
        self.history.fetched.append(Fetch(self.span(), *who, Outcome.OK, ranges))

    def ask(self, words: Words) -> None:
        """Add a fetch without an answer."""
        who = GROUP, words.plain[0], words.named["id"], "gateway-0"
        self.history.fetched.append(Fetch(self.span(), *who, Outcome.UNKNOWN))

    def _acknowledge(self, types: str, words: Words) -> None:
        status = next((word for word in words.plain if word in STATUSES), "applied")
        delay_ms = int(words.named["delay"]) if "delay" in words.named else None
        member, *range_ = words.range_()
        where = (words.named.get("of", GROUP), member, TOPIC, words.partition, *range_)
        result = tuple(types.split("+")), "gateway-1", status, STATUSES.get(status, 0), delay_ms
        begun = "unbegun" not in words.plain
        self.history.acknowledged.append(Acknowledge._make([self.span(), *where, *result, begun]))

    def finish(self, words: Words) -> None:
        """Fetch and accept a range in the named groups, else in one of each isolation level."""
        range_, *groups = words.plain
        for group in groups or (GROUP, UNCOMMITTED):
            for verb in ("fetch", "accept"):
                self.tell(f"{verb} of-{group} {range_} 1 of={group} @{words.partition}")

    def end(self, words: Words) -> None:
        """Add a call that ends or describes a transaction: its name, wish, state, the partitions that get a marker."""
        transaction, wish, state, *partitions = words.plain
        self.history.ends.append(End(self.span(), transaction, wish, state))
        for partition in map(int, partitions):
            self.history.log_ends[TOPIC, partition] = self.history.end_of(TOPIC, partition) + 1

    def read(self, words: Words) -> None:
        """Add a committed read from an offset to another, of all records but those at the further offsets."""
        offset, end, *without = words.numbers()
        log = self.history.log[TOPIC, words.partition]
        values = tuple((at, log[at]) for at in range(offset, end) if at in log and at not in without)
        self.history.committed_reads.append(CommittedRead(self.span(), TOPIC, words.partition, offset, end, values))

    def levels(self, _: Words) -> None:
        """Have one group of each isolation level."""
        self.history.groups, self.history.committed_groups = (GROUP, UNCOMMITTED), frozenset({GROUP})

    def groups(self, words: Words) -> None:
        self.history.groups = tuple(words.plain)

    def close(self, words: Words) -> None:
        self.history.let_go.append(LetGo(self.span(), GROUP, words.plain[0]))

    def reset(self, words: Words) -> None:
        self.history.resets.append(Reset(self.span(), GROUP, {(TOPIC, 0): words.numbers()[0]}))

    def trim(self, words: Words) -> None:
        self.history.trims.append(Trim(self.span(), TOPIC, 0, words.numbers()[0]))

    def dead(self, words: Words) -> None:
        self.history.dead_letters.append(DeadLetter(GROUP, TOPIC, 0, *words.numbers()))

    def wait(self, words: Words) -> None:
        self.now_s += float(words.plain[0])

    def hold(self, words: Words) -> None:
        self.history.held_until_s = self.now_s + float(words.plain[0])

    def backoff(self, words: Words) -> None:
        self.history.backoff_s = {GROUP: float(words.plain[0])}

    def no_redis(self, words: Words) -> None:
        """Redis was away from then on, to the second time or now. A negative number counts from now."""
        begin_s, *end_s = map(float, words.plain)
        begin_s = begin_s if begin_s >= 0 else self.now_s + begin_s
        self.history.without_redis.append(Span(begin_s, *(end_s or [self.now_s])))

    def lag(self, words: Words) -> None:
        self.history.lags[GROUP, TOPIC, 0] = words.numbers()[0]

    def log_end(self, words: Words) -> None:
        self.history.log_ends[TOPIC, 0] = words.numbers()[0]

    def log(self, words: Words) -> None:
        """Change the log: `3=99` puts a value at an offset, a number removes one."""
        log = self.history.log[TOPIC, 0]
        log.update({int(offset): int(value) for offset, value in words.named.items()})
        for offset in words.numbers():
            del log[offset]

    def answer(self, words: Words) -> None:
        """Change the values of the first fetch."""
        fetch = self.history.fetched[0]
        changed = fetch.ranges[0]._replace(values=tuple(enumerate(words.numbers())))
        self.history.fetched[0] = fetch._replace(ranges=(changed,))


def history_of(stories: Mapping[str, str], text: str) -> History:
    """The history that a text tells. All groups have finished all partitions, unless it says otherwise."""
    writer = HistoryWriter(stories)
    writer.tell(text)
    for group in writer.history.groups:
        for topic, partition in writer.history.log:
            writer.history.lags.setdefault((group, topic, partition), 0)
    return writer.history

"""Play a script on both sides, and say where they differ.

At a comparison both sides deliver until neither has more. Then the deliveries of each group must be the same: topic,
partition, offset, value and the delivery counts in their order. So must the log ends, LASTSTABLE, and the lag.

Kafka stores void offsets (records of aborted transactions that it cut out for a read_committed group) with the next
acknowledgement of the partition; until then its lag counts them. sharequeue stores them within `floor_interval_ms`.
`_unstored` counts what Kafka may not have stored yet. The last comparison appends and settles two records in each
partition, so that nothing is left open there: lag 0 on both sides, sharequeue's start offset at the log end, and
Kafka's at the second record, as a write of Kafka's carries the start offset from before it.
"""

import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Final

from tests.kafka.scripts import (
    GROUPS,
    LATE,
    LOCK_MS,
    MEMBERS,
    Begin,
    Compare,
    Delete,
    End,
    Expire,
    Fetch,
    Grow,
    Leave,
    Produce,
    Remake,
    Replace,
    Restart,
    Script,
    SetLevel,
    Start,
    Step,
    flush,
    settling,
)
from tests.kafka.sides import Batch, GroupOffsets, Settled, Side

DEADLINE_S: Final = 60
LAST_WAIT_MS: Final = 50
"""How long a fetch waits that should bring nothing."""
START_WAIT_MS: Final = 500
"""How long a fetch waits that lets Kafka find out where a group begins, and by how much it may be late."""
SHORT_LOCK_MS: Final = 3000
"""Longer than both sides take to deliver all that they have."""
MOST_SHOWN: Final = 10
"""Deliveries of a record that a difference names; Kafka's limit is 5."""
UNKNOWN_TOPIC_ID: Final = 100
NOTHING_STORED: Final = GroupOffsets(-1, -1)
"""What Kafka says of a group that has settled nothing in a partition."""
Record = tuple[int, int, str]
"""Partition, offset, value."""


class Difference(Exception):
    """The sides do not agree; the text says in what."""


class Disturbed(Exception):
    """Locks ended too early on a slow machine, or Kafka lost them: the text says which, and the script nothing."""


class Taken:
    """What one side has delivered to its groups, and settled there."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.deliveries = 0
        self.forget()

    def forget(self) -> None:
        """Forget the records: their topic is gone."""
        self.counts: dict[str, dict[Record, list[int]]] = {group: defaultdict(list) for group in GROUPS}
        self.settled: dict[tuple[str, int], set[int]] = defaultdict(set)
        """Offsets acknowledged since the last comparison, by group and partition."""
        self.kept: dict[tuple[str, int], list[Settled]] = defaultdict(list)
        """What a member still holds, as it would accept it, by group and member."""

    def lost_locks(self) -> bool:
        """Return whether a record came again without a higher count, as from a leader that lost a lock."""
        each = [counts for of_group in self.counts.values() for counts in of_group.values()]
        return any(later <= count for counts in each for count, later in pairwise(counts))

    def take(self, group: str, member: int, max_records: int, record_limit: bool, wait_ms: int) -> bool:
        """Fetch once, and settle it. Returns: whether anything came."""
        batches = self.side.fetch(group, member, max_records, record_limit, wait_ms)
        settled = [each for batch in batches for each in self._settle(group, member, batch)]
        if settled:
            self.side.acknowledge(group, member, settled)
        return bool(batches)

    def hold(self, group: str) -> dict[Record, int]:
        """Fetch all that there is, and settle nothing. Returns: how often each of these records was delivered."""
        held: dict[Record, int] = {}
        while batches := self.side.fetch(group, 0, 100, True, LAST_WAIT_MS):
            for batch in batches:
                for offset, value in batch.records.items():
                    counts = self.counts[group][batch.partition, offset, value]
                    counts.append(batch.delivery_count)
                    held[batch.partition, offset, value] = len(counts)
        return held

    def take_again(self, group: str, held: dict[Record, int]) -> None:
        """Fetch and settle until all that was held has come again."""
        deadline = time.monotonic() + DEADLINE_S
        while any(len(self.counts[group][record]) == count for record, count in held.items()):
            self.take(group, 1, 100, False, START_WAIT_MS)
            if time.monotonic() > deadline:
                raise Difference(f"group {group} does not get again in {self.side.name} what it held: {held}")

    def leave(self, group: str) -> None:
        """Have all members close their sessions."""
        for member in range(MEMBERS):
            self.side.leave(group, member)
            self.kept.pop((group, member), None)

    def settle_late(self) -> set[tuple[str, int]]:
        """Accept what is kept of a topic that is gone. Returns: by group, the errors."""
        kept = self.kept.items()
        return {
            (group, code) for (group, member), settled in kept for code in self.side.settle_late(group, member, settled)
        }

    def _settle(self, group: str, member: int, batch: Batch) -> list[Settled]:
        types = []
        for offset in range(batch.first_offset, batch.last_offset + 1):
            if (value := batch.records.get(offset)) is None:
                types.append((offset, "gap"))
                continue
            self.counts[group][batch.partition, offset, value].append(batch.delivery_count)
            self.deliveries += 1
            types.append((offset, settling(group, value, batch.delivery_count)))
        settled = []
        for keep, some in groupby(types, lambda entry: entry[1] == "keep"):
            offsets, names = zip(*some, strict=True)
            if keep:
                accepts = ("accept",) * len(offsets)
                self.kept[group, member].append(Settled(batch.partition, offsets[0], accepts, batch.delivery_count))
            else:
                settled.append(Settled(batch.partition, offsets[0], names, batch.delivery_count))
                self.settled[group, batch.partition].update(offsets)
        return settled


class Comparison:
    """One script on both sides. `exact` and `open_lags` count the lags that were compared and equal,
    and those not 0."""

    def __init__(self, kafka: Side, sharequeue: Side, script: Script) -> None:
        self.kafka, self.sharequeue = Taken(kafka), Taken(sharequeue)
        self._script = script
        self._levels: dict[str, str] = {}
        self._groups = list(GROUPS[:-1])
        """Those that have begun."""
        self._written: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.records = self.exact = self.open_lags = self.expired = 0
        self._begin_topic(script.partitions)

    def _begin_topic(self, partitions: int) -> None:
        self._batches: list[list[int]] = [[0] for _ in range(partitions)]
        self._aborted: list[set[int]] = [set() for _ in range(partitions)]
        self._begins: dict[tuple[str, int], int] = defaultdict(int)
        """Where a group begins, by group and partition."""
        self._stored: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._shortened: set[int] = set()

    @property
    def deliveries(self) -> int:
        return self.sharequeue.deliveries

    def play(self, name: str) -> None:
        """Play it as the script of this name. Raises: Difference: at the first one. Disturbed: play it again."""
        began = time.monotonic()
        try:
            self._play(name)
        except Difference as fault:
            if time.monotonic() - began > LOCK_MS / 1000:
                raise Disturbed(f"locks of {LOCK_MS} ms ended before {fault}") from fault
            if self.kafka.lost_locks():
                raise Disturbed(f"Kafka lost locks before {fault}") from fault
            raise

    def _play(self, name: str) -> None:
        for side in self._sides:
            side.begin_script(name, self._script.partitions)
            for group in self._groups:
                side.start(group, "earliest")
        for step in self._script.steps:
            self._do(step)
        for end in (1, 2):
            for partition in range(len(self._batches)):
                self._do(Produce(None, partition, (flush(partition, end),)))
            self._compare()
        self._compare_starts()

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.kafka.side, self.sharequeue.side

    def _do(self, step: Step) -> None:
        for taken in (self.kafka, self.sharequeue):
            side = taken.side
            match step:
                case Begin(producer):
                    side.begin(producer)
                case End(producer, commit):
                    side.end(producer, commit)
                case Replace(producer):
                    side.replace(producer)
                case SetLevel(group, level):
                    side.set_level(group, level)
                    self._levels[group] = level
                case Start():
                    side.start(LATE, "latest")
                case Grow():
                    side.grow(len(self._batches) + 1)
                case Remake(partitions):
                    side.remake(partitions)
                case Fetch(group, member, max_records, record_limit):
                    taken.take(group, member, max_records, record_limit, 0)
                case Leave(group):
                    taken.leave(group)
                case Restart():
                    side.restart()
        match step:
            case Produce(of, partition, values):
                self._produce(of, partition, values)
            case End(producer, commit):
                self._end(producer, commit)
            case Replace(producer):
                self._end(producer, commit=False)
            case Delete(partition, part):
                before = self._start_of_a_batch(partition, part)
                for side in self._sides:
                    side.delete(partition, before)
                self._shortened.add(partition)
            case Expire(group):
                self._expire(group)
            case Start():
                self._start()
            case Grow():
                self._batches.append([0])
                self._aborted.append(set())
            case Remake(partitions):
                self._remake(partitions)
            case Compare():
                self._compare()

    def _start(self) -> None:
        self._groups.append(LATE)
        for partition, end in enumerate(self.kafka.side.ends().log_end):
            self._begins[LATE, partition] = end
        self._begin(LATE)

    def _expire(self, group: str) -> None:
        both = self.kafka, self.sharequeue
        for taken in both:
            taken.side.set_lock(group, SHORT_LOCK_MS)
        held = self._hold(group, time.monotonic() + SHORT_LOCK_MS / 1000)
        for taken, of_side in zip(both, held, strict=True):
            taken.side.set_lock(group, LOCK_MS)
            taken.take_again(group, of_side)
        self.expired += len(held[1])

    def _hold(self, group: str, ends_s: float) -> list[dict[Record, int]]:
        """Have a member of each side hold all that there is. Raises: Disturbed: the first locks may have ended."""
        held: list[dict[Record, int]] = [{}, {}]
        while True:
            for taken, so_far in zip((self.kafka, self.sharequeue), held, strict=True):
                so_far.update(taken.hold(group))
            if time.monotonic() > ends_s:
                raise Disturbed(f"locks of {SHORT_LOCK_MS} ms of group {group} ended before all was held: {held}")
            if held[0] == held[1]:
                return held

    def _begin(self, group: str) -> None:
        """Have both sides find out where a group begins: a fetch that is answered late tells nothing."""
        for taken in (self.kafka, self.sharequeue):
            late = True
            while late:
                began = time.monotonic()
                if taken.take(group, 0, 1, True, START_WAIT_MS):
                    raise Difference(f"group {group} gets a record in {taken.side.name} from before its beginning")
                late = time.monotonic() - began > 2 * START_WAIT_MS / 1000

    def _remake(self, partitions: int) -> None:
        kafka, sharequeue = (taken.settle_late() for taken in (self.kafka, self.sharequeue))
        if kafka != sharequeue or any(code != UNKNOWN_TOPIC_ID for _, code in kafka):
            raise Difference(
                f"records of a topic that is gone settle with {kafka} in Kafka, {sharequeue} in sharequeue"
            )
        for taken in (self.kafka, self.sharequeue):
            for group in self._groups:
                taken.leave(group)
            taken.forget()
        self._begin_topic(partitions)
        if LATE in self._groups:
            self._begin(LATE)

    def _produce(self, producer: str | None, partition: int, values: Sequence[str]) -> None:
        first, other = (side.produce(producer, partition, values) for side in self._sides)
        if first != other:
            raise Difference(f"{values[0]} of partition {partition} has offset {first} in Kafka, {other} in sharequeue")
        self.records += len(values)
        self._batches[partition] += (first, first + len(values))
        if producer:
            self._written[producer].extend((partition, first + place) for place in range(len(values)))

    def _start_of_a_batch(self, partition: int, part: float) -> int:
        """An offset to delete up to, at about that part of the log.

        If a batch of an aborted transaction has lost some of its records, Kafka 4.3.0 answers UNKNOWN_SERVER_ERROR to
        each fetch of a read_committed group.
        """
        most = self._batches[partition][-1] * part
        return max(offset for offset in self._batches[partition] if offset <= most)

    def _end(self, producer: str, commit: bool) -> None:
        for partition, offset in self._written.pop(producer, []):
            if not commit:
                self._aborted[partition].add(offset)

    def _compare(self) -> None:
        kafka, sharequeue = (side.ends() for side in self._sides)
        if kafka != sharequeue:
            raise Difference(f"the ends of the partitions are {kafka} in Kafka, {sharequeue} in sharequeue")
        for group in self._groups:
            self._drain(group)
            unstored = [self._unstored(group, place, last) for place, last in enumerate(kafka.last_stable)]
            self._compare_lags(group, unstored)
        self.kafka.settled.clear()

    def _drain(self, group: str) -> None:
        both = self.kafka, self.sharequeue
        deadline = time.monotonic() + DEADLINE_S
        while True:
            for taken in both:
                while taken.take(group, 0, 100, True, 0) and time.monotonic() < deadline:
                    pass
            more = [taken.take(group, 1, 100, False, LAST_WAIT_MS) for taken in both]
            if not any(more) and self.kafka.counts[group] == self.sharequeue.counts[group]:
                return
            if time.monotonic() > deadline:
                raise Difference(f"group {group} ({self._levels[group]}): {self._other_deliveries(group)}")

    def _other_deliveries(self, group: str) -> str:
        kafka, sharequeue = self.kafka.counts[group], self.sharequeue.counts[group]
        return "; ".join(
            f"record {value!r} at {partition}-{offset} was delivered as {kafka.get(record, [])[:MOST_SHOWN]} in Kafka, "
            f"{sharequeue.get(record, [])[:MOST_SHOWN]} in sharequeue"
            for record in sorted({*kafka, *sharequeue})
            for partition, offset, value in [record]
            if kafka.get(record) != sharequeue.get(record)
        )

    def _unstored(self, group: str, partition: int, last_stable_offset: int) -> int:
        """How many void offsets Kafka may not have stored yet."""
        if self._levels[group] != "read_committed":
            return 0
        begin = self._begins[group, partition]
        void = {offset for offset in self._aborted[partition] if begin <= offset < last_stable_offset}
        settled = self.kafka.settled[group, partition]
        delivered = {offset for place, offset, _ in self.kafka.counts[group] if place == partition}
        stored = self._stored[group, partition]
        newly = {offset for offset in void - stored if offset not in delivered and any(o > offset for o in settled)}
        stored |= newly
        return len(void - stored)

    def _compare_lags(self, group: str, unstored: Sequence[int]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            kafka, sharequeue = (side.offsets(group) for side in self._sides)
            wrong = [
                f"group {group} ({self._levels[group]}) in partition {partition}: {ours} in sharequeue, {theirs} in Kafka, "
                f"with at most {more} void offsets that it has not stored"
                for partition, (theirs, ours, more) in enumerate(zip(kafka, sharequeue, unstored, strict=True))
                if partition not in self._shortened and not fits(theirs, ours, more, self._begins[group, partition])
            ]
            if not wrong:
                break
            if time.monotonic() > deadline:
                raise Difference("; ".join(wrong))
            time.sleep(0.02)
        for partition, more in enumerate(unstored):
            if not more and partition not in self._shortened and kafka[partition] != NOTHING_STORED:
                self.exact += 1
                self.open_lags += sharequeue[partition].lag > 0

    def _compare_starts(self) -> None:
        ends = self.kafka.side.ends().log_end
        for group in self._groups:
            kafka, sharequeue = (side.offsets(group) for side in self._sides)
            wanted = [GroupOffsets(end - 1, 0) for end in ends], [GroupOffsets(end, 0) for end in ends]
            if (kafka, sharequeue) != wanted:
                raise Difference(f"group {group} has finished {ends}, but {kafka} in Kafka, {sharequeue} in sharequeue")


def fits(kafka: GroupOffsets, sharequeue: GroupOffsets, unstored: int, begin: int) -> bool:
    """Whether both groups, which begin at that offset, have the same lag, but for the void offsets that Kafka has not
    stored."""
    if kafka == NOTHING_STORED:
        return sharequeue.start_offset <= begin + unstored
    return 0 <= kafka.lag - sharequeue.lag <= unstored and kafka.start_offset <= sharequeue.start_offset

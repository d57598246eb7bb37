"""Which steps a seed draws, and how a group settles each delivery. No IO.

A script has one topic, three transactional producers and a producer without transactions, and three groups: the last
one begins at the end of the log, later than the others. Each value is unique. How a delivery is settled depends on the
group, the value and the delivery count alone: so it does not matter in which fetches, and to which members, the two
sides deliver.
"""

import random
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple
from zlib import crc32

Level = Literal["read_committed", "read_uncommitted"]
Settling = Literal["accept", "release", "reject", "keep"]
LEVELS: Final[tuple[Level, ...]] = ("read_committed", "read_uncommitted")
PRODUCERS: Final = ("ann", "bob", "cyd")
GROUPS: Final = ("one", "two", "new")
LATE: Final = GROUPS[-1]
MOST_PARTITIONS: Final = 4
MEMBERS: Final = 2
"""Of each group."""
LOCK_MS: Final = 600_000
"""Longer than a script takes on a busy machine. Sessions and transactions last as long."""
EXPIRIES: Final = 0.05
"""Before how many of the steps locks end."""


class Begin(NamedTuple):
    producer: str


class Produce(NamedTuple):
    """One batch. Without a producer it is in no transaction."""

    producer: str | None
    partition: int
    values: tuple[str, ...]


class End(NamedTuple):
    producer: str
    commit: bool


class Replace(NamedTuple):
    """A new producer with the same transactional id: it aborts the open transaction."""

    producer: str


class SetLevel(NamedTuple):
    group: str
    level: Level


class Fetch(NamedTuple):
    """One fetch, whose records are settled at once. The two sides may get different ones."""

    group: str
    member: int
    max_records: int
    record_limit: bool


class Leave(NamedTuple):
    """The members of a group close their sessions, which releases what they keep."""

    group: str


class Expire(NamedTuple):
    """A member of a group takes all that the group may get, and its locks end."""

    group: str


class Restart(NamedTuple):
    """Both sides crash, and come back. No record is held: Kafka does not store locks."""


class Delete(NamedTuple):
    """The first `part` of a partition's log is deleted, after a comparison."""

    partition: int
    part: float


class Start(NamedTuple):
    """The late group begins: it gets what is appended from now on."""


class Grow(NamedTuple):
    """The topic gets one more partition."""


class Remake(NamedTuple):
    """The topic is deleted, and another one gets its name. Then the members settle what they keep of the old one, which
    must be refused, and begin new sessions."""

    partitions: int


class Compare(NamedTuple):
    """Both sides deliver all that they have to deliver now, and are compared."""


Step = (
    Begin
    | Produce
    | End
    | Replace
    | SetLevel
    | Fetch
    | Leave
    | Expire
    | Restart
    | Delete
    | Start
    | Grow
    | Remake
    | Compare
)


class Script(NamedTuple):
    partitions: int
    steps: tuple[Step, ...]


def draw(seed: int, crashes: bool = False) -> Script:
    """The script of a seed. Its last steps end every transaction, and let go what is kept.

    `crashes`: both sides crash once, and before some steps the locks of a group end.
    """
    dice = random.Random(seed)
    partitions = dice.randint(1, 3)
    return Script(partitions, tuple(_steps(dice, partitions, crashes)))


def settling(group: str, value: str, delivery_count: int) -> Settling:
    """What the group does with this delivery of a record."""
    number = crc32(f"{group} {value}".encode())
    kind, more = number % 100, number // 100 % 4
    if kind < 50:
        return "accept"
    if kind < 72:
        return "release" if delivery_count <= more else ("accept" if kind < 62 else "reject")
    if kind < 78:
        return "reject"
    if kind < 84:
        return "release"  # until the limit
    return "keep" if delivery_count == 1 else "accept"


def flush(partition: int, number: int) -> str:
    """A value that every group accepts at its first delivery."""
    return next(
        value
        for tried in range(1000)
        if all(settling(group, value := f"end {partition} {number} {tried}", 1) == "accept" for group in GROUPS)
    )


def _expire(dice: random.Random, number: int, partitions: int, group: str) -> Iterator[Step]:
    yield Compare()
    yield Leave(group)
    yield Produce(None, dice.randrange(partitions), tuple(f"{number}.{place}" for place in (5, 6, 7)))
    yield Expire(group)


def _crash(dice: random.Random, partitions: int, opened: list[str], started: Sequence[str]) -> Iterator[Step]:
    """Crash both sides. Kafka forgets where the late group begins in a partition where it has settled nothing: so it
    settles a record in each of them, and no transaction is open that would hide it."""
    if LATE in started:
        yield from (End(producer, dice.random() < 0.6) for producer in opened)
        opened.clear()
        yield from (Produce(None, partition, (flush(partition, 0),)) for partition in range(partitions))
    yield Compare()
    yield from map(Leave, started)
    yield Restart()


def _steps(dice: random.Random, partitions: int, crashes: bool) -> Iterator[Step]:
    levels = [dice.choice(LEVELS) for _ in GROUPS]
    if "read_committed" not in levels:
        levels[0] = "read_committed"
    yield from map(SetLevel, GROUPS, levels)
    opened: list[str] = []
    started = list(GROUPS[:-1])
    steps = dice.randint(10, 30)
    start = dice.randrange(steps)
    crash = dice.randrange(steps) if crashes else None
    for number in range(steps):
        if number == start:
            yield Start()
            started.append(LATE)
        if crashes and dice.random() < EXPIRIES:
            yield from _expire(dice, number, partitions, dice.choice(started))
        if number == crash:
            yield from _crash(dice, partitions, opened, started)
        kind = dice.random()
        closed = [name for name in PRODUCERS if name not in opened]
        if kind < 0.15 and closed:
            opened.append(dice.choice(closed))
            yield Begin(opened[-1])
        elif kind < 0.5:
            producer = dice.choice(opened) if opened and dice.random() < 0.75 else None
            size = 1 if dice.random() < 0.4 else dice.randint(2, 5)
            values = tuple(f"{number}.{place}" for place in range(size))
            yield Produce(producer, dice.randrange(partitions), values)
        elif kind < 0.66 and opened:
            producer = opened.pop(dice.randrange(len(opened)))
            yield Replace(producer) if dice.random() < 0.15 else End(producer, dice.random() < 0.6)
        elif kind < 0.79:
            most = dice.choice((1, 2, 3, 7, 100))
            yield Fetch(dice.choice(started), dice.randrange(MEMBERS), most, dice.random() < 0.5)
        elif kind < 0.85:
            yield Compare()
        elif kind < 0.88:
            yield Compare()  # so that neither side has records left that it would show at one level alone
            yield SetLevel(dice.choice(started), dice.choice(LEVELS))
        elif kind < 0.91:
            yield Compare()  # so that both keep the same
            yield Leave(dice.choice(started))
        elif kind < 0.94 and partitions < MOST_PARTITIONS:
            partitions += 1
            yield Grow()
        elif kind < 0.97:
            yield from (End(producer, dice.random() < 0.6) for producer in opened)
            opened.clear()
            yield Compare()
            partitions = dice.randint(1, 3)
            yield Remake(partitions)
        else:
            yield Compare()
            yield Delete(dice.randrange(partitions), dice.random())
    yield Compare()
    yield from (End(producer, dice.random() < 0.6) for producer in opened)
    yield Compare()
    yield from map(Leave, GROUPS)
    yield Compare()

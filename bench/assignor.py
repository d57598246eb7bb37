"""`python -m bench.assignor`: the cost of assigning 10,000 partitions to 1,000 members, in the worst known cases.

It prints CPU seconds for six cases: a first assignment, the same again, one more member, a tenth fewer members, the
subscriptions exchanged among all members, and an earlier assignment in random order.
"""

import random
import time
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.table import Table
from sharequeue_coordinator.share_group.assignor import Assignment, assign

MEMBERS: Final = 1_000
PARTITIONS: Final = 10_000
SIZES: Final = (1_000, 100, 10)
"""Partitions of a topic."""

Subscriptions = dict[str, frozenset[str]]


def members(wanted: list[frozenset[str]]) -> Subscriptions:
    return {f"member-{number:04}": topics for number, topics in enumerate(wanted)}


def shapes(topics: list[str], dice: random.Random) -> Iterator[tuple[str, Subscriptions]]:
    """Subscriptions of all members, by name."""
    every = frozenset(topics)
    yield "all want all", members([every] * MEMBERS)
    yield "all but one want all", members([frozenset(topics[1:]), *[every] * (MEMBERS - 1)])
    yield "each lacks one topic", members([every - {topics[number % len(topics)]} for number in range(MEMBERS)])
    kinds = [every.difference(topics[number::10]) for number in range(10)]
    yield "ten kinds of members", members([kinds[number % 10] for number in range(MEMBERS)])
    yield (
        "each wants a random half",
        members([frozenset(dice.sample(topics, len(topics) // 2)) for _ in range(MEMBERS)]),
    )


def seconds(wanted: Subscriptions, assignable: dict[str, range], before: dict[str, Assignment]) -> tuple[float, dict]:
    started = time.process_time()
    target = assign(wanted, assignable, before)
    return time.process_time() - started, target


def disorder(wanted: Subscriptions, size: int, dice: random.Random) -> dict[str, Assignment]:
    """An earlier assignment in random order: every member has one or two partitions of each topic."""
    some = [frozenset(dice.sample(range(size), dice.choice((1, 1, 2)))) for _ in range(1_000)]
    return {
        member: dict(zip(topics, dice.choices(some, k=len(topics)), strict=True)) for member, topics in wanted.items()
    }


def main() -> None:
    dice = random.Random(1)
    table = Table(title=f"{MEMBERS:,} members, {PARTITIONS:,} partitions: CPU seconds")
    for column in (
        "topics",
        "subscriptions",
        "first",
        "again",
        "one more",
        "a tenth fewer",
        "exchanged",
        "disorder",
    ):
        table.add_column(column, justify="left" if column == "subscriptions" else "right")
    for size in SIZES:
        topics = [f"topic-{number:05}" for number in range(PARTITIONS // size)]
        assignable = dict.fromkeys(topics, range(size))
        for shape, wanted in shapes(topics, dice):
            first, target = seconds(wanted, assignable, {})
            again, _ = seconds(wanted, assignable, target)
            more, _ = seconds({"another": wanted["member-0500"], **wanted}, assignable, target)
            fewer = {member: topics for member, topics in wanted.items() if not member.endswith("7")}
            less, _ = seconds(fewer, assignable, target)
            wishes = dice.sample(list(wanted.values()), MEMBERS)
            exchanged, _ = seconds(dict(zip(wanted, wishes, strict=True)), assignable, target)
            disordered, _ = seconds(wanted, assignable, disorder(wanted, size, dice))
            measured = (first, again, more, less, exchanged, disordered)
            table.add_row(f"{len(topics):,} x {size:,}", shape, *[f"{some:.2f}" for some in measured])
    Console().print(table)


if __name__ == "__main__":
    main()

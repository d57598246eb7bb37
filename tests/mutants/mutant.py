"""Faults to plant, one at a time: the file, the old text, the new text, and the rule that breaks.

Rules are numbered as in KIP-932's description of a share-partition: 3 transitions, 4 loading, 5 next fetch offset, 6
acquiring, 7 throttling, 8 acknowledging, 9 persisting, 10 lock timeout, 11 release, 12 start offset, 13 aborted
records, 14 delivery-complete count, 15 limits, 16 leader change; 9.x is the share coordinator, 11.x the dead-letter
queue. Those of share groups say so in their file.
"""

from typing import NamedTuple

GATEWAY = "sharequeue_gateway"
COORDINATOR = "sharequeue_share_coordinator"
GROUP_COORDINATOR = "sharequeue_coordinator"
PIPELINE = "sharequeue_pipeline"
SHARED = "sharequeue"


class Mutant(NamedTuple):
    """One fault. `old` stands exactly once in the file."""

    file: str
    old: str
    new: str
    rule: str


def gateway(module: str, *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"{GATEWAY}/{module}.py", old, new, rule) for rule, old, new in rows]


def coordinator(module: str, *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"{COORDINATOR}/{module}.py", old, new, rule) for rule, old, new in rows]


def group_coordinator(module: str, *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"{GROUP_COORDINATOR}/{module}.py", old, new, rule) for rule, old, new in rows]


def pipeline(module: str, *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"{PIPELINE}/{module}.py", old, new, rule) for rule, old, new in rows]


def shared(module: str, *rows: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(f"{SHARED}/{module}.py", old, new, rule) for rule, old, new in rows]

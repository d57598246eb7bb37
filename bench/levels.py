"""What read_committed costs a group that meets no transaction: W2 and W3 of three groups, for `bench.transactions`.

    without   read_uncommitted
    control   read_uncommitted, too: how far two equal groups are apart on this machine, in this run
    with      read_committed

The turns are short, so that the load of the machine is about the same for the three runs of a turn. They take all six
orders one after another, so each run follows each other one equally often. The result is the median ratio of the runs
of a turn, with its interval. If the interval of the control is wide, or does not hold 1, the machine was not quiet.
"""

import itertools
import math
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from bench.processes import thread_cpu_seconds
from bench.queues import ShareQueue, new_name
from bench.workloads import end_to_end, random_values
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import UpdateShareGroupConfigRequest
from sharequeue.stack.stack import Stack
from sharequeue_http.calling.caller import Client

VALUES: Final = random_values(98)
KINDS: Final = {"without": "read_uncommitted", "control": "read_uncommitted", "with": "read_committed"}
ORDERS: Final = tuple(itertools.permutations(KINDS))
WARM: Final = 1
"""Turns that are not measured."""


class Ratio(NamedTuple):
    """The median of ratios, and an interval that holds the true one in 19 of 20 runs."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


class Compared(NamedTuple):
    """Medians of both levels, and how the read_committed group and the control compare with `without`."""

    without: float
    with_it: float
    ratio: Ratio
    control: Ratio


class Costs(NamedTuple):
    """`rates`: records per second. `cpu`: microseconds of CPU of the gateway's event loop for a record."""

    rates: Compared
    cpu: Compared


class Run(NamedTuple):
    rate: float
    cpu_us: float


def median_ratio(without: Sequence[float], with_it: Sequence[float]) -> Ratio:
    """Compare runs in pairs. The interval comes from the sign test: it assumes nothing about the noise."""
    ratios = sorted(b / a for a, b in zip(without, with_it, strict=True))
    outside = max(0, math.floor((len(ratios) - 1.96 * math.sqrt(len(ratios))) / 2))
    return Ratio(median(ratios), ratios[outside], ratios[-1 - outside])


def compared(without: Sequence[float], control: Sequence[float], with_it: Sequence[float]) -> Compared:
    return Compared(median(without), median(with_it), median_ratio(without, with_it), median_ratio(without, control))


async def levels(stack: Stack, name: str, turns: int, scale: float) -> Costs:
    """W2 or W3 of a group of each of KINDS, each with a topic of its own."""
    topics = {kind: new_name() for kind in KINDS}
    client = Client(stack.url, deadline_s=60)
    for kind, level in KINDS.items():
        settings = UpdateShareGroupConfigRequest(config={"share.isolation.level": level})
        await client.call(apis.UPDATE_SHARE_GROUP_CONFIG, settings, path={"group": topics[kind]})
    await client.close()
    found: dict[str, list[Run]] = {kind: [] for kind in KINDS}
    for turn in range(WARM + turns):
        for kind in ORDERS[turn % len(ORDERS)]:
            run = await cycle(stack, name, topics[kind], scale)
            if turn >= WARM:
                found[kind].append(run)
    rates = compared(*([run.rate for run in found[kind]] for kind in KINDS))
    return Costs(rates, compared(*([run.cpu_us for run in found[kind]] for kind in KINDS)))


async def cycle(stack: Stack, name: str, topic: str, scale: float) -> Run:
    """One run of the group that is called as its topic."""

    async def connect() -> ShareQueue:
        return await ShareQueue.connect(stack.url, topic)

    pid = stack.service("gateway").pid
    used = thread_cpu_seconds(pid)
    if name == "W3":
        records = round(3_000 * scale)
        rate = await end_to_end(connect, VALUES, records, batch=10, producers=4, consumers=8)
    else:
        records = round(10_000 * scale)
        rate = await end_to_end(connect, VALUES, records, batch=100)
    return Run(rate, 1e6 * (thread_cpu_seconds(pid) - used) / records)

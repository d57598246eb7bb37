"""`python -m bench.kafka_log`: the record log in Kafka beside the one in PostgreSQL and beside Kafka's share consumer.

One broker serves them all. The ways of a comparison take turns in each round, in the other order in every second round.
A comparison is the median of the ratios of the rounds, with its interval. Thousands of appends go before, because the
JVM of a new broker still compiles, and the first rounds do not count. Nor does a round that something else disturbed,
as `python -m bench` sees it: it is named.

Beside PostgreSQL each service is a program of its own, because the gateway's CPU is compared. Beside Kafka's clients
they are one process, as `sharequeue up` starts them. Kafka's share consumer gets 100 records a poll, as a fetch here;
by default it gets whole batches of the producer. They consume records that are all there before, and then those of W2,
which produces beside.

Kafka's commitSync waits for its outcome, as a fetch and then an acknowledgement do. A consumer here may also send its
next fetch beside the acknowledgement, which no call of Kafka's consumer does. In both forms it knows the outcome of a
batch before it handles the next one. Kafka's commitAsync goes on, and a callback hears the outcome later. The like of
it is a fetch that carries the acknowledgements of the batch before: its answer has their outcomes.

Exit code 1: a bar does not hold, or fewer than two thirds of the rounds of a comparison are clean. Needs Java 17 with
Maven, as `bench.kafka`.
"""

import contextlib
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click
import uvloop

from bench.__main__ import CLEAN, watched
from bench.levels import median_ratio
from bench.record_logs import (
    BACKLOG,
    BESIDE_KAFKA,
    PROCESSES,
    PRODUCES,
    W2,
    W3,
    Load,
    RecordLog,
    Run,
    fill,
    native,
)
from sharequeue.stack.stack import temporary_stack
from tests.kafka import kafka

RATE, GATEWAY = "records/s", "gateway's CPU for a record, µs"
HERE, POSTGRES = "the log in Kafka", "the log in PostgreSQL"
TOGETHER = "the log in Kafka, acknowledgements with the next fetch"
AHEAD = "the log in Kafka, the next fetch beside the acknowledgement"
SYNC, ASYNC = "Kafka's share consumer, commitSync", "Kafka's share consumer, commitAsync"
KEYED, BEHIND = ", with keys", ", behind the backlog"
PARTS: Final = ("share-consumer", "share-consumer-W2", "W2", "W3", "produce", "backlog")
WARM_RUNS: Final = 20
"""Runs of W3 before all rounds: some 12,000 Produces. The broker's CPU for one falls to a sixth within 7,500."""


class Bar(NamedTuple):
    """`figure` of `way`, as a multiple of `beside`. `least`, `most`: the bar; none: the ratio is told."""

    way: str
    beside: str
    figure: str = RATE
    least: float | None = None
    most: float | None = None

    def holds(self, ratio: float) -> bool:
        return (self.least is None or ratio >= self.least) and (self.most is None or ratio <= self.most)

    def __str__(self) -> str:
        return f"at least {self.least:g}" if self.least else f"at most {self.most:g}" if self.most else ""


class Comparison(NamedTuple):
    """Ways to do the same, by name, and the bars of their ratios."""

    what: str
    ways: dict[str, Callable[[], Awaitable[Run]]]
    bars: Sequence[Bar]


Measured = dict[str, list[Run | None]]
"""The runs of a comparison by way, one for each round. None: the round was disturbed."""


def comparisons(
    up: RecordLog, here: RecordLog, postgres: RecordLog, broker: kafka.Kafka, scale: float
) -> Iterator[tuple[str, Comparison]]:
    """All comparisons, with their parts. `up`: `here` in one process."""

    def part(load: Load) -> Load:
        return load._replace(records=max(load.batch, round(load.records * scale)))

    beside, w2 = part(BESIDE_KAFKA), part(W2)

    def consumers(load: Load) -> dict[str, Callable[[], Awaitable[Run]]]:
        return {
            HERE: lambda: up.run(load),
            AHEAD: lambda: up.run(load._replace(ahead=True)),
            TOGETHER: lambda: up.run(load._replace(together=True)),
            SYNC: lambda: native(broker, load, "sync"),
            ASYNC: lambda: native(broker, load, "async"),
        }

    bars = [Bar(HERE, SYNC), Bar(AHEAD, SYNC, least=2.5), Bar(TOGETHER, ASYNC, least=1.5)]
    yield "share-consumer", Comparison("fetch and acknowledge 200,000 records", consumers(beside), bars)
    bars = [Bar(way, beside) for way, beside in ((HERE, SYNC), (AHEAD, SYNC), (TOGETHER, ASYNC))]
    yield "share-consumer-W2", Comparison("W2 of 200,000 records", consumers(beside._replace(producers=1)), bars)
    for name, load in (("W2", w2), ("W3", part(W3))):
        both = {HERE: lambda load=load: here.run(load), POSTGRES: lambda load=load: postgres.run(load)}
        bars = [Bar(HERE, POSTGRES, least=0.9), Bar(HERE, POSTGRES, GATEWAY, most=1.2)]
        yield name, Comparison(name, both, bars)
    for name, each in PRODUCES.items():
        load = part(each)
        ways: dict[str, Callable[[], Awaitable[Run]]] = {
            HERE: lambda load=load: here.run(load),
            HERE + KEYED: lambda load=load: here.run(load, keyed=True),
            POSTGRES: lambda load=load: postgres.run(load),
            POSTGRES + KEYED: lambda load=load: postgres.run(load, keyed=True),
        }
        pairs = ((HERE, POSTGRES), (HERE + KEYED, POSTGRES + KEYED), (HERE + KEYED, HERE))
        bars = [Bar(*pair, figure) for figure in (RATE, GATEWAY) for pair in pairs]
        yield "produce", Comparison(f"produce, {name}", ways, bars)
    ways = {HERE: lambda: here.run(w2), HERE + BEHIND: lambda: here.run(w2, topic=BACKLOG)}
    bars = [Bar(HERE + BEHIND, HERE, least=0.9), Bar(HERE + BEHIND, HERE, GATEWAY)]
    yield "backlog", Comparison("W2 and a backlog", ways, bars)


async def warm_up(log: RecordLog) -> None:
    """Have the JVM of a new broker compile what appends and reads run."""
    for _ in range(WARM_RUNS):
        await log.run(W3)


async def measure(chosen: Sequence[Comparison], warm: int, rounds: int, busy: bool) -> list[Measured]:
    """Run all rounds, `warm` of them before. `busy`: disturbed ones count."""
    found: list[Measured] = [{way: [] for way in each.ways} for each in chosen]
    for number in range(-warm, rounds):
        for each, runs in zip(chosen, found, strict=True):
            for way in list(each.ways)[:: -1 if number % 2 else 1]:
                run, disturbed = await watched(each.ways[way]())
                note = f" (disturbed: {disturbed})" if disturbed else ""
                named = "warming up" if number < 0 else f"round {number + 1}"
                click.echo(f"{named}: {each.what}: {way}: {run.rate:,.0f}/s{note}", err=True)
                if number >= 0:
                    runs[way].append(None if disturbed and not busy else run)
    return found


def figures(runs: Sequence[Run], figure: str) -> list[float]:
    return [run.rate if figure == RATE else run.cpu_us["gateway"] for run in runs]


def show(chosen: Sequence[Comparison], found: Sequence[Measured], rounds: int) -> bool:
    """Print what was compared. Returns: whether the bars hold, on enough clean rounds."""
    held = True
    click.echo("| measured | | beside | | ratio | clean rounds | bar |\n| --- | ---: | --- | ---: | ---: | --- | --- |")
    for each, runs in zip(chosen, found, strict=True):
        for bar in each.bars:
            pairs = [(one, other) for one, other in zip(runs[bar.way], runs[bar.beside], strict=True) if one and other]
            few = len(pairs) < CLEAN * rounds
            held &= not few
            clean = f"{len(pairs)} of {rounds}{': too few' if few else ''}"
            if not pairs:
                click.echo(f"| {each.what}, {bar.figure}: {bar.way} | | {bar.beside} | | | {clean} | {bar} |")
                continue
            mine, theirs = (figures(side, bar.figure) for side in zip(*pairs, strict=True))
            ratio = median_ratio(theirs, mine)
            missed = "" if bar.holds(ratio.median) else ", **missed**"
            held &= not missed
            digits = 0 if bar.figure == RATE else 1
            click.echo(
                f"| {each.what}, {bar.figure}: {bar.way} | {statistics.median(mine):,.{digits}f} | {bar.beside}"
                f" | {statistics.median(theirs):,.{digits}f} | {ratio} | {clean} | {bar}{missed} |"
            )
    return held


def show_costs(chosen: Sequence[Comparison], found: Sequence[Measured]) -> None:
    """Print the CPU of each process for a record: medians."""
    click.echo(f"\n| CPU for a record, µs | {' | '.join(PROCESSES)} |\n| --- | {'---: | ' * len(PROCESSES)}")
    for each, runs in zip(chosen, found, strict=True):
        for way, of_way in runs.items():
            clean = [run.cpu_us for run in of_way if run]
            if not clean:
                continue
            cells = [
                f"{statistics.median(cpu[name] for cpu in clean):,.1f}" if name in clean[0] else ""
                for name in PROCESSES
            ]
            click.echo(f"| {each.what}: {way} | {' | '.join(cells)} |")


@click.command()
@click.option("--rounds", default=7, show_default=True)
@click.option("--warm", default=2, show_default=True, help="rounds before these, which do not count")
@click.option("--scale", default=1.0, show_default=True, help="fraction of the records of a full run")
@click.option("--backlog", default=0, show_default=True, help="records of the backlog; 0: that part is left out")
@click.option("--busy", is_flag=True, help="count disturbed rounds: for CPU on a machine that others use")
@click.option("--only", multiple=True, type=click.Choice(PARTS), help="these parts alone")
def main(rounds: int, warm: int, scale: float, backlog: int, busy: bool, only: tuple[str, ...]) -> None:
    """Compare the log in Kafka with the log in PostgreSQL, and with Kafka's own share consumer."""
    kafka.make()
    with contextlib.ExitStack() as after:
        home = Path(after.enter_context(tempfile.TemporaryDirectory(prefix="sharequeue-bench-", dir="/var/tmp")))
        broker = kafka.Kafka(home / "kafka")
        after.callback(broker.close)
        on_kafka = {"kafka": broker.address}
        up = RecordLog(after.enter_context(temporary_stack(home / "up", one_process=True, **on_kafka)), broker)
        here = RecordLog(after.enter_context(temporary_stack(home / "here", **on_kafka)), broker)
        postgres = RecordLog(after.enter_context(temporary_stack(home / "postgres")))
        wanted = [part for part in only or PARTS if part != "backlog" or backlog]
        chosen = [each for part, each in comparisons(up, here, postgres, broker, scale) if part in wanted]
        if "backlog" in wanted:
            uvloop.run(fill(broker, backlog, lambda written: click.echo(f"{written:,} of the backlog", err=True)))
        uvloop.run(warm_up(here))
        found = uvloop.run(measure(chosen, warm, rounds, busy))
    held = show(chosen, found, rounds)
    show_costs(chosen, found)
    if not held:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

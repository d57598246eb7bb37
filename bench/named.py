"""`python -m bench.named`: the gateway's CPU for a fetch that names 1, 100 or 10,000 partitions, in turns.

    one ready    a batch of 100 records in one of the partitions; without a share session, and in one
    all ready    a backlog in each partition: in memory; or in the database alone, so that each fetch reads it
    idle         no records, and the fetch does not wait
    waiting      the fetch waits, and is woken by a produce; the produce is counted, too

Every share-partition is loaded before. The cells are medians of the turns, in microseconds. The rows are Markdown, for
docs/benchmarks.md. Exits 1 if 10,000 partitions cost more than `MOST_RATIO`; what is not in memory has no bar. One read
of a single partition brings the records of many fetches, and one of each of 10,000 partitions those of one fetch.
"""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

import click
from sharequeue_gateway.record_log.removing.purging import PURGE_PAUSE_S

from bench.processes import thread_cpu_seconds
from bench.streams import Connection
from bench.workloads import random_values
from sharequeue.stack.stack import Stack, temporary_stack

COUNTS: Final = (1, 100, 10_000)
LOADED_AT_ONCE: Final = 500
FILLED_AT_ONCE: Final = 1000
RECORDS: Final = 100
FEW: Final = 10
"""Records of a batch where each partition has some: the gateway has those of 10,000 partitions in memory."""
MOST_RATIO: Final = 1.3
NOT_IN_MEMORY: Final = "all ready, not in memory"
FORGOTTEN_S: Final = 2 * PURGE_PAUSE_S + 1
"""After this time the gateway has forgotten a partition that nobody reads."""
VALUES: Final = [{"value": value} for value in random_values(98)(RECORDS)]


class Worker:
    """Fetches from all partitions of a topic, in a group of its name."""

    def __init__(self, stack: Stack, name: str, partitions: int, *, session: bool = False) -> None:
        self._pid = stack.service("gateway").pid
        self._stack, self._name, self._partitions = stack, name, partitions
        self._epoch = 0 if session else None

    async def start(self) -> None:
        """Make the topic, and load all of it."""
        await self.connect()
        await self._call("topics", name=self._name, partitions=self._partitions)
        for _ in range(self._partitions // LOADED_AT_ONCE + 2):
            await self._call(f"share-groups/{self._name}/fetch", topics=[self._name], member_id="m", max_wait_ms=0)
        await self.fetch()

    async def connect(self) -> None:
        self._fetcher, self._producer = await Connection.open(self._stack), await Connection.open(self._stack)

    async def _call(self, path: str, **body: Any) -> Any:
        return json.loads(await self._fetcher.call("POST", f"/v1/{path}", body))

    async def produce(self, batch: int = RECORDS) -> None:
        path = f"/v1/topics/{self._name}/records"
        records = [{"partition": 0, **value} for value in VALUES[:batch]]
        await self._producer.call("POST", path, {"records": records})

    async def fill(self, batch: int = FEW) -> None:
        """Produce a batch of records to every partition."""
        for first in range(0, self._partitions, FILLED_AT_ONCE):
            partitions = range(first, min(first + FILLED_AT_ONCE, self._partitions))
            records = [{"partition": partition, **value} for partition in partitions for value in VALUES[:batch]]
            produced = await self._call(f"topics/{self._name}/records", records=records)
            assert len(produced["records"]) == len(records)

    async def fetch(self, max_wait_ms: int = 0, max_records: int = RECORDS) -> list[dict[str, Any]]:
        named: dict[str, Any] = {} if self._epoch else {"topics": [self._name]}
        if self._epoch is not None:
            named["share_session_epoch"] = self._epoch
            self._epoch += 1
        path, limits = f"share-groups/{self._name}/fetch", {"max_wait_ms": max_wait_ms, "max_records": max_records}
        answer = await self._call(path, member_id="m", **limits, **named)
        return [{**batch, "records": [], "type": "accept"} for batch in answer["batches"]]

    async def measured(self, work: Awaitable[list[dict[str, Any]]], records: int = RECORDS) -> float:
        """Fetch so many records, and accept them. Returns: the microseconds of the gateway's CPU for the fetch."""
        before = thread_cpu_seconds(self._pid)
        fetched = await work
        took = thread_cpu_seconds(self._pid) - before
        assert sum(batch["last_offset"] + 1 - batch["first_offset"] for batch in fetched) == records
        if fetched:
            await self.accept(fetched)
        return took * 1e6

    async def accept(self, fetched: list[dict[str, Any]]) -> None:
        await self._call(f"share-groups/{self._name}/acknowledge", member_id="m", acknowledgements=fetched)

    async def one_ready(self) -> float:
        """Produce before: the gateway then ends what the acknowledgement before has left to do."""
        await self.produce()
        return await self.measured(self.fetch())

    async def few_ready(self) -> float:
        """As `one_ready`, with fewer records."""
        await self.produce(FEW)
        return await self.measured(self.fetch(max_records=FEW), FEW)

    async def ready(self) -> float:
        return await self.measured(self.fetch(), 0)

    async def waiting(self) -> float:
        async def woken() -> list[dict[str, Any]]:
            fetch = asyncio.ensure_future(self.fetch(10_000))
            await asyncio.sleep(0.02)  # until it waits
            await self.produce()
            return await fetch

        return await self.measured(woken())


CASES: Final[dict[str, tuple[bool, Callable[[Worker], Awaitable[float]]]]] = {
    "one ready": (False, Worker.one_ready),
    "one ready, in a session": (True, Worker.one_ready),
    "idle": (False, Worker.ready),
    "idle, in a session": (True, Worker.ready),
    "waiting": (False, Worker.waiting),
    "all ready": (False, Worker.few_ready),
    NOT_IN_MEMORY: (False, Worker.few_ready),
}


async def compare(stack: Stack, case: str, turns: int) -> float:
    """Print a row. Returns: 10,000 partitions by one."""
    session, work = CASES[case]
    workers = [Worker(stack, f"{case.replace(', ', '-').replace(' ', '-')}-{n}", n, session=session) for n in COUNTS]
    for worker in workers:
        await worker.start()
        if case.startswith("all ready"):
            await worker.fill(1)
            while fetched := await worker.fetch(max_records=10_000):  # the first records of each write a floor
                await worker.accept(fetched)
    for worker in workers if case.startswith("all ready") else ():
        await worker.connect()
        await worker.fill()
    if case == NOT_IN_MEMORY:
        await asyncio.sleep(FORGOTTEN_S)
    for worker in workers:  # the gateway closes connections that were idle for long
        await worker.connect()
    taken: list[list[float]] = [[] for _ in COUNTS]
    for turn in range(turns + 10):
        for worker, times in zip(workers, taken, strict=True):
            took = await work(worker)
            if turn >= 10:  # the first ones warm up
                times.append(took)
    cells = [median(times) for times in taken]
    click.echo(f"| {case} | {' | '.join(f'{cell:.0f}' for cell in cells)} | {cells[-1] / cells[0]:.2f} |")
    return cells[-1] / cells[0]


@click.command()
@click.option("--turns", default=100, show_default=True)
@click.option("--only", type=click.Choice(list(CASES)), multiple=True)
def main(turns: int, only: tuple[str, ...]) -> None:
    """Measure fetches by the partitions that they name."""
    click.echo("| fetch | 1 | 100 | 10,000 | ratio |\n| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="sharequeue-bench-") as home, temporary_stack(Path(home) / "s") as stack:

        async def run() -> list[float]:
            ratios = {case: await compare(stack, case, turns) for case in only or CASES}
            return [ratio for case, ratio in ratios.items() if case != NOT_IN_MEMORY]

        if max(asyncio.run(run()), default=0) > MOST_RATIO:
            raise SystemExit(1)


if __name__ == "__main__":
    main()

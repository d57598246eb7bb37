"""Consume, transform and produce, exactly once, while the services and the stores are killed with SIGKILL."""

import asyncio
import time
from collections import Counter

import pytest

from sharequeue.stack.stack import Stack
from tests.chaos.clerks import GROUP, ORDERS, SETTINGS, Clerk, Customer, lag
from tests.chaos.clerks import PARTITIONS as OF_ORDERS
from tests.chaos.clients import Gateways
from tests.chaos.history import History
from tests.chaos.ledgers import LEDGERS, PARTITIONS, Auditor, ledger_of
from tests.chaos.nemesis import Nemesis, plan

RUN_S, FINISH_S = 120.0, 120.0


class Office:
    """A customer, a clerk for each ledger, and an auditor of the ledgers."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self.gateways = Gateways(stack.urls, f"office {seed}")
        self.customer = Customer(Gateways(stack.urls, f"customer {seed}"), seed)
        self.clerks = [Clerk(n, Gateways(stack.urls, f"clerk {n} {seed}"), seed) for n in range(LEDGERS)]
        self.auditor = Auditor(Gateways(stack.urls, f"auditor {seed}"), str(seed))

    async def open(self) -> None:
        for name, partitions in [(ORDERS, OF_ORDERS), *((ledger_of(n), PARTITIONS) for n in range(LEDGERS))]:
            await self.gateways.until_answered("POST", "/v1/topics", {"name": name, "partitions": partitions})
        await self.gateways.until_answered("PATCH", f"/v1/share-groups/{GROUP}/config", {"config": SETTINGS})

    async def close(self) -> None:
        of_clerks = [clerk.gateways for clerk in self.clerks]
        for gateways in (self.gateways, self.customer.gateways, *of_clerks, self.auditor.gateways):
            await gateways.close()

    async def in_both_ways(self) -> None:
        """Let them go on until orders were booked in both ways: a busy machine takes longer."""
        until_s = time.monotonic() + FINISH_S
        while not all(self.ways[way] for way in ("committed in a transaction", "in one call")):
            assert time.monotonic() < until_s, f"orders are booked in one way alone: {self.ways}"
            await asyncio.sleep(0.1)

    @property
    def ways(self) -> "Counter[str]":
        return sum((clerk.ways for clerk in self.clerks), Counter())

    async def finish(self) -> None:
        """Wait until all orders are booked, as long as some are. The clerks go on."""
        until_s, least = time.monotonic() + FINISH_S, float("inf")
        while left := await lag(self.gateways):
            if left < least:
                until_s, least = time.monotonic() + FINISH_S, left
            assert time.monotonic() < until_s, f"{left} orders are not finished"
            await asyncio.sleep(0.3)

    async def booked(self) -> "Counter[tuple[int, int, int]]":
        """All committed entries of all ledgers, once nothing is held back."""
        found: Counter[tuple[int, int, int]] = Counter()
        until_s = time.monotonic() + FINISH_S
        for ledger in range(LEDGERS):
            while True:
                described = await self.gateways.until_answered("GET", f"/v1/topics/{ledger_of(ledger)}")
                entries = await self.auditor.audit(ledger, whole=True)
                bounds = described.document["partitions"]
                if entries is not None and all(b["last_stable_offset"] == b["log_end_offset"] for b in bounds):
                    break
                assert time.monotonic() < until_s, f"{ledger_of(ledger)} is held back: {bounds}"
                await asyncio.sleep(0.2)
            found.update((entry["transfer"], entry["account"], entry["amount"]) for entry in entries)
        return found


async def run(stack: Stack, seed: int) -> None:
    office = Office(stack, seed)
    nemesis = Nemesis(stack, History(limit=0, lock_s=0, groups=()))
    names = [service.name for service in stack.services]
    steps = [step._replace(action="kill") for step in plan(seed, RUN_S, names, stores=True, pause_s=1)]
    await office.open()
    supervising = asyncio.create_task(nemesis.supervise())
    ordering = asyncio.create_task(office.customer.run())
    working = [asyncio.create_task(clerk.run()) for clerk in office.clerks]
    auditing = asyncio.create_task(office.auditor.run())
    breaking = asyncio.create_task(nemesis.run(steps))
    tasks = [supervising, ordering, *working, auditing]
    try:
        done, _ = await asyncio.wait([breaking, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # of a task that ended early: what it found
        await breaking
        await office.in_both_ways()
        office.customer.stopping = True
        await ordering
        finishing = asyncio.create_task(office.finish())
        done, _ = await asyncio.wait([finishing, *working, auditing], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        await finishing
        for clerk in office.clerks:
            clerk.stopping = True
        await asyncio.gather(*working)
        auditing.cancel()
        await asyncio.wait([auditing])
        booked, ordered = await office.booked(), office.customer.books()
    finally:
        for task in (breaking, *tasks):
            task.cancel()
        await asyncio.gather(breaking, *tasks, return_exceptions=True)
        await office.close()
    print(
        f"seed {seed}: {len(steps)} kills, {len(office.customer.orders)} orders, {dict(office.ways)}, {office.auditor.audits} audits"
    )
    assert not booked - ordered, f"booked twice, or by nobody: {booked - ordered}"
    assert not ordered - booked, f"settled and not booked: {ordered - booked}"
    assert not nemesis.complaints, "\n".join(nemesis.complaints)


@pytest.mark.soak
def test_each_order_is_booked_once_while_services_and_stores_are_killed(cluster_with_stores: Stack, seed: int) -> None:
    asyncio.run(run(cluster_with_stores, seed))

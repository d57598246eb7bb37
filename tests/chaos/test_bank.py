"""A bank keeps its money while the services, and then the stores too, are killed with SIGKILL."""

import asyncio
import time

import pytest

from sharequeue.stack.stack import Stack
from tests.chaos.bank import ACCOUNTS, OPENING, PATIENCE_S, Bank
from tests.chaos.history import History
from tests.chaos.nemesis import Nemesis, plan

SHORT_S, LONG_S = 8.0, 120.0


async def enough(bank: Bank) -> None:
    """Let them go on until there is something to judge: a busy machine takes longer."""
    until_s = time.monotonic() + PATIENCE_S
    while min(bank.committed, bank.auditors[0].audits) < 4:
        assert time.monotonic() < until_s, "nothing is committed or audited"
        await asyncio.sleep(0.1)


async def run(stack: Stack, seed: int, seconds: float, *, stores: bool) -> None:
    bank = Bank(stack, seed)
    nemesis = Nemesis(stack, History(limit=0, lock_s=0, groups=()))
    names = [service.name for service in stack.services]
    steps = [step._replace(action="kill") for step in plan(seed, seconds, names, stores=stores, pause_s=1)]
    await bank.open()
    supervising = asyncio.create_task(nemesis.supervise())
    tellers = [asyncio.create_task(teller.run()) for teller in bank.tellers]
    auditors = [asyncio.create_task(auditor.run()) for auditor in bank.auditors]
    breaking = asyncio.create_task(nemesis.run(steps))
    tasks = [supervising, *tellers, *auditors]
    try:
        done, _ = await asyncio.wait([breaking, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # of a task that ended early: what it found
        await breaking
        await enough(bank)
        for teller in bank.tellers:
            teller.stopping = True
        await asyncio.gather(*tellers)
        for auditor in auditors:
            auditor.cancel()
        await asyncio.wait(auditors)
        balances = await bank.balance()
    finally:
        for task in (breaking, *tasks):
            task.cancel()
        await asyncio.gather(breaking, *tasks, return_exceptions=True)
        await bank.close()
    told = [state for teller in bank.tellers for state in teller.told.values()]
    audits, zombies = (sum(each.audits for each in bank.auditors), sum(each.zombies for each in bank.tellers))
    print(
        f"seed {seed}: {len(steps)} kills, {told.count('committed')} transactions committed, {told.count('aborted')} not, "
        f"{zombies} zombies, {audits} audits"
    )
    assert sum(balances.values()) == ACCOUNTS * OPENING
    assert len(balances) == ACCOUNTS
    assert not nemesis.complaints, "\n".join(nemesis.complaints)


def test_no_money_is_lost_or_made_while_services_are_killed(cluster: Stack, seed: int) -> None:
    asyncio.run(run(cluster, seed, SHORT_S, stores=False))


@pytest.mark.soak
def test_no_money_is_lost_or_made_while_services_and_stores_are_killed(cluster_with_stores: Stack, seed: int) -> None:
    asyncio.run(run(cluster_with_stores, seed, LONG_S, stores=True))

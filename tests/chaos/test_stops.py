"""A machine that stands still with all its processes, and one whose monotonic clock stood still while it slept."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
import psutil
import pytest

from sharequeue.stack.stack import Stack
from tests.chaos.checker import check, report
from tests.chaos.run import Run

pytestmark = pytest.mark.soak

BEFORE_S, BEHIND_S = 3.0, 5.0
TIMES = """
SELECT format('UPDATE %I.%I SET ', n.nspname, c.relname)
  || string_agg(format('%1$I = %1$I - make_interval(secs => $1)', a.attname), ', ')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE n.nspname IN ('groups', 'log', 'share_state') AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND a.atttypid = 'timestamptz'::regtype AND a.attnum > 0
GROUP BY n.nspname, c.relname
"""


def judge(stack: Stack, seed: int, stop: Callable[[], Awaitable[None]], stops: int) -> None:
    """Break the stack so many times while clients work, then let them finish."""

    async def go() -> Run:
        run = Run(stack, seed, BEFORE_S, stores=False, resets=1)
        run.steps = []

        async def interrupt() -> None:
            for _ in range(stops):
                await asyncio.sleep(BEFORE_S)
                await stop()
                await asyncio.sleep(BEHIND_S)

        run.meanwhile = interrupt
        await run.run()
        return run

    run = asyncio.run(go())
    violations = check(run.history)
    assert not violations, f"seed {seed}: {report(run.history, violations)}"
    assert not run.complaints, f"seed {seed}: " + "\n".join(run.complaints)


@pytest.mark.parametrize(("still_s", "stops"), [(20.0, 1), (90.0, 20)], ids=["once", "again and again"])
def test_every_promise_holds_when_all_processes_stood_still(
    cluster_with_stores: Stack, seed: int, still_s: float, stops: int
) -> None:
    stack = cluster_with_stores
    stores = [store for store in (stack.postgres, stack.redis) if store is not None]
    assert len(stores) == 2

    async def stop() -> None:
        mothers = [each.pid for each in (*stack.services, *stores)]
        processes = [each for pid in mothers for each in (psutil.Process(pid), *psutil.Process(pid).children())]
        try:
            for process in processes:
                process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(still_s)
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)

    judge(stack, seed, stop, stops)


def test_every_promise_holds_when_only_postgresqls_clock_went_on(cluster: Stack, database_url: str, seed: int) -> None:
    """As after a sleep of the machine. All times in the tables move back instead of PostgreSQL's clock on, so leases
    that the services believe in are over, and others may take them."""

    async def sleep() -> None:
        connection = await asyncpg.connect(database_url)
        try:
            while True:
                with suppress(asyncpg.DeadlockDetectedError):  # the services lock the same rows in another order
                    async with connection.transaction():
                        for (statement,) in await connection.fetch(TIMES):
                            await connection.execute(statement, 90)
                    return
        finally:
            await connection.close()

    judge(cluster, seed, sleep, 3)

"""Transactions that are begun and never ended: their time-outs leave no rows, no memory, and no disk."""

import asyncio
import ctypes
import os
import resource
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.transactions.transactions import NewTransaction, TransactionOptions

from sharequeue.protocol.errors import TransactionalIdNotFound
from sharequeue_http.forms.errors import ApiError
from tests.storage.database import session
from tests.storage.record_logs import PostgresRecordLogs

AT_ONCE = 40
TIMEOUT_MS = 1000
TABLES = (
    "transactions",
    "transaction_partitions",
    "aborted_transactions",
    "transaction_outcomes",
    "transactional_producers",
)


class Left(NamedTuple):
    """What is there when all are over. `disk`: bytes of the tables of transactions, after a vacuum;
    `memory`: of this process, without what malloc keeps for later."""

    rows: int
    disk: int
    memory: int


async def rows_of(admin: Any) -> int:
    return sum([await admin.fetchval(f"SELECT count(*) FROM log.{table}") for table in TABLES])


async def look(admin: Any) -> Left:
    for table in TABLES:
        await admin.execute(f"VACUUM log.{table}")  # as autovacuum does within a minute, after 2,000 dead rows
    disk = await admin.fetchval(
        "SELECT sum(pg_total_relation_size('log.' || name)) FROM unnest($1::text[]) AS t(name)", list(TABLES)
    )
    ctypes.CDLL(None).malloc_trim(0)
    resident = int(Path("/proc/self/statm").read_text().split()[1])  # noqa: ASYNC240 - of no disk
    return Left(await rows_of(admin), disk, resident * resource.getpagesize())


async def begin_many(logs: list[PostgresRecordLog], numbers: Iterator[int], named: int) -> int:
    """Begin a transaction for each number; one of `named` has a transactional id of its own. Returns: refusals."""
    refused = 0
    for number in numbers:
        if number % 50_000 == 49_999:
            print(f"{number + 1} have begun")
        log = logs[number % len(logs)]
        wish = NewTransaction(TIMEOUT_MS, None if number % named else f"producer-{number}")
        while True:
            try:
                await log.transactions.begin(wish)
                break
            except ApiError as error:
                # so many are open at a time, and no more; or a busy machine needs seconds for one begin: then the
                # database is not in time, or the name is not known any more
                if not (error.error.retriable or isinstance(error, TransactionalIdNotFound)):
                    raise
                refused += 1
                await asyncio.sleep(0.05)
    return refused


async def leave_open(
    database_url: str, many: int, kept_s: int, *, gateways: int, named: int
) -> tuple[Left, Left, int, float]:
    """Begin so many. Returns: what was there before and is there afterwards; refusals; seconds of the begins."""
    async with session(database_url) as admin, AsyncExitStack() as stack:
        name = database_url.rpartition("/")[2].partition("?")[0]
        await admin.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")  # a crash is not the test
        logs = [
            await stack.enter_async_context(
                PostgresRecordLogs(database_url).open(
                    connections=4, transactions=TransactionOptions(sweep_s=0.1 * gateways)
                )
            )
            for _ in range(gateways)
        ]

        async def begun(count: int, kept_s: int) -> int:
            for log in logs:
                log.database.outcomes = log.database.outcomes._replace(seconds=1, kept=kept_s)
            numbers = iter(range(count))
            refused = sum(await asyncio.gather(*(begin_many(logs, numbers, named) for _ in range(AT_ONCE))))
            async with asyncio.timeout(120 + 2 * kept_s):
                while await rows_of(admin):  # noqa: ASYNC110 - the sweeps end them
                    await asyncio.sleep(0.2)
            return refused

        await begun(500, 2)
        before = await look(admin)
        started_s = time.monotonic()
        refused = await begun(many, kept_s)
        return before, await look(admin), refused, time.monotonic() - started_s


def check(before: Left, after: Left, most_disk: int) -> None:
    """`most_disk`: PostgreSQL does not give back the pages of an index, so what was there at the same time counts."""
    assert (before.rows, after.rows) == (0, 0)
    assert after.disk <= before.disk + most_disk
    assert after.memory <= before.memory + (8 << 20)


@pytest.mark.soak
def test_begins_that_time_out_leave_nothing(database_url: str) -> None:
    before, after, *_ = asyncio.run(leave_open(database_url, 5000, 2, gateways=2, named=2))
    check(before, after, 2 << 20)  # all 5,000 may be open at a time


@pytest.mark.soak
def test_a_million_begins_that_time_out_leave_nothing(database_url: str) -> None:
    """Ten gateways sweep. Transactional ids are known for a minute, and not for 25 hours. One begin of 20 has one:
    it costs seven times as much as another."""
    many = int(os.environ.get("BEGINS", "1000000"))
    before, after, refused, seconds = asyncio.run(leave_open(database_url, many, 60, gateways=10, named=20))
    print(f"{many} begins in {seconds:.0f} s, {refused} refused for a moment: {before}, afterwards {after}")
    check(before, after, 32 << 20)

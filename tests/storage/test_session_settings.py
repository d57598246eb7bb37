"""A role, a database or a server may have any defaults: what a service relies on it sets itself on each connection."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import asyncpg
import pytest
from sharequeue_coordinator.prepare import connect_to as group_coordinator
from sharequeue_coordinator.prepare import open_pool as group_coordinator_pool
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.transactions.transaction_rules import COMMIT
from sharequeue_share_coordinator.prepare import connect_to as share_coordinator

from sharequeue import postgres_connection
from sharequeue.postgres_connection import UnfitStore
from sharequeue.protocol.errors import StorageError
from sharequeue.service.postgres_health import PostgresHealth
from sharequeue.stack.migrate import upgrade_async
from sharequeue.stack.postgres import Postgres
from tests.storage.database import session
from tests.storage.record_logs import new_topic
from tests.storage.test_transactions import begin, opened, produce

HOSTILE = {
    "synchronous_commit": ("off", "on"),
    "default_transaction_isolation": ("serializable", "read committed"),
    "standard_conforming_strings": ("off", "on"),
    "lock_timeout": ("1ms", "0"),
    "idle_session_timeout": ("1h", "0"),
    "transaction_timeout": ("1h", "0"),
    "statement_timeout": ("1h", "15s"),
    "jit": ("on", "off"),
}
"""Defaults of a role, each with the value that a gateway's connection has nevertheless."""
NEUTRAL = {
    "search_path": "nowhere",
    "bytea_output": "escape",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Pacific/Kiritimati",
    "client_encoding": "LATIN1",
    "row_security": "off",
    "extra_float_digits": "-15",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "plan_cache_mode": "force_generic_plan",
    "enable_partition_pruning": "off",
    "backslash_quote": "off",
}
"""Defaults of a role that no statement here depends on."""


@asynccontextmanager
async def role_with(database_url: str, settings: dict[str, str]) -> AsyncIterator[str]:
    """A superuser with these defaults. Yields: the URL of the same database as this role."""
    name, (before, after) = f"role_{secrets.token_hex(4)}", database_url.split("sharequeue:", 1)
    async with session(database_url) as admin:
        known = {row[0] for row in await admin.fetch("SELECT name FROM pg_settings")}
        password = after.split("@")[0]
        await admin.execute(f"CREATE ROLE {name} SUPERUSER LOGIN PASSWORD '{password}'")
        for setting, value in settings.items():
            if setting in known:  # transaction_timeout came with PostgreSQL 17
                await admin.execute(
                    f"ALTER ROLE {name} SET {setting} = '{value}'".replace("'SQL, DMY'", "'SQL', 'DMY'")
                )
        try:
            yield f"{before}{name}:{after}"
        finally:
            await admin.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


async def shown(connection: Any) -> dict[str, str]:
    """The settings of a connection, of those in HOSTILE."""
    rows = await connection.fetch(
        "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY($1::text[])", list(HOSTILE)
    )
    return dict(map(tuple, rows))


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
async def test_each_connection_has_what_its_service_relies_on(database_url: str, isolation: str) -> None:
    hostile = {name: value for name, (value, _) in HOSTILE.items()} | {"default_transaction_isolation": isolation}
    async with role_with(database_url, hostile) as url:
        database = await LogDatabase.open(url, connections=2)
        outside = await database.connect("test")
        pool = await group_coordinator_pool(url, database.time_line.learn)
        single = [await group_coordinator(url), await share_coordinator(url)]
        try:
            for _ in range(2):  # as it was made, and as its last borrower gave it back
                async with database.connection() as lent, pool.acquire() as of_pool:
                    found = await shown(lent)
                    assert found == {name: right for name, (_, right) in HOSTILE.items() if name in found}
                    for other in (outside, of_pool, *single):
                        assert await shown(other) | {"statement_timeout": "15s"} == found
        finally:
            for connection in (outside, *single):
                connection.terminate()
            pool.terminate()
            await database.close()


async def test_a_stronger_commit_stays(database_url: str) -> None:
    async with role_with(database_url, {"synchronous_commit": "remote_apply"}) as url:
        connection = await share_coordinator(url)
        assert await connection.fetchval("SHOW synchronous_commit") == "remote_apply"
        await connection.close()


async def test_a_commit_is_read_again_whatever_the_defaults_are(database_url: str) -> None:
    topic_id = new_topic()
    hostile = {name: value for name, (value, _) in HOSTILE.items()} | NEUTRAL
    async with role_with(database_url, hostile) as url:
        await upgrade_async(url)
        async with opened(url) as log:
            transaction_id = await begin(log)
            await produce(log, transaction_id, topic_id)
            await log.transactions.end(transaction_id, COMMIT)
            await produce(log, None, topic_id)
        async with opened(url) as reader:  # it has nothing in memory
            read = await reader.read(topic_id, 0, 0, 1 << 20, 100, committed=True)
            assert [(batch.base_offset, batch.control) for batch in read.batches] == [(0, False), (1, True), (2, False)]


async def test_behind_a_pooler_the_defaults_must_be_right(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PgBouncer answers a login with a process id of its own; another server connection may run each transaction."""
    monkeypatch.setattr(asyncpg.Connection, "get_server_pid", lambda _: 7)
    connection = await postgres_connection.connect(database_url, "test", {})
    await connection.close()
    weak = {"synchronous_commit": "local", "default_transaction_isolation": "serializable", "jit": "on"}
    async with role_with(database_url, weak) as url:
        with pytest.raises(UnfitStore, match=r"ALTER ROLE role_\w+ SET") as refused:
            await postgres_connection.connect(url, "test", {})
        for part in ("synchronous_commit = 'on'", "default_transaction_isolation = 'read committed'"):
            assert part in str(refused.value)
        assert "jit" not in str(refused.value)


async def test_a_server_that_may_lose_writes_is_named(postgres: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    health = PostgresHealth(partial(postgres_connection.connect, postgres.url, "test", {}), "SELECT 1")
    await _checked(health)
    assert health.told() == {}
    try:
        async with session(postgres.url) as admin:
            await admin.execute("ALTER SYSTEM SET full_page_writes = off")  # fsync is given by the command line here
            await _reload(admin, "off")
            await _checked(health)
            await _checked(health)
            assert health.told()["durability"].startswith("PostgreSQL runs with full_page_writes=off: ")
            logged = [record for record in caplog.records if "full_page_writes=off" in record.message]
            assert len(logged) == 1
    finally:
        async with session(postgres.url) as admin:
            await admin.execute("ALTER SYSTEM RESET full_page_writes")
            await _reload(admin, "on")
    await _checked(health)
    assert health.told() == {}
    await health.close()


async def test_a_read_only_server_is_named_before_it_refuses_a_write(database_url: str) -> None:
    """Otherwise a gateway says that a call works which the next one will not do."""
    async with role_with(database_url, {"default_transaction_read_only": "on"}) as url:
        health = PostgresHealth(partial(postgres_connection.connect, url, "test", {}), "SELECT 1")
        async with asyncio.timeout(60):
            while True:
                with pytest.raises(StorageError) as told:
                    await health.check()
                if "read-only" in told.value.detail:
                    break
        await health.close()


async def _checked(health: PostgresHealth) -> None:
    """A busy machine may miss the deadline of a check."""
    while True:
        with suppress(StorageError):
            return await health.check()


async def _reload(admin: Any, value: str) -> None:
    """Have the server read its settings again, and wait until this connection has the new one."""
    await admin.execute("SELECT pg_reload_conf()")
    while True:
        if await admin.fetchval("SHOW full_page_writes") == value:
            return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("in_transaction", [False, True])
async def test_a_connection_that_can_only_read_closes_itself_unless_it_is_new(
    database_url: str, in_transaction: bool
) -> None:
    """Another new one would be refused as well, so a new one is kept."""
    async with role_with(database_url, {"default_transaction_read_only": "on"}) as url:
        connection = await postgres_connection.connect(url, "tests", {})

        async def write() -> None:
            async with connection.transaction() if in_transaction else nullcontext():
                await connection.execute("CREATE TABLE written ()")

        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await write()
        assert not connection.is_closed(), "it is new"
        connection.made_at -= 2 * postgres_connection.YOUNG_S
        with pytest.raises((asyncpg.ReadOnlySQLTransactionError, asyncpg.InterfaceError)):
            await write()
        assert connection.is_closed(), "a new one may lead to another server"

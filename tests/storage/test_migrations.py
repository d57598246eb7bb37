"""Migrations: on an empty database, repeated, two at once, each chain on its own."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from sharequeue.stack.chains import CHAINS
from sharequeue.stack.checks import StoreError, check_postgres
from sharequeue.stack.migrate import upgrade, upgrade_async
from sharequeue.stack.postgres import Postgres

COMMAND = Path(sys.executable).with_name("sharequeue")
_numbers = itertools.count(1)


@pytest.fixture
def empty_database(postgres: Postgres) -> str:
    """A database without schemas."""
    name = f"empty_{next(_numbers)}"

    async def create() -> None:
        connection = await asyncpg.connect(postgres.url)
        await connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        await connection.close()

    asyncio.run(create())
    return postgres.url.rsplit("/", 1)[0] + f"/{name}"


async def query(database_url: str, sql: str) -> list[Any]:
    connection = await asyncpg.connect(database_url)
    try:
        return [tuple(row) for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def tables(database_url: str) -> list[Any]:
    """Every column of every table of ours."""
    return await query(
        database_url,
        """SELECT table_schema, table_name, column_name, data_type, is_nullable, column_default
           FROM information_schema.columns WHERE table_schema IN ('groups', 'share_state', 'log')
           ORDER BY 1, 2, ordinal_position""",
    )


async def schemas(database_url: str) -> set[str]:
    return {row[0] for row in await tables(database_url)}


async def test_migrating_an_empty_database_twice_changes_nothing_more(empty_database: str) -> None:
    assert not await asyncio.to_thread(check_postgres, empty_database, "--url")
    await upgrade_async(empty_database)
    assert await asyncio.to_thread(check_postgres, empty_database, "--url")
    after = await tables(empty_database)
    assert {"record_batches", "share_records", "topics"} <= {row[1] for row in after}
    await upgrade_async(empty_database)
    assert await tables(empty_database) == after
    for chain in CHAINS:
        assert len(await query(empty_database, f"SELECT version_num FROM {chain}.schema_version")) == 1


@pytest.mark.parametrize("why", ["read-only", "pooler"])
async def test_a_database_that_a_migration_would_refuse_is_not_up_to_date(
    database_url: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Its sentence is the one for the user. A standby is read-only, too."""
    assert await asyncio.to_thread(check_postgres, database_url, "--url")
    if why == "read-only":
        name = database_url.rsplit("/", 1)[1]
        await query(database_url, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    else:
        monkeypatch.setattr(asyncpg.Connection, "get_server_pid", lambda _: 7)
    assert not await asyncio.to_thread(check_postgres, database_url, "--url")


def program(database_url: str, **environment: str) -> "subprocess.CompletedProcess[bytes]":
    """Run the migrations as `sharequeue up` does."""
    command = [sys.executable, "-P", "-m", "sharequeue.stack.migrate"]
    environment = {**os.environ, **environment}
    return subprocess.run(command, input=database_url.encode(), capture_output=True, check=False, env=environment)


async def test_the_program_of_migrations_does_nothing_without_a_url(empty_database: str) -> None:
    """The end of `up` looks like this. PostgreSQL's own variables name another database, which is not `up`'s."""
    url = urlsplit(empty_database)
    there = {"PGHOST": str(url.hostname), "PGPORT": str(url.port), "PGDATABASE": url.path[1:]}
    done = await asyncio.to_thread(program, "", **there, PGUSER=str(url.username), PGPASSWORD=str(url.password))
    assert (done.returncode, done.stderr) == (0, b"")
    assert await schemas(empty_database) == set()


def test_the_program_of_migrations_reads_any_letters(postgres: Postgres) -> None:
    done = program(f"{postgres.url}_größe", PYTHONIOENCODING="latin-1")
    assert 'database "sharequeue_größe" does not exist' in done.stderr.decode("latin-1")


async def test_migrations_keep_the_data(database_url: str) -> None:
    insert = "INSERT INTO log.partitions (topic_id, partition, end_floor) VALUES (gen_random_uuid(), 3, 7) RETURNING 1"
    assert await query(database_url, insert) == [(1,)]
    await upgrade_async(database_url)
    assert await query(database_url, "SELECT partition, end_floor FROM log.partitions") == [(3, 7)]


async def test_two_migrations_at_once_run_each_revision_once(empty_database: str) -> None:
    code = f"from sharequeue.stack.migrate import upgrade; upgrade({empty_database!r})"
    processes = [await asyncio.create_subprocess_exec(sys.executable, "-c", code) for _ in range(2)]
    assert await asyncio.gather(*(process.wait() for process in processes)) == [0, 0]
    for chain in CHAINS:
        assert len(await query(empty_database, f"SELECT version_num FROM {chain}.schema_version")) == 1
    assert await schemas(empty_database) == set(CHAINS)


@pytest.mark.parametrize("chain", CHAINS)
async def test_each_chain_of_revisions_stands_alone(empty_database: str, chain: str) -> None:
    await upgrade_async(empty_database, [chain])
    assert await schemas(empty_database) == {chain}


async def test_no_lock_is_left_behind(empty_database: str) -> None:
    await upgrade_async(empty_database)
    locks = "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE l.locktype = 'advisory'"
    assert await query(empty_database, f"{locks} AND d.datname = current_database()") == [(0,)]


async def test_a_failed_revision_leaves_nothing(empty_database: str) -> None:
    """A table is in the way: the revision fails as a whole, and goes through once the table is gone."""
    await query(empty_database, "CREATE SCHEMA log")
    await query(empty_database, "CREATE TABLE log.dead_letter_sources (mine int)")
    with pytest.raises(Exception, match="already exists"):
        await upgrade_async(empty_database, ["log"])
    assert {row[1] for row in await tables(empty_database)} <= {"dead_letter_sources", "schema_version"}
    await query(empty_database, "DROP TABLE log.dead_letter_sources")
    await upgrade_async(empty_database, ["log"])
    assert "record_batches" in {row[1] for row in await tables(empty_database)}


@pytest.mark.parametrize(("chain", "revision"), [("groups", "0005"), ("log", "log_14"), ("log", "log_999")])
async def test_schemas_of_another_version_are_refused_and_not_changed(
    empty_database: str, chain: str, revision: str
) -> None:
    """Revisions before 0.1.0 were joined into one; those of a later version have names that this one does not know.
    No schema is made before the refusal, also none of another chain."""
    for statement in (
        f"CREATE SCHEMA {chain}",
        f"CREATE TABLE {chain}.schema_version (version_num varchar(32) PRIMARY KEY)",
        f"INSERT INTO {chain}.schema_version VALUES ('{revision}')",
    ):
        await query(empty_database, statement)
    before = await tables(empty_database)
    with pytest.raises(StoreError, match=f"made the schema {chain} .*'{revision}'.*use an empty database") as refused:
        await asyncio.to_thread(upgrade, empty_database)
    assert "\n" not in str(refused.value)
    assert await tables(empty_database) == before


def migrate_command(database_url: str, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [str(COMMAND), "migrate", "--url", database_url, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.soak
async def test_json_names_the_revisions_before_and_after(empty_database: str) -> None:
    def schemas_of(done: "subprocess.CompletedProcess[str]") -> list[tuple[str, str | None, str | None]]:
        assert (done.returncode, done.stderr) == (0, "")
        return [(entry["schema"], entry["before"], entry["after"]) for entry in json.loads(done.stdout)["schemas"]]

    ((_, _, log),) = first = schemas_of(migrate_command(empty_database, "--json", "--chain", "log"))
    assert first == [("log", None, log)]
    assert await query(empty_database, "SELECT version_num FROM log.schema_version") == [(log,)]
    after = schemas_of(migrate_command(empty_database, "--json"))
    assert [(schema, before) for schema, before, _ in after] == [("groups", None), ("share_state", None), ("log", log)]
    again = schemas_of(migrate_command(empty_database, "--json"))
    assert again == [(schema, version, version) for schema, _, version in after]
    assert migrate_command(empty_database).stdout == "schemas are up to date\n"


@pytest.mark.soak
async def test_json_of_a_migration_that_fails(empty_database: str) -> None:
    await upgrade_async(empty_database)
    await query(empty_database, "UPDATE log.schema_version SET version_num = '9999'")
    done = migrate_command(empty_database, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    failure = json.loads(done.stderr)
    assert failure["code"] == "FAILED"
    assert "'9999'" in failure["detail"]
    nowhere = migrate_command("postgresql://127.0.0.1:1/d", "--json")
    assert nowhere.returncode == 1
    assert "cannot use PostgreSQL at 127.0.0.1:1 (--url)" in json.loads(nowhere.stderr)["detail"]

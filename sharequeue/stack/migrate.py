"""Database migrations: three chains, one per schema, so that each service's data can live in a database of its own.

As a program it reads the URL of a database from its standard input: `sharequeue up` runs it, so that the memory of the
libraries here goes with it.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import asyncpg
from alembic import command, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import create_async_engine

from sharequeue import postgres_connection
from sharequeue.stack.chains import CHAINS, scripts
from sharequeue.stack.checks import StoreError, reason_of

NO_TIMEOUT: Final = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
"""For the wait for another runner. `migrations/env.py` sets those of a revision."""


@dataclass(frozen=True)
class Upgraded:
    """A schema that is up to date: its revision before and after. `before` is None if it had none."""

    schema: str
    before: str | None
    after: str | None


def execute(statements: str) -> None:
    """Run SQL statements within a migration. Each ends with a semicolon at the end of a line."""
    for statement in statements.split(";\n"):
        if statement.strip():
            op.execute(statement)


def upgrade(database_url: str, chains: Sequence[str] = CHAINS) -> list[Upgraded]:
    """Bring the schemas of `chains` up to date. `database_url`: postgresql://user:password@host:port/database.
    Raises: StoreError."""
    try:
        return asyncio.run(upgrade_async(database_url, chains))
    except (OSError, asyncpg.PostgresError, SQLAlchemyError, CommandError) as fault:
        raise StoreError(f"the database schemas cannot be brought up to date: {reason_of(fault)}") from fault


async def upgrade_async(database_url: str, chains: Sequence[str] = CHAINS) -> list[Upgraded]:
    """As `upgrade`, from a running event loop. Raises: StoreError for a schema of another version, or any fault."""
    # asyncpg reads the URL, as in the services: SQLAlchemy knows fewer options of it.
    connect = partial(postgres_connection.connect, database_url, "sharequeue-migrate", NO_TIMEOUT)
    engine = create_async_engine("postgresql+asyncpg://", async_creator=connect)
    upgraded = []
    try:
        async with engine.connect() as connection, engine.connect():  # the second one shows how a pooler lends them
            for chain in chains:  # all of them, before the first one is changed
                await connection.run_sync(_check_revision, chain)
        for chain in chains:
            async with engine.connect() as connection:
                upgraded.append(await connection.run_sync(_upgrade, chain))
    finally:
        await engine.dispose()
    return upgraded


def _config(chain: str) -> Config:
    config = Config()
    config.set_main_option("script_location", str(scripts()))
    config.set_main_option("version_locations", str(scripts() / chain / "versions"))
    config.set_main_option("path_separator", "os")
    return config


def _upgrade(connection: Connection, chain: str) -> Upgraded:
    config = _config(chain)
    applied: list[MigrationInfo] = []  # under the lock of env.py: what another runner applied is not among it
    config.attributes.update(connection=connection, chain=chain, applied=applied)
    command.upgrade(config, "head")
    head = ScriptDirectory.from_config(config).get_current_head()
    if not applied:
        return Upgraded(chain, head, head)
    return Upgraded(chain, next(iter(applied[0].source_revision_ids), None), head)


def _check_revision(connection: Connection, chain: str) -> None:
    """Raises: StoreError: another version of sharequeue made the schema."""
    options = {"version_table": "schema_version", "version_table_schema": chain}
    found = MigrationContext.configure(connection, opts=options).get_current_heads()
    known = {script.revision for script in ScriptDirectory.from_config(_config(chain)).walk_revisions()}
    if unknown := set(found) - known:
        raise StoreError(
            f"another version of sharequeue made the schema {chain} (revision {', '.join(unknown)!r}), and data from before"
            " 0.1.0 cannot be upgraded: use an empty database (with `sharequeue up`, another --data-dir), or the version"
            " that made it"
        )


if __name__ == "__main__":
    try:
        if url := sys.stdin.buffer.read().decode():  # `up` may end before it gives one
            upgrade(url)
    except StoreError as fault:
        sys.exit(str(fault))

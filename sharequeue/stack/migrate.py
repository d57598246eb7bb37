"""Database migrations: three chains, one per schema, so that each service's data can live in a database of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from alembic import command, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from sharequeue import postgres_connection
from sharequeue.stack.chains import CHAINS

NO_TIMEOUT: Final = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
"""For the wait for another runner. `migrations/env.py` sets those of a revision."""


class UnknownSchema(Exception):
    """Another version of sharequeue made a schema; the text says which, and what to do."""


@dataclass(frozen=True)
class Upgraded:
    """A schema that is up to date: its revision before and after. `before` is None if it had none."""

    schema: str
    before: str | None
    after: str | None


def scripts() -> Path:
    """Return where the migrations are: beside the checkout's packages, or inside the installed one."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "migrations"
    return checkout if checkout.is_dir() else package / "_migrations"


def execute(statements: str) -> None:
    """Run SQL statements within a migration. Each ends with a semicolon at the end of a line."""
    for statement in statements.split(";\n"):
        if statement.strip():
            op.execute(statement)


def upgrade(database_url: str, chains: Sequence[str] = CHAINS) -> list[Upgraded]:
    """Bring the schemas of `chains` up to date. `database_url`: postgresql://user:password@host:port/database."""
    return asyncio.run(upgrade_async(database_url, chains))


async def upgrade_async(database_url: str, chains: Sequence[str] = CHAINS) -> list[Upgraded]:
    """As `upgrade`, from a running event loop."""
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
    """Raises: UnknownSchema."""
    options = {"version_table": "schema_version", "version_table_schema": chain}
    found = MigrationContext.configure(connection, opts=options).get_current_heads()
    known = {script.revision for script in ScriptDirectory.from_config(_config(chain)).walk_revisions()}
    if unknown := set(found) - known:
        raise UnknownSchema(
            f"another version of sharequeue made the schema {chain} (revision {', '.join(unknown)!r}), and data from before"
            " 0.1.0 cannot be upgraded: use an empty database (with `sharequeue up`, another --data-dir), or the version"
            " that made it"
        )

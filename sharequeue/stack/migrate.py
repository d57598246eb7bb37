"""Database migrations: three chains, one per schema, so that each service's data can live in a database of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from alembic import command, op
from alembic.config import Config
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from sharequeue.stack.chains import CHAINS


class UnknownSchema(Exception):
    """Another version of sharequeue made a schema; the text says which, and what to do."""


@dataclass(frozen=True)
class Upgraded:
    """A schema that is up to date: its revision before and after. `before` is None if it had none."""

    schema: str
    before: str | None
    after: str | None


def scripts() -> Path:
    """Where the migrations are: beside the checkout's packages, or inside the installed one."""
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
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(database_url))
    upgraded = []
    try:
        for chain in chains:
            async with engine.connect() as connection:
                upgraded.append(await connection.run_sync(_upgrade, chain))
    finally:
        await engine.dispose()
    return upgraded


def _upgrade(connection: Connection, chain: str) -> Upgraded:
    """Raises: UnknownSchema."""
    config = Config()
    config.set_main_option("script_location", str(scripts()))
    config.set_main_option("version_locations", str(scripts() / chain / "versions"))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    _check_revision(connection, chain, {revision.revision for revision in script.walk_revisions()})
    applied: list[MigrationInfo] = []  # under the lock of env.py: what another runner applied is not among it
    config.attributes.update(connection=connection, chain=chain, applied=applied)
    command.upgrade(config, "head")
    head = script.get_current_head()
    if not applied:
        return Upgraded(chain, head, head)
    return Upgraded(chain, next(iter(applied[0].source_revision_ids), None), head)


def _check_revision(connection: Connection, chain: str, known: set[str]) -> None:
    context = MigrationContext.configure(
        connection, opts={"version_table": "schema_version", "version_table_schema": chain}
    )
    found = context.get_current_heads()
    connection.rollback()
    if unknown := set(found) - known:
        raise UnknownSchema(
            f"another version of sharequeue made the schema {chain} (revision {', '.join(unknown)!r}), and data from before"
            " 0.1.0 cannot be upgraded: use an empty database (with `sharequeue up`, another --data-dir), or the version"
            " that made it"
        )

"""Database migrations: three chains, one per schema, so that each service's data can live in a database of its own."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from sharequeue.stack.chains import CHAINS


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
    config = Config()
    config.set_main_option("script_location", str(scripts()))
    config.set_main_option("version_locations", str(scripts() / chain / "versions"))
    config.set_main_option("path_separator", "os")
    applied: list[MigrationInfo] = []  # under the lock of env.py: what another runner applied is not among it
    config.attributes.update(connection=connection, chain=chain, applied=applied)
    command.upgrade(config, "head")
    head = ScriptDirectory.from_config(config).get_current_head()
    if not applied:
        return Upgraded(chain, head, head)
    return Upgraded(chain, next(iter(applied[0].source_revision_ids), None), head)

"""Database migrations: three chains, one per schema, so that each service's data can live in a database of its own."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from sharequeue.stack.chains import CHAINS


def scripts() -> Path:
    """Where the migrations are: beside the checkout's packages, or inside the installed one."""
    package = Path(__file__).parents[1]
    checkout = package.parent / "migrations"
    return checkout if checkout.is_dir() else package / "_migrations"


def upgrade(database_url: str, chains: Sequence[str] = CHAINS) -> None:
    """Bring the schemas of `chains` up to date. `database_url`: postgresql://user:password@host:port/database."""
    asyncio.run(upgrade_async(database_url, chains))


async def upgrade_async(database_url: str, chains: Sequence[str] = CHAINS) -> None:
    """As `upgrade`, from a running event loop."""
    # asyncpg reads the URL, as in the services: SQLAlchemy knows fewer options of it.
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(database_url))
    try:
        for chain in chains:
            async with engine.connect() as connection:
                await connection.run_sync(_upgrade, chain)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection, chain: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(scripts()))
    config.set_main_option("version_locations", str(scripts() / chain / "versions"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(connection=connection, chain=chain)
    command.upgrade(config, "head")

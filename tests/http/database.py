"""The stack's database behind its back: to look what is stored, and to have it refuse dead letters."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg


def sql(database_url: str, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """Run one statement."""

    async def fetch() -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(database_url)
        try:
            return [tuple(row) for row in await connection.fetch(statement, *arguments)]
        finally:
            await connection.close()

    return asyncio.run(fetch())


@contextmanager
def refused_dead_letters(database_url: str, group: str, *offsets: int) -> Iterator[None]:
    """While this lasts the database takes no dead letters of these offsets from the group."""
    which = ", ".join(map(str, offsets))
    sql(
        database_url,
        f"""CREATE FUNCTION log.refuse_{group}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              IF NEW.group_id = '{group}' AND NEW.record_offset IN ({which}) THEN RAISE 'no room'; END IF;
              RETURN NEW;
            END $$""",
    )
    sql(
        database_url,
        f"""CREATE TRIGGER refuse_{group} BEFORE INSERT ON log.dead_letter_keys
            FOR EACH ROW EXECUTE FUNCTION log.refuse_{group}()""",
    )
    yield
    sql(database_url, f"DROP FUNCTION log.refuse_{group} CASCADE")

"""The stack's database, accessed without the services: to read it, and to make it refuse dead letters and states."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
from sharequeue_gateway.cluster.redis_client import RedisKeys
from sharequeue_gateway.record_log.database import CLUSTER_ID

from sharequeue.stack.stack import Stack


def redis_keys(stack: Stack) -> RedisKeys:
    """The names that a stack's gateways use in Redis; the stack has the database that its test gave."""
    assert stack._postgres_url is not None
    return RedisKeys(sql(stack._postgres_url, CLUSTER_ID)[0][0])


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
def locked(database_url: str, table: str) -> Iterator[Callable[[], bool]]:
    """Lock a table against all reads and writes. Yields: whether a statement other than a purge waits for it."""
    waits = """SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
               AND wait_event_type = 'Lock' AND query NOT LIKE '%DELETE%')"""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(database_url))
        try:
            runner.run(connection.execute(f"BEGIN; LOCK TABLE {table}"))
            yield lambda: bool(sql(database_url, waits)[0][0])
        finally:
            runner.run(connection.close())


@contextmanager
def refused_dead_letters(database_url: str, group: str, *offsets: int) -> Iterator[None]:
    """Make the database refuse the group's dead letters of these offsets: their keys; on Kafka their intents, which
    are written before the letters."""
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
        f"""CREATE TRIGGER refuse_{group} BEFORE INSERT ON log.dead_letter_sources
            FOR EACH ROW EXECUTE FUNCTION log.refuse_{group}()""",
    )
    sql(
        database_url,
        f"""CREATE FUNCTION log.refuse_intents_{group}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              IF EXISTS (SELECT FROM jsonb_array_elements(convert_from(NEW.outcome, 'UTF8')::jsonb) r
                         WHERE r->0->>0 = '{group}' AND (r->>2)::bigint IN ({which})) THEN RAISE 'no room'; END IF;
              RETURN NEW;
            END $$""",
    )
    sql(
        database_url,
        f"""CREATE TRIGGER refuse_{group} BEFORE INSERT ON log.append_intents
            FOR EACH ROW WHEN (NEW.kind = 2) EXECUTE FUNCTION log.refuse_intents_{group}()""",
    )
    yield
    sql(database_url, f"DROP FUNCTION log.refuse_{group}, log.refuse_intents_{group} CASCADE")


@contextmanager
def refused_state_writes(database_url: str, group: str, times: int = 1_000_000) -> Iterator[Callable[[], int]]:
    """While this lasts the database cancels writes of a group's state, the first `times`;
    yields how often it was tried."""
    refuse = f"share_state.refuse_{group}"
    sql(database_url, f"CREATE SEQUENCE {refuse}_tries")
    sql(
        database_url,
        f"""CREATE FUNCTION {refuse}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
              IF EXISTS (SELECT FROM share_state.share_partitions WHERE key_id = NEW.key_id AND group_id = '{group}')
                AND nextval('{refuse}_tries') <= {times} THEN RAISE 'not now' USING ERRCODE = 'query_canceled'; END IF;
              RETURN NEW;
            END $$""",
    )
    sql(
        database_url,
        f"""CREATE TRIGGER refuse_{group} BEFORE INSERT ON share_state.share_records
            FOR EACH ROW EXECUTE FUNCTION {refuse}()""",
    )
    try:
        yield lambda: int(sql(database_url, f"SELECT last_value FROM {refuse}_tries")[0][0])
    finally:
        sql(database_url, f"DROP FUNCTION {refuse} CASCADE")
        sql(database_url, f"DROP SEQUENCE {refuse}_tries")

"""The SQL of schedules, one function per statement."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sharequeue_gateway.record_log.store import NOW_MS, Connection, changed

_COLUMNS: Final = "name, cron, time_zone, missed, paused, partition, next_at_ms, last_at_ms"


class Schedule(NamedTuple):
    """A schedule of a topic. `tail`: as in `scheduled_store.Row`; empty in a list."""

    name: str
    cron: str
    time_zone: str
    missed: str
    paused: bool
    partition: int
    next_at_ms: int
    last_at_ms: int | None
    tail: bytes = b""


async def find(connection: Connection, topic_id: str, name: str, *, lock: bool = False) -> tuple[int, Schedule | None]:
    """PostgreSQL's time, and a schedule. `lock`: for this transaction."""
    now_ms: int = await connection.fetchval(f"SELECT {NOW_MS}")
    row = await connection.fetchrow(
        f"SELECT {_COLUMNS}, tail FROM log.schedules WHERE topic_id = $1 AND name = $2{' FOR UPDATE' if lock else ''}",
        topic_id,
        name,
    )
    return now_ms, None if row is None else Schedule(*row)


async def may_add(connection: Connection, topic_id: str, most: int) -> tuple[bool, bool]:
    """Tell whether the topic has fewer schedules than `most`, and whether it is deleted."""
    row = await connection.fetchrow(
        """SELECT (SELECT count(*) FROM log.schedules WHERE topic_id = $1) < $2,
             EXISTS (SELECT FROM log.partitions WHERE topic_id = $1 AND partition = 0 AND deleted)""",
        topic_id,
        most,
    )
    return row[0], row[1]


async def put(connection: Connection, topic_id: str, schedule: Schedule) -> None:
    await connection.execute(
        f"""INSERT INTO log.schedules (topic_id, {_COLUMNS}, tail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
            ON CONFLICT (topic_id, name) DO UPDATE SET
              cron = excluded.cron, time_zone = excluded.time_zone, missed = excluded.missed, paused = excluded.paused,
              partition = excluded.partition, next_at_ms = excluded.next_at_ms, tail = excluded.tail""",
        topic_id,
        *schedule,
    )


async def delete(connection: Connection, topic_id: str, name: str) -> bool:
    """Returns: whether it was there."""
    return await changed(connection, "DELETE FROM log.schedules WHERE topic_id = $1 AND name = $2", topic_id, name) > 0


async def list_all(connection: Connection, topic_id: str) -> list[Schedule]:
    """The schedules of a topic by name, without their records."""
    rows = await connection.fetch(f"SELECT {_COLUMNS} FROM log.schedules WHERE topic_id = $1 ORDER BY name", topic_id)
    return [Schedule(*row) for row in rows]


async def lock_due(connection: Connection, most: int) -> tuple[int, list[tuple[str, Schedule]]]:
    """Lock schedules whose time has come, and skip those that another gateway has locked, and those of deleted
    topics. Returns: PostgreSQL's time before them; the topic id of each, and the schedule."""
    now_ms: int = await connection.fetchval(f"SELECT {NOW_MS}")
    rows = await connection.fetch(
        f"""SELECT s.topic_id, {_COLUMNS}, tail FROM log.schedules s
            WHERE NOT paused AND next_at_ms <= $1 AND (
              SELECT p.deleted FROM log.partitions p
              WHERE p.topic_id = s.topic_id AND p.partition = s.partition) IS NOT TRUE
            ORDER BY next_at_ms LIMIT $2 FOR UPDATE OF s SKIP LOCKED""",
        now_ms,
        most,
    )
    return now_ms, [(str(row[0]), Schedule(*row[1:])) for row in rows]


async def advance(connection: Connection, schedules: Sequence[tuple[str, str, int, int | None]]) -> None:
    """Store the next and the last times of schedules: topic id, name, next, last; None: the last one stays."""
    await connection.execute(
        """UPDATE log.schedules s SET next_at_ms = t.next_at_ms, last_at_ms = coalesce(t.last_at_ms, s.last_at_ms)
           FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) AS t(topic_id, name, next_at_ms, last_at_ms)
           WHERE s.topic_id = t.topic_id AND s.name = t.name""",
        *zip(*schedules, strict=True),
    )

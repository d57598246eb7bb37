"""The SQL of scheduled records, one function per statement."""

import random
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharequeue_gateway.record_log.connections import ends_with
from sharequeue_gateway.record_log.store import NOW_MS, Connection

SLOTS: Final = 16
"""Rows that count the scheduled records of a topic. A request takes one of them at random."""
HEAD_BYTES: Final = 410
"""The first bytes of a record, which hold its key if that has at most 400 bytes."""

Place = tuple[int, str]
"""A place in the order of due records: the time and the id."""


class Row(NamedTuple):
    """A scheduled record. `tail`: its JSON without offset and timestamp, `,"key":null,"value":1}`."""

    schedule_id: str
    partition: int
    deliver_at_ms: int
    key_digest: bytes | None
    tail: bytes


class Due(NamedTuple):
    """A record that a move has taken."""

    topic_id: str
    partition: int
    deliver_at_ms: int
    schedule_id: uuid.UUID
    key_digest: bytes | None
    tail: bytes


class Sizes(NamedTuple):
    records: int
    bytes: int


class Listed(NamedTuple):
    """A scheduled record, or the next record of the schedule `name`. Its place in the order of all is `deliver_at_ms`,
    `id` (of the record, or of the schedule's topic), `name`. `head`: the first HEAD_BYTES of its `size` bytes."""

    topic_id: str
    partition: int
    deliver_at_ms: int
    id: str
    name: str
    size: int
    head: bytes


def new_ids(now_ms: int, count: int) -> list[str]:
    """Ids of version 7 that ascend with the time and, within a request, with the order of its records."""
    head = (now_ms & (1 << 48) - 1) << 80 | 7 << 76 | random.getrandbits(12) << 64 | 2 << 62
    middle = random.getrandbits(48) << 14
    return [str(uuid.UUID(int=head | middle | index)) for index in range(count)]


async def look(connection: Connection, topic_id: str) -> tuple[int, Sizes, bool]:
    """PostgreSQL's time, how much a topic has scheduled, and whether the topic is deleted."""
    row = await connection.fetchrow(
        f"""SELECT {NOW_MS}, coalesce(sum(records), 0)::bigint, coalesce(sum(bytes), 0)::bigint,
              EXISTS (SELECT FROM log.partitions WHERE topic_id = $1 AND partition = 0 AND deleted)
            FROM log.scheduled_counts WHERE topic_id = $1""",
        topic_id,
    )
    return row[0], Sizes(row[1], row[2]), row[3]


async def insert(connection: Connection, topic_id: str, rows: Sequence[Row]) -> None:
    async with ends_with(connection):
        await connection.copy_records_to_table(
            "scheduled_records",
            schema_name="log",
            columns=["schedule_id", "topic_id", "partition", "deliver_at_ms", "key_digest", "bytes", "tail"],
            records=[(row[0], topic_id, *row[1:4], len(row.tail), row.tail) for row in rows],
        )


async def count(connection: Connection, changes: Mapping[str, Sizes]) -> None:
    """Add to the counts of topics, by topic id, as the last statement of a transaction: others may wait for it."""
    await connection.execute(
        """INSERT INTO log.scheduled_counts AS c (topic_id, slot, records, bytes)
           SELECT t.topic_id, $4, t.records, t.bytes
           FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS t(topic_id, records, bytes) ORDER BY t.topic_id
           ON CONFLICT (topic_id, slot)
             DO UPDATE SET records = c.records + excluded.records, bytes = c.bytes + excluded.bytes""",
        list(changes),
        [sizes.records for sizes in changes.values()],
        [sizes.bytes for sizes in changes.values()],
        random.randrange(SLOTS),
    )


async def total(connection: Connection) -> int:
    """Return how many records are scheduled in all topics."""
    records: int = await connection.fetchval("SELECT coalesce(sum(records), 0)::bigint FROM log.scheduled_counts")
    return records


async def take_due(connection: Connection, most: int, most_bytes: int) -> tuple[int, list[Due]]:
    """Delete due records, the longest due first, and skip those that another transaction has locked, and those of
    deleted topics.

    Returns: PostgreSQL's time before them, and the records in the order of their times.
    """
    now_ms: int = await connection.fetchval(f"SELECT {NOW_MS}")
    rows = await connection.fetch(
        """WITH due AS MATERIALIZED (
             SELECT schedule_id, deliver_at_ms, bytes FROM log.scheduled_records s
             WHERE deliver_at_ms <= $1 AND (
               SELECT p.deleted FROM log.partitions p
               WHERE p.topic_id = s.topic_id AND p.partition = s.partition) IS NOT TRUE
             ORDER BY deliver_at_ms, schedule_id LIMIT $2 FOR UPDATE OF s SKIP LOCKED),
           taken AS MATERIALIZED (
             SELECT schedule_id FROM (
               SELECT schedule_id, sum(bytes) OVER (ORDER BY deliver_at_ms, schedule_id) - bytes AS before FROM due) d
             WHERE before < $3)
           DELETE FROM log.scheduled_records s USING taken WHERE s.schedule_id = taken.schedule_id
           RETURNING s.topic_id, s.partition, s.deliver_at_ms, s.schedule_id, s.key_digest, s.tail""",
        now_ms,
        most,
        most_bytes,
    )
    found = [Due(str(row[0]), *row[1:]) for row in rows]
    return now_ms, sorted(found, key=lambda due: (due.deliver_at_ms, due.schedule_id))


async def next_due(connection: Connection) -> tuple[int, int | None]:
    """PostgreSQL's time, and the earliest time of a record or of a schedule: one look into the index of each."""
    row = await connection.fetchrow(
        f"""SELECT {NOW_MS}, least(
              (SELECT deliver_at_ms FROM log.scheduled_records ORDER BY deliver_at_ms, schedule_id LIMIT 1),
              (SELECT next_at_ms FROM log.schedules WHERE NOT paused ORDER BY next_at_ms LIMIT 1))"""
    )
    return row[0], row[1]


async def cancel(connection: Connection, topic_id: str, which: Sequence[str] | bytes, most: int) -> list[Any]:
    """Delete records by their ids, or some by the digest of their key. Returns: the id and the size of each.

    The rows are locked in the order of their times, and then those of unique keys in the order of the keys, so that two
    transactions never wait for each other in a circle.
    """
    rows: list[Any] = await connection.fetch(
        f"""WITH found AS MATERIALIZED (
              SELECT schedule_id, key_digest FROM log.scheduled_records WHERE topic_id = $1
                AND {"key_digest = $2" if isinstance(which, bytes) else "schedule_id = ANY($2::uuid[])"}
              ORDER BY deliver_at_ms, schedule_id LIMIT $3 FOR UPDATE),
            keys AS MATERIALIZED (
              SELECT key_digest FROM log.unique_keys u JOIN found USING (key_digest, schedule_id)
              WHERE topic_id = $1 ORDER BY key_digest FOR UPDATE OF u),
            freed AS (DELETE FROM log.unique_keys u USING keys WHERE topic_id = $1 AND u.key_digest = keys.key_digest)
            DELETE FROM log.scheduled_records s USING found WHERE s.schedule_id = found.schedule_id
            RETURNING s.schedule_id::text, s.bytes""",
        topic_id,
        which,
        most,
    )
    return rows


def _records(which: str) -> str:
    """Some records behind a place, the next one due first, as `Listed`."""
    return f"""
        SELECT topic_id, partition, deliver_at_ms, schedule_id AS id, '' AS name, bytes,
          substring(tail FROM 1 FOR {HEAD_BYTES}) AS head FROM log.scheduled_records
        WHERE {which} AND (deliver_at_ms, schedule_id) > ($1, $2::uuid) ORDER BY deliver_at_ms, schedule_id LIMIT $3"""


async def list_some(connection: Connection, topic_id: str, after: Place, most: int) -> tuple[list[Listed], int]:
    """Some records of a topic behind a place, the next one due first; and how many the topic has in all."""
    rows = await connection.fetch(_records("topic_id = $4"), *after, most, topic_id)
    _, sizes, _ = await look(connection, topic_id)
    return _listed(rows), sizes.records


async def list_due(connection: Connection, after: tuple[int, str, str], most: int) -> list[Listed]:
    """Some records and schedules of all topics behind a place, the next one due first: a look into two indexes."""
    rows = await connection.fetch(
        f"""WITH records AS ({_records("true")}),
            schedules AS (
              SELECT s.topic_id, partition, next_at_ms, s.topic_id, name, length(tail),
                substring(tail FROM 1 FOR {HEAD_BYTES})
              FROM log.schedules s WHERE NOT paused AND (next_at_ms, s.topic_id, name) > ($1, $2::uuid, $4)
              ORDER BY next_at_ms, s.topic_id, name LIMIT $3)
            SELECT * FROM records UNION ALL SELECT * FROM schedules ORDER BY deliver_at_ms, id, name LIMIT $3""",
        *after[:2],
        most,
        after[2],
    )
    return _listed(rows)


def _listed(rows: Iterable[Sequence[Any]]) -> list[Listed]:
    return [Listed(str(row[0]), row[1], row[2], str(row[3]), *row[4:]) for row in rows]


def sizes_by_topic(rows: Iterable[Due]) -> dict[str, Sizes]:
    """Return how much the counts of each topic must go down."""
    found: dict[str, Sizes] = {}
    for row in rows:
        before = found.get(row.topic_id, Sizes(0, 0))
        found[row.topic_id] = Sizes(before.records - 1, before.bytes - len(row.tail))
    return found

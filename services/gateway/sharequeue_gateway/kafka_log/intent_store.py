"""The SQL of intents, one function per statement."""

from typing import Any, Final, NamedTuple

from sharequeue_gateway.kafka_log.intents import Intent, Kind, Part
from sharequeue_gateway.record_log.store import Connection, changed, columns_of

_FIND: Final = """SELECT subject, intent_id::text, transactional_id, producer_id, producer_epoch, topic_id::text,
  partitions, ends, leader_epochs, records, kind, outcome,
  (extract(epoch FROM clock_timestamp() - began_at) * 1000)::bigint FROM log.append_intents"""


class OpenIntent(NamedTuple):
    """`age_ms`: the time since it began, by PostgreSQL's clock."""

    intent: Intent
    age_ms: int


async def begin(connection: Connection, intent: Intent) -> bool:
    """Store an intent. Returns: False if its subject has one. Waits for a transaction that stores or removes one."""
    begun = await changed(
        connection,
        """INSERT INTO log.append_intents (subject, intent_id, transactional_id, producer_id, producer_epoch, topic_id,
             partitions, ends, leader_epochs, records, kind, outcome)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (subject) DO NOTHING""",
        *intent[:6],
        *columns_of(intent.parts, 4),
        intent.kind,
        intent.outcome,
    )
    return begun > 0


async def find(connection: Connection, subject: int) -> OpenIntent | None:
    row = await connection.fetchrow(f"{_FIND} WHERE subject = $1", subject)
    return None if row is None else _open(row)


async def find_old(connection: Connection, least_age_ms: int, most: int) -> list[OpenIntent]:
    """The oldest intents of at least this age."""
    old = "WHERE began_at <= clock_timestamp() - make_interval(secs => $1) ORDER BY began_at LIMIT $2"
    return [_open(row) for row in await connection.fetch(f"{_FIND} {old}", least_age_ms / 1000, most)]


async def move(connection: Connection, intent: Intent, moved: Intent) -> bool:
    """Give an intent to another producer; its age begins again. Returns: False if another one has done that."""
    given = await changed(
        connection,
        """UPDATE log.append_intents SET transactional_id = $1, producer_id = $2, producer_epoch = $3,
             began_at = clock_timestamp()
           WHERE subject = $4 AND intent_id = $5 AND transactional_id = $6 AND producer_epoch = $7""",
        *moved[2:5],
        *intent[:3],
        intent.epoch,
    )
    return given > 0


async def remove(connection: Connection, intent: Intent) -> bool:
    """Remove an intent. Returns: False if another one has done that."""
    removal = "DELETE FROM log.append_intents WHERE subject = $1 AND intent_id = $2"
    return await changed(connection, removal, *intent[:2]) > 0


def _open(row: Any) -> OpenIntent:
    parts = [Part(*part) for part in zip(*row[6:10], strict=True)]
    return OpenIntent(Intent._make((*row[:6], parts, Kind(row[10]), row[11])), row[12])

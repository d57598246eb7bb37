"""The table of outcomes, beside the record log: by whom and when records were finished. One function per statement."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.record_log.store import Connection

AT_ONCE: Final = 1000
"""Rows of one write."""


class Outcome(NamedTuple):
    """A range that one acknowledgement has finished: accepted it, or ended it otherwise."""

    group_id: str
    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    member_id: str | None
    at_ms: int
    expires_at_ms: int


async def write(connection: Connection, outcomes: Sequence[Outcome]) -> None:
    """Write at most AT_ONCE outcomes with different beginnings. One takes the place of an earlier one."""
    await connection.execute(
        """INSERT INTO log.outcomes SELECT * FROM unnest(
             $1::text[], $2::uuid[], $3::int[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[])
           ON CONFLICT (group_id, topic_id, partition, first_offset) DO UPDATE SET last_offset = excluded.last_offset,
             member_id = excluded.member_id, at_ms = excluded.at_ms, expires_at_ms = excluded.expires_at_ms""",
        *zip(*outcomes, strict=True),
    )


async def find(connection: Connection, key: SharePartitionKey, offset: int) -> tuple[str | None, int] | None:
    """Return who has finished a record, and when; None: it is not kept."""
    row = await connection.fetchrow(
        """SELECT member_id, at_ms, last_offset FROM log.outcomes
           WHERE group_id = $1 AND topic_id = $2 AND partition = $3 AND first_offset <= $4
           ORDER BY first_offset DESC LIMIT 1""",
        *key,
        offset,
    )
    return None if row is None or row[2] < offset else (row[0], row[1])

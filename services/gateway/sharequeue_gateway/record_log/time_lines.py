"""Moves the ends of the log after PostgreSQL went back: no offset that it may have given before is given again.

    known:   … 138 139 140 … 149 │                     lost: 140 to 149
    store:   … 138 139 │ ── SKIPPED void offsets ── M │ the next record

Groups, clients, locks in Redis and checkpoints of Spark may name lost offsets. If new records had these, an
acknowledgement of a lost record would settle a new one, and a reader that was ahead would miss it. So each partition
gets a marker (M) far behind its end: a batch without a record. Every reader passes it as it passes compacted records.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.record_batch import RecordBatch

SKIPPED: Final = 1 << 20
"""More than the records that one partition gets in the lag of a replica: 10 s at 100,000 a second."""

_MARK: Final = f"""
INSERT INTO log.record_batches
  (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count, append_id, records, attributes)
SELECT m.topic_id, m.partition, m.marker_offset, m.marker_offset, $1::bigint, 0, $2::uuid, $3::bytea, 32  -- Kafka's bit of a marker
FROM (
  SELECT p.topic_id, p.partition, e.log_end_offset, {{marker_offset}} AS marker_offset FROM log.partitions p {{join}}
  CROSS JOIN LATERAL (SELECT {store.END} AS log_end_offset) e WHERE NOT p.deleted) m
WHERE m.marker_offset >= m.log_end_offset ORDER BY m.topic_id, m.partition ON CONFLICT DO NOTHING
"""
_MARK_ALL: Final = _MARK.format(marker_offset=f"e.log_end_offset + {SKIPPED - 1}", join="")
_MARK_SOME: Final = _MARK.format(
    marker_offset="t.end_offset - 1",
    join="""JOIN unnest($4::uuid[], $5::int[], $6::bigint[]) AS t(topic_id, partition, end_offset)
    USING (topic_id, partition)""",
)

Ends = Mapping[TopicIdPartition, int]
"""Log ends by partition."""


class OlderLog(ConnectionError):
    """The log ends below a known end: nothing was appended, and offsets must be skipped first."""

    def __init__(self, known: Ends, sign: str) -> None:
        super().__init__(sign)
        self.known, self.sign = known, sign


async def begin(connection: Any, history: str, known: Ends) -> tuple[int, str | None]:
    """A gateway meets a start of PostgreSQL: skip offsets if the log may have gone back.

    `known`: ends that the gateway has seen. Gateways come one after the other, so one of them alone skips.

    Returns: how often the log went back, and what shows that it did, if this gateway has found it.
    """
    async with connection.transaction():
        before, skips = await connection.fetchrow("SELECT history, skips FROM log.time_line FOR UPDATE")
        sign = None
        if before != history:
            await connection.execute("UPDATE log.time_line SET history = $1", history)
            if before:
                sign = f"it failed over or was restored: {before} became {history}"
        sign = sign or older(known, await store.bounds(connection, list(known)))
        if sign is not None:
            skips = await skip(connection, known)
    return skips, sign


async def skips(connection: Any) -> int:
    return int(await connection.fetchval("SELECT skips FROM log.time_line"))


def older(known: Ends, found: Mapping[TopicIdPartition, store.Bounds]) -> str | None:
    """Find a known end above the present one. Returns: a sentence about it; None: the log is not older."""
    for place, end in known.items():
        now = found.get(place, store.NO_BOUNDS)
        if now.log_end_offset < end and not now.deleted:
            return f"partition {place[1]} of topic {place[0]} ended at {end} and ends at {now.log_end_offset} now"
    return None


async def with_records(connection: Any, place: TopicIdPartition, ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Return which of these ranges of offsets of a partition have a record."""
    rows = await connection.fetch(
        """SELECT t.n - 1 FROM unnest($3::bigint[], $4::bigint[]) WITH ORDINALITY AS t(first_offset, last_offset, n)
           CROSS JOIN LATERAL (SELECT b.last_offset FROM log.record_batches b
             WHERE b.topic_id = $1 AND b.partition = $2 AND b.base_offset <= t.last_offset
             ORDER BY b.base_offset DESC LIMIT 1) b
           WHERE b.last_offset >= t.first_offset ORDER BY t.n""",
        *place,
        *store.columns_of(ranges, 2),
    )
    return [row[0] for row in rows]


async def skip(connection: Any, known: Ends) -> int:
    """Have every partition end SKIPPED offsets further, and none below its known end. Returns: how often that was."""
    await connection.execute(_MARK_ALL, *_marker())
    await end_above(connection, known)
    return int(await connection.fetchval("UPDATE log.time_line SET skips = skips + 1 RETURNING skips"))


async def make_partitions(connection: Any, places: Sequence[TopicIdPartition]) -> None:
    """Make partitions that get their first record. One that is older than the last skip has no marker of it, and may
    have had records that are lost: after the log went back, every new partition ends as far behind as a marker lies."""
    await store.make_partitions(connection, places)
    if skipped := SKIPPED * await skips(connection):
        await end_above(connection, dict.fromkeys(places, skipped))


async def end_above(connection: Any, known: Ends) -> None:
    """Have no partition end below its known end."""
    places = list(known)
    await store.make_partitions(connection, places)
    await connection.execute(_MARK_SOME, *_marker(), *store.columns_of(places, 2), list(known.values()))


def _marker() -> tuple[int, uuid.UUID, bytes]:
    """Its time, its append id and its bytes."""
    return int(time.time() * 1000), uuid.uuid4(), RecordBatch.marker(0, 0, "").stored

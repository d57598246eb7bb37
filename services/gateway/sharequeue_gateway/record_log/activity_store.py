"""The table of activity, beside the record log: counters by hour, group and partition. One function per statement."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

AT_ONCE: Final = 1000
"""Rows of one write."""
OF_GROUP: Final = """generate_series((SELECT greatest($1, min(hour)) FROM log.activity),
  (SELECT least($2 - 1, max(hour)) FROM log.activity)) AS one
  CROSS JOIN LATERAL (SELECT * FROM log.activity WHERE hour = one AND group_id = $3 OFFSET 0) AS found"""
"""The rows of a group: a look into the index for each hour."""
_json: Final = msgspec.json.Encoder().encode
_counts: Final = msgspec.json.Decoder(list[dict[int, int]]).decode
_causes: Final = msgspec.json.Decoder(list[dict[str, int]]).decode


class ActivityTotal(NamedTuple):
    """The counters of an hour: of one part, or of all together. `group_id` is empty for produced records, `topic` while
    its name is unknown."""

    hour: int
    group_id: str
    topic_id: str
    partition: int
    topic: str
    produced: int
    delivered: int
    accepted: int
    released: int
    rejected: int
    expired: int
    deliveries: Mapping[int, int]
    times_to_accept: Mapping[int, int]
    dead_letters: Mapping[str, int]


class ActivityRow(NamedTuple):
    """The counters of one part."""

    part_id: UUID
    total: ActivityTotal


ActivityPlace = tuple[int, str, str, int]
"""Hour, group id, topic id, partition: the order of rows."""


async def write(connection: Any, rows: Sequence[ActivityRow]) -> None:
    """Write rows. A row replaces the one that its part wrote before."""
    await connection.execute(
        """INSERT INTO log.activity (part, hour, group_id, topic_id, partition, topic,
             produced, delivered, accepted, released, rejected, expired, deliveries, times_to_accept, dead_letters)
           SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::uuid[], $5::int[], $6::text[], $7::bigint[],
             $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
             $13::jsonb[], $14::jsonb[], $15::jsonb[])
           ON CONFLICT (hour, group_id, topic_id, partition, part) DO UPDATE SET
             topic = CASE WHEN excluded.topic = '' THEN activity.topic ELSE excluded.topic END,
             produced = excluded.produced, delivered = excluded.delivered, accepted = excluded.accepted,
             released = excluded.released, rejected = excluded.rejected, expired = excluded.expired,
             deliveries = excluded.deliveries, times_to_accept = excluded.times_to_accept,
             dead_letters = excluded.dead_letters""",
        [row.part_id for row in rows],
        *([row.total[column] for row in rows] for column in range(11)),
        *([_json(row.total[column]).decode() for row in rows] for column in range(11, 14)),
    )


async def totals(
    connection: Any,
    first_hour: int,
    end_hour: int,
    group_id: str | None,
    topic: str | None,
    after: ActivityPlace,
    limit: int,
) -> list[ActivityTotal]:
    """Rows of first_hour <= hour < end_hour behind `after`, in order."""
    rows = await connection.fetch(
        f"""SELECT hour, group_id, topic_id, partition, max(topic), sum(produced)::bigint, sum(delivered)::bigint,
             sum(accepted)::bigint, sum(released)::bigint, sum(rejected)::bigint, sum(expired)::bigint,
             jsonb_agg(deliveries)::text, jsonb_agg(times_to_accept)::text, jsonb_agg(dead_letters)::text
           FROM {"log.activity" if group_id is None else OF_GROUP}
           WHERE hour >= $1 AND hour < $2 AND ($3::text IS NULL OR group_id = $3) AND ($4::text IS NULL OR topic = $4)
             AND (hour, group_id, topic_id, partition) > ($5, $6, $7::uuid, $8)
           GROUP BY hour, group_id, topic_id, partition
           ORDER BY hour, group_id, topic_id, partition LIMIT $9""",
        first_hour,
        end_hour,
        group_id,
        topic,
        *after,
        limit,
    )
    return [_total(row) for row in rows]


def _total(row: Sequence[Any]) -> ActivityTotal:
    hour, group_id, topic_id, *numbers = row[:11]
    histograms = _summed(_counts(row[11])), _summed(_counts(row[12])), _summed(_causes(row[13]))
    return ActivityTotal._make((hour, group_id, str(topic_id), *numbers, *histograms))


async def remove_before(connection: Any, hour: int) -> None:
    await connection.execute("DELETE FROM log.activity WHERE hour < $1", hour)


def _summed(histograms: Iterable[Mapping[Any, int]]) -> dict[Any, int]:
    summed: dict[Any, int] = {}
    for histogram in histograms:
        for place, count in histogram.items():
            summed[place] = summed.get(place, 0) + count
    return dict(sorted(summed.items()))

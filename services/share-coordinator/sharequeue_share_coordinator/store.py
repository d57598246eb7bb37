"""The share coordinator's SQL, one function per statement. Schema `share_state`.

Each write is one statement. It locks the rows of its shards and compares the owner epochs (`sharequeue.ownership.shard_store`),
so an instance that another one replaced writes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.ownership.shard_store import HELD
from sharequeue.protocol.messages.audit import ExportStateQuery
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_share_coordinator.share_state.rows import SNAPSHOT, TOMBSTONE, KeyState, Row, replay

encode_row: Final = msgspec.msgpack.Encoder().encode
decode_row: Final = msgspec.msgpack.Decoder(Row).decode

APPEND: Final = f"""
WITH held AS MATERIALIZED ({HELD.format(schema="share_state", shards="$1", epochs="$2")})
INSERT INTO share_state.share_records (key_id, kind, record)
SELECT t.key_id, t.kind, t.record
FROM unnest($3::bigint[], $4::smallint[], $5::bytea[]) WITH ORDINALITY AS t(key_id, kind, record, n)
WHERE (SELECT count(*) FROM held) = cardinality($1)
ORDER BY t.n
"""

APPEND_ONE: Final = """
INSERT INTO share_state.share_records (key_id, kind, record)
SELECT $3, $4, $5
WHERE EXISTS (SELECT FROM share_state.shards s WHERE s.shard = $1 AND s.owner_epoch = $2 FOR KEY SHARE)
"""

LOAD: Final = """
SELECT k.key_id, k.group_id, k.topic_id, k.partition, r.seq, r.record
FROM unnest($1::text[], $2::uuid[], $3::int[]) AS t(group_id, topic_id, partition)
CROSS JOIN LATERAL (
  SELECT * FROM share_state.share_partitions k
  WHERE k.group_id = t.group_id AND k.topic_id = t.topic_id AND k.partition = t.partition LIMIT 1) k
LEFT JOIN share_state.share_records r ON r.key_id = k.key_id
ORDER BY k.key_id, r.seq
"""
"""Looks up each key by itself. PostgreSQL would plan a join while the table is empty, to read all of it, and keep the plan."""


class LoadedKey(NamedTuple):
    """The stored rows of one share-partition, as (sequence number, record), in order."""

    key_id: int
    records: list[tuple[int, bytes]]


class UnreadableRow(Exception):
    """A stored row cannot be decoded or replayed. The text names the row."""


async def append(connection: Any, epochs: Mapping[int, int], rows: Sequence[tuple[int, Row]]) -> bool:
    """Append rows, all or none. Returns: False if one of the shards has another owner; nothing is written then."""
    status: str
    if len(rows) == 1:
        ((of_shard, epoch),) = epochs.items()
        ((key_id, row),) = rows
        status = await connection.execute(APPEND_ONE, of_shard, epoch, key_id, row.kind, encode_row(row))
        return status == "INSERT 0 1"
    status = await connection.execute(
        APPEND,
        list(epochs),
        list(epochs.values()),
        [key_id for key_id, _ in rows],
        [row.kind for _, row in rows],
        [encode_row(row) for _, row in rows],
    )
    return status == f"INSERT 0 {len(rows)}"


async def make_keys(connection: Any, keys: Sequence[SharePartitionKey]) -> None:
    await connection.execute(
        """INSERT INTO share_state.share_partitions (group_id, topic_id, partition)
           SELECT * FROM unnest($1::text[], $2::uuid[], $3::int[]) ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING""",
        [key.group_id for key in keys],
        [key.topic_id for key in keys],
        [key.partition for key in keys],
    )


async def load(connection: Any, keys: Sequence[SharePartitionKey]) -> dict[SharePartitionKey, LoadedKey]:
    """The stored rows of share-partitions; without those that were never initialised."""
    found: dict[SharePartitionKey, LoadedKey] = {}
    rows = await connection.fetch(
        LOAD, [key.group_id for key in keys], [key.topic_id for key in keys], [key.partition for key in keys]
    )
    for key_id, group_id, topic_id, partition, seq, record in rows:
        loaded = found.setdefault(SharePartitionKey(group_id, str(topic_id), partition), LoadedKey(key_id, []))
        if seq is not None:
            loaded.records.append((seq, record))
    return found


def state_of(loaded: LoadedKey, updates_per_snapshot: int) -> KeyState | None:
    """Replay the rows of a share-partition. Raises: UnreadableRow: a row since its last tombstone."""
    state: KeyState | None = None
    unreadable: UnreadableRow | None = None
    for seq, record in loaded.records:
        try:
            row = decode_row(record)
            state = replay(state, row, updates_per_snapshot)
        except ValueError as fault:
            unreadable = unreadable or UnreadableRow(f"row {seq} cannot be read: {fault}")
        else:
            if row.kind == TOMBSTONE:
                unreadable = None
    if unreadable is not None:
        raise unreadable
    return state


async def keys_of_topic(
    connection: Any, topic_id: str, above_key_id: int, limit: int
) -> list[tuple[int, SharePartitionKey]]:
    """The share-partitions of a topic that have state, with their key ids, in the order of these."""
    rows = await connection.fetch(
        """SELECT k.key_id, k.group_id, k.topic_id, k.partition FROM share_state.share_partitions k
           WHERE k.topic_id = $1 AND k.key_id > $4 AND (
             SELECT r.kind FROM share_state.share_records r WHERE r.key_id = k.key_id ORDER BY r.seq DESC LIMIT 1) <> $2
           ORDER BY k.key_id LIMIT $3""",
        topic_id,
        TOMBSTONE,
        limit,
        above_key_id,
    )
    return [(key_id, SharePartitionKey(group_id, str(found), number)) for key_id, group_id, found, number in rows]


async def cold_keys(connection: Any, interval_ms: int, limit: int) -> list[SharePartitionKey]:
    """Share-partitions with updates after their last snapshot, all of them older than `interval_ms`."""
    rows = await connection.fetch(
        """SELECT k.group_id, k.topic_id, k.partition FROM share_state.share_partitions k
           JOIN (SELECT key_id FROM share_state.share_records GROUP BY key_id
                 HAVING count(*) > 1 AND max(written_at) < now() - make_interval(secs => $1 / 1000.0) LIMIT $2) c
             USING (key_id)""",
        interval_ms,
        limit,
    )
    return [SharePartitionKey(group_id, str(topic_id), partition) for group_id, topic_id, partition in rows]


PRUNE: Final = """
WITH last AS ({last}),
removed AS (
  DELETE FROM share_state.share_records r USING last
  WHERE r.key_id = last.key_id AND (r.seq < last.seq OR (r.seq = last.seq AND r.kind = $2))
  RETURNING r.seq)
SELECT (SELECT count(*) FROM removed), coalesce((SELECT min(seq) FROM last), 0)
"""
PRUNE_ALL: Final = PRUNE.format(
    last="SELECT key_id, max(seq) AS seq FROM share_state.share_records WHERE kind IN ($1, $2) GROUP BY key_id"
)
PRUNE_KEYS: Final = PRUNE.format(
    last="""SELECT t.key_id, (SELECT max(seq) FROM share_state.share_records r
              WHERE r.key_id = t.key_id AND r.kind IN ($1, $2)) AS seq FROM unnest($3::bigint[]) AS t(key_id)"""
)


async def prune(connection: Any) -> tuple[int, int]:
    """Remove the rows before each key's last snapshot or tombstone, and the tombstones. Reads the whole table.

    Returns: (rows removed, last pruned sequence number).
    """
    row = await connection.fetchrow(PRUNE_ALL, SNAPSHOT, TOMBSTONE)
    return row[0], row[1]


async def prune_keys(connection: Any, key_ids: Sequence[int]) -> int:
    """As `prune`, for some keys alone. Returns: rows removed."""
    removed: int = await connection.fetchval(PRUNE_KEYS, SNAPSHOT, TOMBSTONE, key_ids)
    return removed


async def keys_without_state(connection: Any, limit: int) -> dict[SharePartitionKey, int]:
    """Keys without rows, and their ids: the tombstone was pruned, or the initialisation was never stored."""
    rows = await connection.fetch(
        """SELECT k.group_id, k.topic_id, k.partition, k.key_id FROM share_state.share_partitions k
           WHERE NOT EXISTS (SELECT 1 FROM share_state.share_records r WHERE r.key_id = k.key_id) LIMIT $1""",
        limit,
    )
    return {SharePartitionKey(group_id, str(topic_id), number): key_id for group_id, topic_id, number, key_id in rows}


async def remove_keys(connection: Any, epochs: Mapping[int, int], key_ids: Sequence[int]) -> None:
    """Remove keys that still have no rows. Their owner calls this between two commits, with these keys discarded from memory."""
    held = HELD.format(schema="share_state", shards="$1", epochs="$2")
    await connection.execute(
        f"""WITH held AS MATERIALIZED ({held})
            DELETE FROM share_state.share_partitions k
            WHERE k.key_id = ANY($3::bigint[]) AND (SELECT count(*) FROM held) = cardinality($1)
              AND NOT EXISTS (SELECT 1 FROM share_state.share_records r WHERE r.key_id = k.key_id)""",
        list(epochs),
        list(epochs.values()),
        key_ids,
    )


async def export(connection: Any, query: ExportStateQuery) -> list[tuple[Any, ...]]:
    """(key id, group id, topic id, partition, seq, kind, record) of share-partitions, all read at one moment."""
    rows: list[tuple[Any, ...]] = await connection.fetch(
        """SELECT k.key_id, k.group_id, k.topic_id, k.partition, r.seq, r.kind, r.record
           FROM (SELECT * FROM share_state.share_partitions
                 WHERE key_id > $1 AND key_id % $3 = $2 AND ($4::text IS NULL OR group_id = $4)
                   AND ($5::text IS NULL OR topic_id::text = $5) AND ($6::int IS NULL OR partition = $6)
                 ORDER BY key_id LIMIT $7) k
           LEFT JOIN share_state.share_records r USING (key_id) ORDER BY k.key_id, r.seq""",
        query.after,
        query.part,
        query.parts,
        query.group_id,
        query.topic_id,
        query.partition,
        query.page_size,
    )
    return rows

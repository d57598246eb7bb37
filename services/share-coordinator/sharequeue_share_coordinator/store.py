"""The share coordinator's SQL, one function per statement. Schema `share_state`.

Each write is one statement. It locks the rows of its shards and compares the owner epochs
(`sharequeue.ownership.shard_store`), so an instance that another one replaced writes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import structs

from sharequeue.ownership.shard_store import HELD
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_share_coordinator.share_state.rows import (
    PART,
    SNAPSHOT,
    SUPERSEDING,
    TOMBSTONE,
    UPDATE,
    KeyState,
    Row,
    decode_row,
    replay,
)

APPEND: Final = f"""
WITH held AS MATERIALIZED ({HELD.format(schema="share_state", shards="$1", epochs="$2")})
INSERT INTO share_state.share_records (key_id, kind, record)
SELECT t.key_id, t.kind, t.record
FROM unnest($3::bigint[], $4::smallint[], $5::bytea[]) WITH ORDINALITY AS t(key_id, kind, record, n)
WHERE (SELECT count(*) FROM held) = cardinality($1)
ORDER BY t.n
"""

APPEND_ONE: Final = """
INSERT INTO share_state.share_records (key_id, kind, record) SELECT $3, $4, $5
WHERE EXISTS (SELECT FROM share_state.shards s WHERE s.shard = $1 AND s.owner_epoch = $2 FOR KEY SHARE)
"""

LOAD: Final = """
SELECT k.key_id, k.group_id, k.topic_id, k.partition, r.seq, r.kind, r.record
FROM unnest($1::text[], $2::uuid[], $3::int[]) AS t(group_id, topic_id, partition)
CROSS JOIN LATERAL (
  SELECT * FROM share_state.share_partitions k
  WHERE k.group_id = t.group_id AND k.topic_id = t.topic_id AND k.partition = t.partition LIMIT 1) k
LEFT JOIN share_state.share_records r ON r.key_id = k.key_id
ORDER BY k.key_id, r.seq
"""
"""Looks up each key by itself. PostgreSQL would plan a join while the table is empty, to read all of it,
and keep the plan."""


class LoadedRow(NamedTuple):
    seq: int
    kind: int
    record: bytes


class LoadedKey(NamedTuple):
    """The stored rows of one share-partition, in order."""

    key_id: int
    rows: list[LoadedRow]

    @property
    def size(self) -> int:
        return sum(len(row.record) for row in self.rows)


class StoredRow(NamedTuple):
    key_id: int
    kind: int
    record: bytes


class UnreadableRow(Exception):
    """A stored row cannot be decoded or replayed. The text names the row."""


async def append(connection: Any, epochs: Mapping[int, int], rows: Sequence[StoredRow]) -> bool:
    """Append rows, all or none. Returns: False if one of the shards has another owner: nothing is written then."""
    if len(rows) == 1:
        ((of_shard, epoch),) = epochs.items()
        status: str = await connection.execute(APPEND_ONE, of_shard, epoch, *rows[0])
    else:
        columns = [list(column) for column in zip(*rows, strict=True)]
        status = await connection.execute(APPEND, list(epochs), list(epochs.values()), *columns)
    return status == f"INSERT 0 {len(rows)}"


async def make_keys(connection: Any, keys: Sequence[SharePartitionKey]) -> None:
    await connection.execute(
        """INSERT INTO share_state.share_partitions (group_id, topic_id, partition)
           SELECT * FROM unnest($1::text[], $2::uuid[], $3::int[]) ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING""",
        *zip(*keys, strict=True),
    )


async def load(connection: Any, keys: Sequence[SharePartitionKey]) -> dict[SharePartitionKey, LoadedKey]:
    """The stored rows of share-partitions; without those that were never initialised."""
    found: dict[SharePartitionKey, LoadedKey] = {}
    for key_id, group_id, topic_id, partition, seq, kind, record in await connection.fetch(
        LOAD, *zip(*keys, strict=True)
    ):
        key = SharePartitionKey(group_id, str(topic_id), partition)
        loaded = found.setdefault(key, LoadedKey(key_id, []))
        if seq is not None:
            loaded.rows.append(LoadedRow(seq, kind, record))
    return found


def state_of(loaded: LoadedKey, updates_per_snapshot: int, *, sized: bool = True) -> KeyState | None:
    """Replay the rows of a share-partition, from its last snapshot or tombstone on.

    Args:
        sized: whether the bytes of rows decide, beside their number, when a snapshot is due.
    Raises: UnreadableRow: one of these.
    """
    last = max((place for place, row in enumerate(loaded.rows) if row.kind in SUPERSEDING), default=0)
    state: KeyState | None = None
    while last < len(loaded.rows):
        row, size = whole_row(loaded.rows, last)
        try:
            state = replay(state, row, updates_per_snapshot, size if sized else 0, stored=True)
        except ValueError as fault:
            raise UnreadableRow(f"row {loaded.rows[last].seq} cannot be read: {fault}") from fault
        last += 1 + row.parts
    return state


def whole_row(rows: Sequence[LoadedRow], place: int) -> tuple[Row, int]:
    """Decode a row; a snapshot and its parts are one. Returns: it, and its bytes. Raises: UnreadableRow."""
    row = decoded(rows[place])
    parts = rows[place + 1 : place + 1 + max(row.parts, 0)]
    if row.kind == PART or row.parts < 0 or (row.parts and row.kind != SNAPSHOT):
        raise UnreadableRow(f"row {rows[place].seq} cannot be read: it has the kind {row.kind} and {row.parts} parts")
    if [part.kind for part in parts] != [PART] * row.parts:
        raise UnreadableRow(f"row {rows[place].seq} cannot be read: {row.parts} parts belong to it")
    if parts:
        row = structs.replace(row, batches=[*row.batches, *(each for part in parts for each in decoded(part).batches)])
    return row, len(rows[place].record) + sum(len(part.record) for part in parts)


def decoded(stored: LoadedRow) -> Row:
    """Raises: UnreadableRow."""
    try:
        row = decode_row(stored.record)
    except ValueError as fault:
        raise UnreadableRow(f"row {stored.seq} cannot be read: {fault}") from fault
    if row.kind != stored.kind or row.kind not in (SNAPSHOT, UPDATE, TOMBSTONE, PART):
        raise UnreadableRow(f"row {stored.seq} cannot be read: its kind is {row.kind}")
    return row


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
        f"""SELECT k.group_id, k.topic_id, k.partition FROM share_state.share_partitions k
           JOIN (SELECT key_id FROM share_state.share_records GROUP BY key_id
                 HAVING bool_or(kind = {UPDATE}) AND max(written_at) < now() - make_interval(secs => $1 / 1000.0) LIMIT $2) c
             USING (key_id)""",
        interval_ms,
        limit,
    )
    return [SharePartitionKey(group_id, str(topic_id), partition) for group_id, topic_id, partition in rows]


PRUNE: Final = """
WITH last AS ({last}),
removed AS (
  DELETE FROM share_state.share_records r USING last
  WHERE r.key_id = last.key_id AND (r.seq < last.seq OR (r.seq = last.seq AND last.kind = $2))
  RETURNING r.seq)
SELECT (SELECT count(*) FROM removed), coalesce((SELECT min(seq) FROM last), 0)
"""
_LAST: Final = "r.seq, r.kind FROM share_state.share_records r"
PRUNE_ALL: Final = PRUNE.format(
    last=f"""SELECT DISTINCT ON (r.key_id) r.key_id, {_LAST}
             WHERE r.kind = ANY($1::smallint[]) ORDER BY r.key_id, r.seq DESC"""
)
PRUNE_KEYS: Final = PRUNE.format(
    last=f"""SELECT t.key_id, l.* FROM unnest($3::bigint[]) AS t(key_id) CROSS JOIN LATERAL (
               SELECT {_LAST} WHERE r.key_id = t.key_id AND r.kind = ANY($1::smallint[])
               ORDER BY r.seq DESC LIMIT 1) l"""
)


async def prune(connection: Any) -> tuple[int, int]:
    """Remove the rows that each key's last snapshot holds or its tombstone ends, and the tombstones.
    Reads the whole table.

    Returns: (rows removed, last pruned sequence number).
    """
    row = await connection.fetchrow(PRUNE_ALL, sorted(SUPERSEDING), TOMBSTONE)
    return row[0], row[1]


async def prune_keys(connection: Any, key_ids: Sequence[int]) -> int:
    """As `prune`, for some keys alone. Returns: rows removed."""
    removed: int = await connection.fetchval(PRUNE_KEYS, sorted(SUPERSEDING), TOMBSTONE, key_ids)
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
    """Remove keys that still have no rows. Their owner calls this between two commits,
    with these keys discarded from memory."""
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

"""The share coordinator's SQL, one function per statement. Schema `share_state`.

Each write is one statement. It locks the rows of its shards and compares the owner epochs
(`sharequeue.ownership.shard_store`), so an instance that another one replaced writes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sharequeue.ownership.shard_store import HELD
from sharequeue.protocol.messages.audit import ExportStateQuery
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_share_coordinator.share_state.row_format import decode_large, decode_row
from sharequeue_share_coordinator.share_state.rows import (
    LARGE_SNAPSHOT,
    SNAPSHOT,
    SUPERSEDING,
    TOMBSTONE,
    UPDATE,
    KeyState,
    replay,
    restored,
)

APPEND: Final = f"""
WITH held AS MATERIALIZED ({HELD.format(schema="share_state", shards="$1", epochs="$2")})
INSERT INTO share_state.share_records (key_id, kind, record, covers, snapshot_id)
SELECT t.key_id, t.kind, t.record, t.covers, t.snapshot_id
FROM unnest($3::bigint[], $4::smallint[], $5::bytea[], $6::bigint[], $7::bigint[])
  WITH ORDINALITY AS t(key_id, kind, record, covers, snapshot_id, n)
WHERE (SELECT count(*) FROM held) = cardinality($1)
ORDER BY t.n
RETURNING key_id, seq
"""

APPEND_ONE: Final = """
INSERT INTO share_state.share_records (key_id, kind, record, covers, snapshot_id)
SELECT $3, $4, $5, $6, $7
WHERE EXISTS (SELECT FROM share_state.shards s WHERE s.shard = $1 AND s.owner_epoch = $2 FOR KEY SHARE)
RETURNING seq
"""

LOAD: Final = """
SELECT k.key_id, k.group_id, k.topic_id, k.partition, r.seq, r.kind, r.record, r.snapshot_id
FROM unnest($1::text[], $2::uuid[], $3::int[]) AS t(group_id, topic_id, partition)
CROSS JOIN LATERAL (
  SELECT * FROM share_state.share_partitions k
  WHERE k.group_id = t.group_id AND k.topic_id = t.topic_id AND k.partition = t.partition LIMIT 1) k
LEFT JOIN share_state.share_records r ON r.key_id = k.key_id
ORDER BY k.key_id, r.seq
"""
"""Looks up each key by itself. PostgreSQL would plan a join while the table is empty, to read all of it,
and keep the plan."""


LOAD_PARTS: Final = """
SELECT p.key_id, p.data FROM share_state.snapshot_parts p
JOIN unnest($1::bigint[], $2::bigint[]) AS t(key_id, snapshot_id) USING (key_id, snapshot_id)
ORDER BY p.key_id, p.part
"""


class LoadedRow(NamedTuple):
    seq: int
    kind: int
    record: bytes


class LoadedKey(NamedTuple):
    """The stored rows of one share-partition, in order, and the parts of its large snapshot,
    if its last one is large."""

    key_id: int
    rows: list[LoadedRow]
    parts: list[bytes]

    @property
    def size(self) -> int:
        return sum(len(row.record) for row in self.rows) + sum(map(len, self.parts))


class StoredRow(NamedTuple):
    """A row to append. `covers`, `snapshot_id`: of a large snapshot."""

    key_id: int
    kind: int
    record: bytes
    covers: int | None = None
    snapshot_id: int | None = None


class UnreadableRow(Exception):
    """A stored row cannot be decoded or replayed. The text names the row."""


async def append(connection: Any, epochs: Mapping[int, int], rows: Sequence[StoredRow]) -> dict[int, int] | None:
    """Append rows, all or none. Returns: the last sequence number of each key; None if one of the shards has another
    owner: nothing is written then.
    """
    if len(rows) == 1:
        ((of_shard, epoch),) = epochs.items()
        seq = await connection.fetchval(APPEND_ONE, of_shard, epoch, *rows[0])
        return None if seq is None else {rows[0].key_id: seq}
    columns = [list(column) for column in zip(*rows, strict=True)]
    appended = await connection.fetch(APPEND, list(epochs), list(epochs.values()), *columns)
    if len(appended) != len(rows):
        return None
    last: dict[int, int] = {}
    for key_id, seq in appended:
        last[key_id] = max(seq, last.get(key_id, 0))
    return last


async def add_parts(connection: Any, key_id: int, parts: Sequence[bytes]) -> int:
    """Store the parts of a large snapshot, one row each. They count once a row of the state log names their id.

    Returns: that id.
    """
    snapshot_id: int = await connection.fetchval("SELECT nextval('share_state.snapshot_ids')")
    for number, part in enumerate(parts):
        await connection.execute(
            "INSERT INTO share_state.snapshot_parts (key_id, snapshot_id, part, data) VALUES ($1, $2, $3, $4)",
            key_id,
            snapshot_id,
            number,
            part,
        )
    return snapshot_id


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
    large: dict[int, int] = {}
    for key_id, group_id, topic_id, partition, seq, kind, record, snapshot_id in rows:
        key = SharePartitionKey(group_id, str(topic_id), partition)
        loaded = found.setdefault(key, LoadedKey(key_id, [], []))
        if seq is not None:
            loaded.rows.append(LoadedRow(seq, kind, record))
            if kind in SUPERSEDING:
                large[key_id] = snapshot_id or 0
    large = {key_id: snapshot_id for key_id, snapshot_id in large.items() if snapshot_id}
    if large:
        by_id = {loaded.key_id: loaded for loaded in found.values()}
        for key_id, data in await connection.fetch(LOAD_PARTS, list(large), list(large.values())):
            by_id[key_id].parts.append(data)
    return found


def state_of(loaded: LoadedKey, updates_per_snapshot: int, *, sized: bool = True) -> KeyState | None:
    """Replay the rows of a share-partition.

    Args:
        sized: whether the bytes of rows decide when a snapshot is due.
    Raises: UnreadableRow: a row since its last tombstone, or one behind its large snapshot.
    """
    state: KeyState | None = None
    unreadable: UnreadableRow | None = None
    rows = loaded.rows
    last = max((place for place, row in enumerate(rows) if row.kind in SUPERSEDING), default=-1)
    if last >= 0 and rows[last].kind == LARGE_SNAPSHOT:
        snapshot = rows[last]
        try:
            row = decode_row(snapshot.record)
            batches, base = decode_large(row, loaded.parts)
            state = restored(row, batches, base if sized else None)
            rows = [found for found in rows if found.seq > row.covers and found.seq != snapshot.seq]
        except ValueError as fault:
            raise UnreadableRow(f"row {snapshot.seq} cannot be read: {fault}") from fault
    for found in rows:
        try:
            row = decode_row(found.record)
            if row.kind not in (SNAPSHOT, UPDATE, TOMBSTONE):
                raise ValueError(f"its kind is {row.kind}")
            state = replay(state, row, updates_per_snapshot, len(found.record) if sized else 0)
        except ValueError as fault:
            unreadable = unreadable or UnreadableRow(f"row {found.seq} cannot be read: {fault}")
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
  WHERE r.key_id = last.key_id AND (r.seq < last.below OR (r.seq = last.seq AND last.kind = $2))
  RETURNING r.seq),
parts AS (
  DELETE FROM share_state.snapshot_parts p USING last
  WHERE p.key_id = last.key_id AND p.snapshot_id < last.snapshot_id)
SELECT (SELECT count(*) FROM removed), coalesce((SELECT min(below) FROM last), 0)
"""
"""`below`: the first row that is not in the snapshot."""
_LAST: Final = "r.seq, r.kind, coalesce(r.covers + 1, r.seq) AS below, r.snapshot_id FROM share_state.share_records r"
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


async def remove_lost_parts(connection: Any) -> None:
    """Remove parts that no row names an hour after they were stored: their snapshot never came to count,
    or no longer does."""
    await connection.execute(
        """DELETE FROM share_state.snapshot_parts p
           WHERE p.written_at < now() - interval '1 hour' AND NOT EXISTS (
             SELECT 1 FROM share_state.share_records r WHERE r.key_id = p.key_id AND r.snapshot_id = p.snapshot_id)"""
    )


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


async def export(connection: Any, query: ExportStateQuery) -> tuple[list[tuple[Any, ...]], dict[int, list[bytes]]]:
    """Share-partitions, all read at one moment.

    Returns: rows of (key id, group id, topic id, partition, seq, kind, record);
    the parts of their large snapshots, by id.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
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
        large = sorted({row[0] for row in rows if row[5] == LARGE_SNAPSHOT})
        parts: dict[int, list[bytes]] = {}
        if large:
            for snapshot_id, data in await connection.fetch(
                """SELECT snapshot_id, data FROM share_state.snapshot_parts
                   WHERE key_id = ANY($1::bigint[]) ORDER BY key_id, snapshot_id, part""",
                large,
            ):
                parts.setdefault(snapshot_id, []).append(data)
    return rows, parts

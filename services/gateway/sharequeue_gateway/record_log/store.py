"""The SQL of the record log, one function per statement. A partition ends at `greatest(end_floor, last batch + 1)`."""

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar
from uuid import UUID

from sharequeue.protocol.types import MAX_INT64
from sharequeue.slices import in_slices
from sharequeue_gateway.record_log.compression import kept_form
from sharequeue_gateway.record_log.record_batch import CorruptBatch, RecordBatch
from sharequeue_gateway.record_log.stored_batch import PackedBatch

Connection = Any  # asyncpg ships no types: asyncpg.Connection, or its pool proxy
Given = ParamSpec("Given")
Found = TypeVar("Found")
Asked = Callable[Concatenate[Connection, Given], Awaitable[Found]]


class Query(Protocol):
    """Calls a function with a connection and arguments: `LogDatabase.query`."""

    async def __call__(self, function: Asked[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found: ...


async def fetch(connection: Connection, statement: str, *arguments: Any) -> list[Any]:
    """The rows of a statement. For `Query`."""
    rows: list[Any] = await connection.fetch(statement, *arguments)
    return rows


async def execute(connection: Connection, statement: str, *arguments: Any) -> None:
    """Run a statement without rows. For `Query`."""
    await connection.execute(statement, *arguments)


HOUR_MS: Final = 3_600_000
NOW_MS: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


async def changed(connection: Connection, statement: str, *arguments: Any) -> int:
    """Run a statement that changes rows. Returns: how many."""
    status: str = await connection.execute(statement, *arguments)
    return int(status.rpartition(" ")[2])


async def remove_some(connection: Connection, table: str, which: str, most: int, *arguments: Any) -> int:
    """Remove some rows that nobody has locked. `which`: the condition and the order of rows; `arguments`: from $2 on.

    A time stands in a query of its own there: of a function that changes, PostgreSQL makes no condition of an index.
    Returns: how many.
    """
    return await changed(
        connection,
        f"""DELETE FROM log.{table} WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM log.{table} WHERE {which} LIMIT $1 FOR UPDATE SKIP LOCKED))""",
        most,
        *arguments,
    )


def columns_of(rows: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as arrays, one for each column; without rows, as many empty ones."""
    return [[row[place] for row in rows] for place in range(width)]


END = """greatest(p.end_floor, coalesce((SELECT b.last_offset + 1 FROM log.record_batches b
  WHERE b.topic_id = p.topic_id AND b.partition = p.partition ORDER BY b.base_offset DESC LIMIT 1), 0))"""

TRANSACTIONAL: Final = 16
"""`attributes` of a batch of a transaction."""

LASTSTABLE: Final = """greatest(p.log_start_offset, least(e.log_end_offset,
  CASE WHEN (SELECT true FROM log.transactions ORDER BY began_at LIMIT 1) THEN (
    SELECT o.first_offset FROM log.transaction_partitions o
    WHERE o.topic_id = p.topic_id AND o.partition = p.partition ORDER BY o.first_offset LIMIT 1) END))"""
"""The last stable offset of a partition `p` that ends at `e`. The first question is asked once a statement: while no
transaction is open, no partition is looked up."""

OWNED: Final = "coalesce('i' || t.transactional_id, 'p' || t.principal) LIKE ANY((SELECT string_to_array({owner}::text, chr(10)))::text[])"
"""Whether a transaction `t` is the caller's: see `owner.owner_of`."""

COPIED_BYTES: Final = 256 * 1024
"""Larger batches are inserted by COPY. A MiB then takes 1 ms of the gateway's time; in an array of bytea it takes 4,
because asyncpg copies it into the array, and the array into the message."""
MESSAGE_BYTES: Final = 64 * 1024
"""Of a message of COPY. asyncpg copies each one, into memory that it uses again and again if the messages are small;
and it makes messages of whole rows, which it copies twice."""
_BEGIN: Final = struct.Struct(">hih")
_NUMBERS: Final = struct.Struct(">iiiqiqiqii")
_SIZE: Final = struct.Struct(">i")

MOST_OF_TRANSACTION: Final = 1000
"""The most partitions of a transaction: its end locks them all."""

MAY_APPEND: Final = f"""pg_try_advisory_xact_lock({{lock_key}}) AND (
    SELECT {END} FROM log.partitions p
    WHERE p.topic_id = {{topic_id}} AND p.partition = {{partition}} AND NOT p.deleted) = {{base_offset}}"""
"""The end is a value, and not EXISTS, which a plan may join: it then finds the ends of all partitions."""

COLUMNS: Final = "topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count, append_id, records, uncompressed_bytes"

INSERT = f"""
INSERT INTO log.record_batches ({COLUMNS}, transaction_id, attributes)
SELECT t.*, $10, $11
FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::int[], $7::uuid[], $8::bytea[], $9::int[]) AS t
"""

ASIDE_BYTES: Final = 1024 * 1024
"""More bytes of batches are compressed in a thread, so that they do not stop the event loop."""
AT_ONCE: Final = 256
"""The most batches that one query reads."""

_READ_COLUMNS: Final = "base_offset, last_offset, max_timestamp_ms, records, transaction_id, uncompressed_bytes"
"""The arguments of `RecordBatch.decode` and of `PackedBatch`."""

MEMORY_BYTES: Final = "coalesce(uncompressed_bytes, octet_length(records))"
"""The size of a batch in memory."""

FROM_BATCH: Final = """base_offset >= coalesce((
  SELECT base_offset FROM log.record_batches
  WHERE topic_id = $1 AND partition = $2 AND base_offset <= $3 ORDER BY base_offset DESC LIMIT 1), $3)"""
"""The batches from the one that holds the offset $3 on, or from the next one."""

READ = f"""
SELECT {_READ_COLUMNS}
FROM (
  SELECT {_READ_COLUMNS},
    sum({MEMORY_BYTES}) FILTER (WHERE last_offset >= $3) OVER in_order - {MEMORY_BYTES} AS before,
    sum(octet_length(records)) FILTER (WHERE last_offset >= $3) OVER in_order - octet_length(records) AS stored_before
  FROM (
    SELECT {_READ_COLUMNS} FROM log.record_batches
    WHERE topic_id = $1 AND partition = $2 AND {FROM_BATCH}
    ORDER BY base_offset LIMIT $5) ahead
  WINDOW in_order AS (ORDER BY base_offset)) sizes
WHERE before < $4 AND stored_before < $6 AND last_offset >= $3 AND (base_offset <= $7 OR before = 0)
ORDER BY base_offset
"""
"""Batches from the one that holds the offset $3 on. From the second on they begin within limits: $4 bytes in memory,
$5 batches, $6 bytes as stored, the last offset $7. The subqueries use sizes and references of the records. PostgreSQL
loads only the returned records."""


class Bounds(NamedTuple):
    """The bounds of a partition, and its number of replacements."""

    log_start_offset: int
    log_end_offset: int
    deleted: bool
    replacements: int
    last_stable_offset: int
    """The first offset of the oldest open transaction here, or the log end; never below the log start."""


NO_BOUNDS: Final = Bounds(0, 0, False, 0, 0)
"""Of a partition without any append."""


@lru_cache(maxsize=16_384)
def lock_key(topic_id: str, partition: int) -> int:
    """The advisory lock of a partition."""
    digest = hashlib.blake2b(f"{topic_id}/{partition}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def lock_keys(places: Iterable[tuple[str, int]]) -> list[int]:
    """The advisory locks of partitions, in the order in which every gateway takes them."""
    return sorted(lock_key(*place) for place in places)


Row = tuple[str, int, RecordBatch, str]
"""A batch to store, with its topic id, its partition and its append id."""
Rows = Sequence[Row]


async def kept_forms(batches: Sequence[RecordBatch]) -> list[tuple[bytes, int | None]]:
    """`kept_form` of each batch. Large ones are compressed in a thread: LZ4 takes up to 17 ms for 10 MiB."""
    if sum([len(batch.stored) for batch in batches]) < ASIDE_BYTES:
        return [kept_form(batch.stored) for batch in batches]
    return await asyncio.to_thread(lambda: [kept_form(batch.stored) for batch in batches])


def columns(batches: Rows, kept: Sequence[tuple[bytes, int | None]]) -> list[list[Any]]:
    """Batches as the arrays that INSERT takes. `kept`: see `compression.kept_form`."""
    return [
        [topic_id for topic_id, _, _, _ in batches],
        [partition for _, partition, _, _ in batches],
        [batch.base_offset for _, _, batch, _ in batches],
        [batch.last_offset for _, _, batch, _ in batches],
        [batch.max_timestamp_ms for _, _, batch, _ in batches],
        [batch.record_count for _, _, batch, _ in batches],
        [append_id for _, _, _, append_id in batches],
        [records for records, _ in kept],
        [size for _, size in kept],
    ]


async def insert(connection: Connection, batches: Iterable[Row], size: int, transaction_id: str | None = None) -> None:
    """Insert batches, all of one transaction. `size`: about the bytes of their records.

    Of a large insert, each batch is made when the one before it is on its way: PostgreSQL stores that one meanwhile.
    Other tasks run between batches.
    """
    attributes = 0 if transaction_id is None else TRANSACTIONAL
    if size >= COPIED_BYTES:
        names = f"attributes, transaction_id, {COLUMNS}".split(", ")
        rows = _binary_rows(batches, transaction_id, attributes)
        await connection.copy_to_table("record_batches", schema_name="log", columns=names, source=rows, format="binary")
    else:
        batches = list(batches)
        kept = await kept_forms([batch for _, _, batch, _ in batches])
        await connection.execute(INSERT, *columns(batches, kept), transaction_id, attributes)


async def _binary_rows(batches: Iterable[Row], transaction_id: str | None, attributes: int) -> AsyncIterator[Any]:
    """Rows in the binary format of COPY, in messages that are hardly larger than MESSAGE_BYTES."""
    made = bytearray(b"PGCOPY\n\xff\r\n\0" + bytes(8))
    text = None if transaction_id is None else transaction_id.encode()
    async for topic_id, partition, batch, append_id in in_slices(batches):
        ((records, size),) = await kept_forms([batch])
        made += _BEGIN.pack(11, 2, attributes) + _field(text) + _field(UUID(topic_id).bytes)
        offsets = 8, batch.base_offset, 8, batch.last_offset
        made += _NUMBERS.pack(4, partition, *offsets, 8, batch.max_timestamp_ms, 4, batch.record_count)
        made += _field(UUID(append_id).bytes) + _SIZE.pack(len(records))
        for start in range(0, len(records), MESSAGE_BYTES):
            if len(made) >= MESSAGE_BYTES:
                yield made
                made = bytearray()
            made += memoryview(records)[start : start + MESSAGE_BYTES]
        made += _field(None if size is None else _SIZE.pack(size))
    yield made + b"\xff\xff"


def _field(value: bytes | None) -> bytes:
    return _SIZE.pack(-1) if value is None else _SIZE.pack(len(value)) + value


async def wait_for_standby(connection: Connection) -> None:
    """Have the commit of this transaction wait for a synchronous standby, although it writes no row. A row that an
    earlier transaction has left may not be there yet, if that commit was cancelled while it waited."""
    await connection.execute("SELECT pg_logical_emit_message(true, 'sharequeue', '')")


async def lock(connection: Connection, places: Sequence[tuple[str, int]]) -> None:
    """Take the advisory locks of partitions until the transaction ends, in the same order in every gateway.

    Take these first, then rows of `log.readers`, then rows of `log.partitions`.
    At most MOST_PARTITIONS: PostgreSQL has room for some thousand locks (max_locks_per_transaction × max_connections),
    and when they are used up it refuses every other transaction.
    """
    await connection.execute(
        """SELECT pg_advisory_xact_lock(key)
           FROM (SELECT set_config('lock_timeout', '10s', true) AS timeout) s, unnest($1::bigint[]) AS t(key)
           WHERE s.timeout IS NOT NULL""",
        lock_keys(places),
    )


async def make_partitions(connection: Connection, places: Sequence[tuple[str, int]]) -> None:
    """Make missing partition rows. Existing rows do not change, even if they are marked as deleted."""
    await connection.execute(
        """INSERT INTO log.partitions (topic_id, partition)
           SELECT * FROM unnest($1::uuid[], $2::int[]) ORDER BY 1, 2 ON CONFLICT DO NOTHING""",
        *columns_of(places, 2),
    )


_BOUNDS: Final = f"p.log_start_offset, e.log_end_offset, p.deleted, p.replacements, {LASTSTABLE}"


async def bounds(connection: Connection, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Bounds]:
    """The bounds of partitions. A partition without any append is left out."""
    rows = await connection.fetch(
        f"""SELECT p.topic_id, p.partition, {_BOUNDS}
            FROM log.partitions p JOIN unnest($1::uuid[], $2::int[]) AS t(topic_id, partition) USING (topic_id, partition)
            CROSS JOIN LATERAL (SELECT {END} AS log_end_offset) e""",
        *columns_of(places, 2),
    )
    return {(str(row[0]), row[1]): Bounds(*row[2:]) for row in rows}


async def judge(
    connection: Connection, place: tuple[str, int], transaction_ids: Sequence[str | None]
) -> tuple[Bounds, set[str]]:
    """The bounds of a partition, and those of the transactions that were aborted in it, as of one moment.

    The others of them were committed, if they ended below the last stable offset and not below the log start: the row
    of an aborted transaction is kept until the log start has passed its marker.
    """
    row = await connection.fetchrow(
        f"""SELECT {_BOUNDS}, ARRAY(
              SELECT a.transaction_id FROM log.aborted_transactions a
              WHERE a.topic_id = p.topic_id AND a.partition = p.partition AND a.transaction_id = ANY($3::text[]))
            FROM log.partitions p CROSS JOIN LATERAL (SELECT {END} AS log_end_offset) e
            WHERE p.topic_id = $1 AND p.partition = $2""",
        *place,
        transaction_ids,
    )
    return (NO_BOUNDS, set()) if row is None else (Bounds(*row[:-1]), set(row[-1]))


async def appended(
    connection: Connection, topic_id: str, partition: int, append_id: str, base_offset: int
) -> int | None:
    """Look up an append whose outcome was lost. Returns: its base offset; None if it did not happen."""
    found: int | None = await connection.fetchval(
        """SELECT base_offset FROM log.record_batches
           WHERE topic_id = $1 AND partition = $2 AND base_offset >= $4 AND append_id = $3 LIMIT 1""",
        topic_id,
        partition,
        append_id,
        base_offset,
    )
    return found


def decode(topic_id: str, partition: int, row: Sequence[Any]) -> RecordBatch:
    """`row`: of _READ_COLUMNS. Raises: CorruptBatch, which names the place of the batch, and the way past it."""
    try:
        return RecordBatch.decode(*row)
    except CorruptBatch as fault:
        raise CorruptBatch(
            f"the batch at the offsets {row[0]} to {row[1]} in partition {partition} of the topic with the id {topic_id}"
            f" cannot be decoded ({fault}); delete-records with before_offset {row[1] + 1} there steps over it"
        ) from None


def _up_to_corrupt(rows: Iterable[Any], batch_of: Callable[[Any], Any]) -> list[Any]:
    """The batches of rows, before the first one that cannot be decoded. Raises: CorruptBatch: that is the first row."""
    batches: list[Any] = []
    for row in rows:
        try:
            batches.append(batch_of(row))
        except CorruptBatch:
            if not batches:
                raise
            break
    return batches


async def read(
    connection: Connection, topic_id: str, partition: int, offset: int, ahead_bytes: int
) -> list[RecordBatch]:
    """Batches from the one that holds `offset` on. The last one may go beyond `ahead_bytes`. Raises: CorruptBatch."""
    rows = await connection.fetch(READ, topic_id, partition, offset, ahead_bytes, AT_ONCE, ahead_bytes, MAX_INT64)
    return _up_to_corrupt(rows, partial(decode, topic_id, partition))


async def read_packed(
    connection: Connection,
    topic_id: str,
    partition: int,
    offset: int,
    compressed_bytes: int,
    max_bytes: int,
    max_records: int,
) -> list[RecordBatch | PackedBatch]:
    """As `read`, but no batch behind the limits. The last one may go beyond `compressed_bytes` or `max_bytes`.

    A compressed batch stays compressed if it begins at `offset` or later and lies within the limits.
    Raises: CorruptBatch.
    """
    last_offset = min(offset + max_records - 1, MAX_INT64)
    rows = await connection.fetch(READ, topic_id, partition, offset, max_bytes, AT_ONCE, compressed_bytes, last_offset)

    def batch_of(row: Any) -> RecordBatch | PackedBatch:
        first, last, _, _, _, uncompressed_bytes = row
        whole = offset <= first and last < offset + max_records
        packed = whole and uncompressed_bytes is not None and uncompressed_bytes <= max_bytes
        return PackedBatch(*row) if packed else decode(topic_id, partition, row)

    return _up_to_corrupt(rows, batch_of)


async def first_batch_since(
    connection: Connection, topic_id: str, partition: int, from_offset: int, before_offset: int, timestamp_ms: int
) -> int | None:
    """The base offset of the first batch between the two offsets with a timestamp at or after the given one."""
    found: int | None = await connection.fetchval(
        f"""SELECT base_offset FROM log.record_batches
           WHERE topic_id = $1 AND partition = $2 AND last_offset >= $3 AND {FROM_BATCH}
             AND base_offset < $4 AND max_timestamp_ms >= $5
           ORDER BY base_offset LIMIT 1""",
        topic_id,
        partition,
        from_offset,
        before_offset,
        timestamp_ms,
    )
    return found


async def raise_log_starts(connection: Connection, topic_id: str, to: Sequence[tuple[int, int, int]]) -> None:
    """Move log starts up and store the ends. The purge removes the rows below them later: see `purging`.

    `to`: partitions, each with its log start and its log end.
    """
    await connection.execute(
        """UPDATE log.partitions p SET log_start_offset = greatest(p.log_start_offset, t.log_start),
             end_floor = greatest(p.end_floor, t.log_end), trimmed_at = coalesce(p.trimmed_at, clock_timestamp()),
             purge_before = CASE WHEN p.trimmed_at IS NULL THEN greatest(p.log_start_offset, t.log_start)
                            ELSE p.purge_before END
           FROM unnest($2::int[], $3::bigint[], $4::bigint[]) AS t(partition, log_start, log_end)
           WHERE p.topic_id = $1 AND p.partition = t.partition""",
        topic_id,
        *columns_of(to, 3),
    )


async def start_by_bytes(connection: Connection, topic_id: str, partition: int, retention_bytes: int) -> int | None:
    """The base offset of the oldest batch that fits in `retention_bytes`. The newest batch with records always fits,
    and the markers behind it."""
    found: int | None = await connection.fetchval(
        """SELECT min(base_offset) FROM (
             SELECT base_offset, sum(octet_length(records)) OVER newest_first AS kept,
               count(*) FILTER (WHERE attributes & 32 = 0) OVER newest_first AS number
             FROM log.record_batches WHERE topic_id = $1 AND partition = $2
             WINDOW newest_first AS (ORDER BY base_offset DESC)) sizes
           WHERE kept <= $3 OR number <= 1""",
        topic_id,
        partition,
        retention_bytes,
    )
    return found

"""Compaction of the log: records are removed from stored batches; rows and offsets stay. The caller chooses the
records.

A replacement names the generation of each batch that the caller has read, so an outdated replacement changes nothing.
Replacements only remove records: a removed record cannot come back.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sharequeue.protocol.errors import InvalidUpdateVersion, UnknownTopicOrPartition
from sharequeue.protocol.messages.compaction import RecordBatchListing, ReplacedBatch
from sharequeue.protocol.types import TopicIdPartition
from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.dead_letters import dead_letter_sources
from sharequeue_gateway.record_log.log import OffsetOutOfRange
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.store import Bounds, Connection
from sharequeue_http.forms.errors import InvalidRequest, TooLarge

MAX_BYTES: Final = 64 * 1024 * 1024
"""The most bytes in memory of the batches of one replacement. A single batch may be larger."""
PIECE_BYTES: Final = 128 * 1024
PIECE_BATCHES: Final = 100
PIECES: Final = 64
"""A replacement reads and stores so many bytes and batches at once, or the 64th part of its bytes: memory has no more
of it."""


class Replacement(NamedTuple):
    """Removes ranges (ascending, disjoint, inclusive) from a batch, if it still has this generation."""

    base_offset: int
    generation: int
    removed: Sequence[tuple[int, int]]


async def stored_batches(
    connection: Connection, topic_id: str, partition: int, offset: int, limit: int
) -> list[RecordBatchListing]:
    """Batches from the one that holds `offset`, or from the next one."""
    rows = await connection.fetch(
        f"""SELECT base_offset, last_offset, max_timestamp_ms, record_count, generation,
             {store.MEMORY_BYTES} AS size_bytes,
             b.transaction_id IS NOT NULL AND b.attributes & 32 = 0 AND EXISTS (
               SELECT FROM log.aborted_transactions a
               WHERE a.topic_id = b.topic_id AND a.partition = b.partition AND a.transaction_id = b.transaction_id) AS aborted
           FROM log.record_batches b
           WHERE topic_id = $1 AND partition = $2 AND last_offset >= $3 AND {store.FROM_BATCH}
           ORDER BY base_offset LIMIT $4""",
        topic_id,
        partition,
        offset,
        limit,
    )
    return [RecordBatchListing(**row) for row in rows]


async def sizes(
    connection: Connection, topic_id: str, partition: int, base_offsets: Sequence[int]
) -> list[tuple[int, int]]:
    """The base offset and the bytes in memory of each of these batches that exists, ascending."""
    rows = await connection.fetch(
        f"""SELECT base_offset, {store.MEMORY_BYTES} FROM log.record_batches
           WHERE topic_id = $1 AND partition = $2 AND base_offset = ANY($3::bigint[]) ORDER BY base_offset""",
        topic_id,
        partition,
        base_offsets,
    )
    return [(row[0], row[1]) for row in rows]


async def whole_batches(
    connection: Connection, topic_id: str, partition: int, base_offsets: Sequence[int]
) -> dict[int, tuple[int, RecordBatch]]:
    """Generation and batch by base offset; missing batches are left out."""
    rows = await connection.fetch(
        """SELECT base_offset, last_offset, max_timestamp_ms, records, transaction_id, uncompressed_bytes, generation
           FROM log.record_batches
           WHERE topic_id = $1 AND partition = $2 AND base_offset = ANY($3::bigint[])""",
        topic_id,
        partition,
        base_offsets,
    )
    return {row[0]: (row[6], store.decode(topic_id, partition, row[:6])) for row in rows}


async def replace(
    connection: Connection, topic_id: str, partition: int, batches: Sequence[tuple[int, RecordBatch]]
) -> set[int]:
    """Store each (generation, batch) in place of the batch of that generation. Returns: the replaced base offsets.

    A plan that is made without these values may join row by row: it must not copy all records for each row, nor read
    the whole partition. So the join has numbers instead of records, and the base offsets are named once more. So are
    the first and the last: PostgreSQL 16 may read in order of the index, which it cannot do by a list.
    """
    base_offsets = [batch.base_offset for _, batch in batches]
    kept = await store.kept_forms([batch for _, batch in batches])
    rows = await connection.fetch(
        """UPDATE log.record_batches b
           SET records = ($6::bytea[])[n.number], uncompressed_bytes = n.uncompressed_bytes,
             record_count = n.record_count, generation = b.generation + 1
           FROM unnest($3::bigint[], $4::int[], $5::int[], $9::int[]) WITH ORDINALITY
             AS n(base_offset, generation, record_count, uncompressed_bytes, number)
           WHERE b.topic_id = $1 AND b.partition = $2 AND b.base_offset = ANY($3::bigint[])
             AND b.base_offset BETWEEN $7 AND $8 AND b.base_offset = n.base_offset AND b.generation = n.generation
           RETURNING b.base_offset""",
        topic_id,
        partition,
        base_offsets,
        [generation for generation, _ in batches],
        [batch.record_count for _, batch in batches],
        [records for records, _ in kept],
        min(base_offsets),
        max(base_offsets),
        [size for _, size in kept],
    )
    return {row[0] for row in rows}


async def count_replacement(connection: Connection, topic_id: str, partition: int) -> int:
    """Make every gateway drop the batches of the partition from memory. Returns: its number of replacements."""
    counted: int = await connection.fetchval(
        """UPDATE log.partitions SET replacements = replacements + 1
           WHERE topic_id = $1 AND partition = $2 RETURNING replacements""",
        topic_id,
        partition,
    )
    return counted


class Compaction:
    """The capability `replace_batches` of the record log."""

    def __init__(self, database: LogDatabase, cache: BatchCache) -> None:
        self._query = database.query
        self._cache = cache

    async def batches(
        self, topic_id: str, partition: int, offset: int, limit: int
    ) -> tuple[list[RecordBatchListing], Bounds]:
        """Batches from the one that holds `offset`, and the partition's bounds. Raises: OffsetOutOfRange."""
        place = (topic_id, partition)
        bounds = (await self._query(store.bounds, [place])).get(place, store.NO_BOUNDS)
        if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not within {bounds.log_start_offset} to {bounds.log_end_offset}",
                bounds.log_start_offset,
            )
        found = await self._query(stored_batches, topic_id, partition, offset, limit)
        return [batch for batch in found if batch.last_offset < bounds.log_end_offset], bounds

    async def replace(self, topic_id: str, partition: int, replacements: Sequence[Replacement]) -> list[ReplacedBatch]:
        """Remove records from batches, all or none. A repeated replacement succeeds again.

        Raises: InvalidUpdateVersion (409): a batch is of another generation, or gone. OffsetOutOfRange: at or above
            the last stable offset. InvalidRequest: the newest batch; the marker of a transaction; ranges outside of
            their batch. TooLarge.
        """
        place = (topic_id, partition)
        wanted = {replacement.base_offset: replacement for replacement in replacements}
        size_of = dict(await self._query(sizes, topic_id, partition, list(wanted)))
        for base_offset in wanted:
            if base_offset not in size_of:
                raise _missing(base_offset)
        size = sum(size_of.values())
        if len(wanted) > 1 and size > MAX_BYTES:
            raise TooLarge(f"these batches have {size} bytes together, more than {MAX_BYTES}", limit=MAX_BYTES)
        done, counted = await self._query(_replace_in_pieces, place, wanted, size_of)
        if counted is not None:
            self._cache.set_replacements(place, counted)
        by_base = {entry.base_offset: entry for entry in done}
        return [by_base[replacement.base_offset] for replacement in replacements]


async def _replace_in_pieces(
    connection: Connection, place: TopicIdPartition, wanted: dict[int, Replacement], size_of: dict[int, int]
) -> tuple[list[ReplacedBatch], int | None]:
    """Read, check and store batches, a piece of them after the other, in one transaction under the lock of `place`.

    `size_of`: the bytes in memory of each batch; they only decide how large the pieces are.
    Returns: the new form of each batch, and the partition's number of replacements; None: every one is a repeat.
    """
    done: list[ReplacedBatch] = []
    changed: list[int] = []
    async with connection.transaction():
        await store.lock(connection, [place])
        bounds = (await store.bounds(connection, [place])).get(place)
        if bounds is None or bounds.deleted:
            raise UnknownTopicOrPartition("the topic was deleted, or has no records")
        for piece in _pieces(size_of):
            found = await whole_batches(connection, *place, piece)
            _check_places(piece, found, bounds)
            smaller, answered = await asyncio.to_thread(_apply, piece, wanted, found)
            done += answered
            if smaller:
                stored = await replace(connection, *place, smaller)
                for _, batch in smaller:
                    if batch.base_offset not in stored:
                        raise _overtaken(batch.base_offset)
                changed += [batch.base_offset for _, batch in smaller]
        if not changed:
            return done, None
        counted = await count_replacement(connection, *place)
        removed = [each for base_offset in changed for each in wanted[base_offset].removed]
        await dead_letter_sources.remove(connection, place[0], {place[1]: removed})
        return done, counted


def _pieces(size_of: dict[int, int]) -> Iterator[list[int]]:
    """Ascending base offsets of batches that are read and stored together."""
    most = max(PIECE_BYTES, sum(size_of.values()) // PIECES)
    piece: list[int] = []
    size = 0
    for base_offset in sorted(size_of):
        if piece and (len(piece) == PIECE_BATCHES or size + size_of[base_offset] > most):
            yield piece
            piece, size = [], 0
        piece.append(base_offset)
        size += size_of[base_offset]
    if piece:
        yield piece


def _apply(
    piece: Sequence[int], wanted: dict[int, Replacement], found: dict[int, tuple[int, RecordBatch]]
) -> tuple[list[tuple[int, RecordBatch]], list[ReplacedBatch]]:
    """Apply the replacements of a piece. `found`: its batches; it is empty afterwards, so that they are freed.

    Returns: the batches to store, as (generation before, batch); and the new form of each.
    """
    changed, done = [], []
    for base_offset in piece:
        replacement = wanted[base_offset]
        generation, batch = found.pop(base_offset)
        if batch.control:
            raise InvalidRequest(f"{base_offset} is the marker of a transaction, which holds no records")
        _check_ranges(replacement, batch)
        smaller = batch.without(replacement.removed)
        if generation == replacement.generation:
            changed.append((generation, smaller))
        elif generation != replacement.generation + 1 or smaller.record_count != batch.record_count:  # it is no repeat
            raise _overtaken(base_offset)
        done.append(
            ReplacedBatch(
                base_offset=base_offset, generation=replacement.generation + 1, record_count=smaller.record_count
            )
        )
    return changed, done


def _check_ranges(replacement: Replacement, batch: RecordBatch) -> None:
    position = batch.base_offset
    for first, last in replacement.removed:
        if not position <= first <= last <= batch.last_offset:
            raise InvalidRequest(
                f"{first} to {last} is not an ascending range of the batch {batch.base_offset} to {batch.last_offset}"
            )
        position = last + 1


def _check_places(piece: Sequence[int], found: dict[int, tuple[int, RecordBatch]], bounds: Bounds) -> None:
    """Refuse batches that are gone, that reach the last stable offset, that were deleted, and the newest one."""
    stable = bounds.last_stable_offset
    for base_offset in piece:
        if base_offset not in found:
            raise _missing(base_offset)
        last_offset = found[base_offset][1].last_offset
        if last_offset < bounds.log_start_offset:
            raise InvalidUpdateVersion(f"the batch at {base_offset} was deleted: list the batches again")
        if last_offset >= stable:
            raise OffsetOutOfRange(
                f"the batch at {base_offset} reaches the last stable offset {stable}", bounds.log_start_offset
            )
        if last_offset + 1 == bounds.log_end_offset:
            raise InvalidRequest(f"the batch at {base_offset} is the newest one, which cannot be compacted")


def _missing(base_offset: int) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(f"there is no batch at {base_offset}: list the batches again")


def _overtaken(base_offset: int) -> InvalidUpdateVersion:
    return InvalidUpdateVersion(f"the batch at {base_offset} was replaced since it was listed: list the batches again")

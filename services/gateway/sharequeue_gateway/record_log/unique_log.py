"""Appends of records whose keys must be new: a repeat within a time gets the place of the first record.

A key is a row of `log.unique_keys`, which changes in the transaction of the append. Two requests with one key meet at
the lock of its row: the second one waits, and finds what the first has appended. PostgreSQL's clock ends a key.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.locked_append import Inserted, LockedAppend, answer_of, keep_answer
from sharequeue_gateway.record_log.log import IdempotencyKey, PartitionAppend

NOW_MS: Final = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_TAKE: Final = f"""
INSERT INTO log.unique_keys AS u (topic_id, key_digest, expires_at_ms, partition, record_offset)
SELECT $1::uuid, t.key_digest, 0, 0, 0 FROM unnest($2::bytea[]) AS t(key_digest) ORDER BY 1, 2
ON CONFLICT (topic_id, key_digest) DO UPDATE SET expires_at_ms = u.expires_at_ms
RETURNING key_digest, expires_at_ms > {NOW_MS}, partition, record_offset
"""
"""Lock the rows of keys in one order, and make those that are missing: their time has passed."""
_LOOK: Final = f"""
SELECT u.key_digest, u.partition, u.record_offset, u.record_offset < p.log_start_offset
FROM log.unique_keys u JOIN log.partitions p USING (topic_id, partition)
WHERE u.topic_id = $1 AND u.key_digest = ANY($2) AND u.expires_at_ms > {NOW_MS}
"""
_KEEP: Final = f"""
UPDATE log.unique_keys u SET expires_at_ms = {NOW_MS} + $2, partition = t.partition, record_offset = t.record_offset
FROM unnest($3::bytea[], $4::int[], $5::bigint[]) AS t(key_digest, partition, record_offset)
WHERE u.topic_id = $1 AND u.key_digest = t.key_digest
"""


class UniqueRecord(NamedTuple):
    """`tail`: as in PartitionAppend."""

    partition: int
    key_digest: bytes
    tail: bytes


class UniquePlace(NamedTuple):
    """The place of the record with the key. `duplicate`: an earlier request, or record, has put it there."""

    partition: int
    offset: int
    duplicate: bool


class Kept(NamedTuple):
    """A row that counts. `removed`: the log does not have the record any more."""

    key_digest: bytes
    partition: int
    offset: int
    removed: bool


class UniqueLog:
    """Appends what is new, all or none. Each method may raise StorageError."""

    def __init__(self, database: LogDatabase, locked_append: LockedAppend, deadline_s: float) -> None:
        self._database = database
        self._locked_append = locked_append
        self._deadline_s = deadline_s

    async def look(self, topic_id: str, key_digests: Sequence[bytes]) -> list[Kept]:
        """Read the rows of keys that count now. Nothing is locked."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_LOOK, topic_id, key_digests)
        return [Kept(*row) for row in rows]

    async def append(
        self,
        topic_id: str,
        records: Sequence[UniqueRecord],
        finished: Collection[Kept],
        timestamp_ms: int,
        within_ms: int,
        key: IdempotencyKey | None,
        answer: Callable[[Sequence[UniquePlace]], bytes],
    ) -> bytes:
        """Append the records whose key is new.

        Args:
            finished: rows that count no longer, as `look` has found them. A row that has changed since counts.
            key, answer: as in `ScheduledLog.schedule`.
        Returns: the answer. Raises: UnknownTopicOrPartition: the topic is deleted.
        """
        async with self._database.transaction(self._deadline_s, "unique records cannot be appended") as connection:
            if key is not None and (first := await answer_of(connection, key)) is not None:
                await store.wait_for_standby(connection)
                return first.answer or b""
            firsts = {record.key_digest: record for record in reversed(records)}
            rows = await connection.fetch(_TAKE, topic_id, list(firsts))
            over = {row[:3] for row in finished}
            known = {
                row[0]: UniquePlace(row[2], row[3], True)
                for row in rows
                if row[1] and (row[0], row[2], row[3]) not in over
            }
            new = [record for digest, record in reversed(firsts.items()) if digest not in known]
            inserted: Inserted = []
            if new:
                inserted, made = await self._insert(connection, topic_id, new, timestamp_ms)
                known |= made
                columns = ([*made], [p.partition for p in made.values()], [p.offset for p in made.values()])
                await connection.execute(_KEEP, topic_id, within_ms, *columns)
            else:
                await store.wait_for_standby(connection)
            fresh = {record.key_digest: id(record) for record in new}
            body = answer(
                [
                    known[record.key_digest]._replace(duplicate=fresh.get(record.key_digest) != id(record))
                    for record in records
                ]
            )
            if key is not None:
                await keep_answer(connection, key._replace(answer=lambda _: body), ())
        self._locked_append.publish(inserted)
        return body

    async def _insert(
        self, connection: store.Connection, topic_id: str, new: Sequence[UniqueRecord], timestamp_ms: int
    ) -> tuple[Inserted, dict[bytes, UniquePlace]]:
        """Append new records. Returns: the batches, and the place of each key."""
        by_partition: dict[int, list[UniqueRecord]] = {}
        for record in new:
            by_partition.setdefault(record.partition, []).append(record)
        appends = [
            PartitionAppend(topic_id, partition, [record.tail for record in some], timestamp_ms)
            for partition, some in by_partition.items()
        ]
        inserted = await self._locked_append.insert(connection, appends, store.new_append_id(), [])
        made = {}
        for (partition, some), (_, batch) in zip(by_partition.items(), inserted, strict=True):
            for offset, record in enumerate(some, batch.base_offset):
                made[record.key_digest] = UniquePlace(partition, offset, False)
        return inserted, made


async def remove_old(connection: store.Connection, at_once: int, _: int) -> int:
    """Remove some keys whose time has passed: a stage of the purge. Returns: how many."""
    status: str = await connection.execute(
        f"""DELETE FROM log.unique_keys u USING (
              SELECT topic_id, key_digest FROM log.unique_keys WHERE expires_at_ms <= {NOW_MS}
              ORDER BY expires_at_ms LIMIT $1 FOR UPDATE SKIP LOCKED) old
            WHERE u.topic_id = old.topic_id AND u.key_digest = old.key_digest""",
        at_once,
    )
    return int(status.rpartition(" ")[2])

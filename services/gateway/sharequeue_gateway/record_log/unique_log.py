"""Appends of records whose keys must be new: a repeat within a time gets the place of the first record.

A key is a row of `log.unique_keys`, which changes in the transaction of the append. Two requests with one key meet at
the lock of its row: the second one waits, and finds what the first has appended. PostgreSQL's clock ends a key. That of
a scheduled record has its id until the record enters the log: a cancel removes the row, and no group is asked about it.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar
from uuid import UUID

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.locked_append import LockedAppend, Together
from sharequeue_gateway.record_log.log import IdempotencyKey

_TAKE: Final = f"""
INSERT INTO log.unique_keys AS u (topic_id, key_digest, expires_at_ms, partition, record_offset)
SELECT $1::uuid, t.key_digest, 0, 0, 0 FROM unnest($2::bytea[]) AS t(key_digest) ORDER BY 1, 2
ON CONFLICT (topic_id, key_digest) DO UPDATE SET expires_at_ms = u.expires_at_ms
RETURNING key_digest, expires_at_ms > {store.NOW_MS}, partition, record_offset, schedule_id::text
"""
"""Lock the rows of keys in one order, and make those that are missing: their time has passed."""
_LOOK: Final = f"""
SELECT u.key_digest, u.partition, u.record_offset, u.record_offset < p.log_start_offset
FROM log.unique_keys u JOIN log.partitions p USING (topic_id, partition)
WHERE u.topic_id = $1 AND u.key_digest = ANY($2) AND u.expires_at_ms > {store.NOW_MS} AND u.schedule_id IS NULL
"""
_KEEP: Final = f"""
UPDATE log.unique_keys u SET expires_at_ms = greatest({store.NOW_MS}, t.deliver_at_ms) + $2, partition = t.partition,
  record_offset = t.record_offset, schedule_id = t.schedule_id
FROM unnest($3::bytea[], $4::int[], $5::bigint[], $6::uuid[], $7::bigint[])
  AS t(key_digest, partition, record_offset, schedule_id, deliver_at_ms)
WHERE u.topic_id = $1 AND u.key_digest = t.key_digest
"""
NO_OFFSET: Final = -1
"""Of a record that was scheduled."""


class UniqueRecord(NamedTuple):
    """`tail`: as in PartitionAppend."""

    partition: int
    key_digest: bytes
    tail: bytes


class UniquePlace(NamedTuple):
    """The place of the record with the key. `duplicate`: an earlier request, or record, has put it there.
    `schedule_id`: it was scheduled, and has NO_OFFSET. `deliver_at_ms`: when it is due, if that is known."""

    partition: int
    offset: int
    schedule_id: str | None = None
    deliver_at_ms: int | None = None
    duplicate: bool = False


class Kept(NamedTuple):
    """A row that counts. `removed`: the log does not have the record any more."""

    key_digest: bytes
    partition: int
    offset: int
    removed: bool


class Rule(NamedTuple):
    """`within_ms`: how long a key counts. `finished`: rows that count no longer, as `UniqueLog.look` has found them. A
    row that has changed since counts."""

    within_ms: int
    finished: Collection[Kept] = ()


class Keyed(Protocol):
    @property
    def key_digest(self) -> bytes | None: ...


K = TypeVar("K", bound=Keyed)


class UniqueLog:
    """Appends what is new, all or none. Each method may raise StorageError."""

    def __init__(self, database: LogDatabase, locked_append: LockedAppend) -> None:
        self._database = database
        self._locked_append = locked_append

    async def look(self, topic_id: str, key_digests: Sequence[bytes]) -> list[Kept]:
        """Read the rows of keys that count now. Nothing is locked."""
        return [Kept(*row) for row in await self._database.query(store.fetch, _LOOK, topic_id, key_digests)]

    async def append(
        self,
        topic_id: str,
        records: Sequence[UniqueRecord],
        rule: Rule,
        timestamp_ms: int,
        key: IdempotencyKey | None,
        answer: Callable[[Sequence[UniquePlace]], bytes],
    ) -> bytes:
        """Append the records whose key is new. `key`, `answer`: as in `ScheduledLog.schedule`.

        Returns: the answer. Raises: UnknownTopicOrPartition: the topic is deleted.
        """

        async def make(together: Together) -> bytes:
            async def insert(new: Sequence[UniqueRecord]) -> list[UniquePlace]:
                tails = [(topic_id, record.partition, record.tail) for record in new]
                offsets = await together.insert_each(tails, timestamp_ms)
                return [UniquePlace(record.partition, offset) for record, offset in zip(new, offsets, strict=True)]

            body = answer(await store_new(together.connection, topic_id, records, rule, insert))
            if not together.inserted:
                await store.wait_for_standby(together.connection)
            return body

        return (await self._locked_append.once("unique records cannot be appended", key, make))[0]


async def store_new(
    connection: store.Connection,
    topic_id: str,
    records: Sequence[K],
    rule: Rule,
    insert: Callable[[Sequence[K]], Awaitable[Sequence[UniquePlace]]],
) -> list[UniquePlace]:
    """Store the records whose keys are new, the first of each key. The rows of all keys stay locked until the end of
    the transaction. Returns: the place of each record, or of the first one with its key."""
    digests = [record.key_digest or b"" for record in records]
    rows = await connection.fetch(_TAKE, topic_id, list(dict.fromkeys(digests)))
    over = {row[:3] for row in rule.finished}
    known = {row[0]: UniquePlace(*row[2:]) for row in rows if row[1] and (row[0], row[2], row[3]) not in over}
    new: dict[bytes, K] = {}
    for digest, record in zip(digests, records, strict=True):
        if digest not in known:
            new.setdefault(digest, record)
    if new:
        made = await insert(list(new.values()))
        await connection.execute(_KEEP, topic_id, rule.within_ms, list(new), *list(zip(*made, strict=True))[:4])
        known.update(zip(new, made, strict=True))
    return [
        known[digest]._replace(duplicate=new.get(digest) is not record)
        for digest, record in zip(digests, records, strict=True)
    ]


async def lock(connection: store.Connection, records: Sequence[tuple[str, bytes, UUID]]) -> set[UUID]:
    """Lock the rows of keys whose records enter the log, before the partitions are locked, as other appends do.

    `records`: the topic id, the digest and the id of each. Returns: the ids of those that have such a row.
    """
    rows = await connection.fetch(
        """SELECT schedule_id FROM log.unique_keys u
           JOIN unnest($1::uuid[], $2::bytea[], $3::uuid[]) AS t(topic_id, key_digest, schedule_id)
             USING (topic_id, key_digest, schedule_id)
           ORDER BY topic_id, key_digest FOR UPDATE OF u""",
        *zip(*records, strict=True),
    )
    return {row[0] for row in rows}


async def enter(connection: store.Connection, places: Sequence[tuple[str, bytes, int]]) -> None:
    """Records have entered the log: their keys get their offsets. `places`: topic id, digest and offset of each."""
    await connection.execute(
        """UPDATE log.unique_keys u SET record_offset = t.record_offset, schedule_id = NULL
           FROM unnest($1::uuid[], $2::bytea[], $3::bigint[]) AS t(topic_id, key_digest, record_offset)
           WHERE u.topic_id = t.topic_id AND u.key_digest = t.key_digest""",
        *zip(*places, strict=True),
    )

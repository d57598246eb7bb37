"""Record logs to test: `open` makes one instance with its loops running, as one gateway has it."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.log import (
    AppendResult,
    DeadLetterRow,
    IdempotencyKey,
    LogListener,
    PartitionAppend,
    RecordLog,
)
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.transactions.transactions import DEFAULTS, TransactionOptions

from sharequeue.background import IN_COMPANY
from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition

NO_SWEEP = TransactionOptions(sweep_s=1e6)


def in_company(log: PostgresRecordLog) -> None:
    """As after a commit of several appends: those that begin in one turn of the loop share the next commit."""
    log.appender._in_company = IN_COMPANY


class Heard:
    """A listener that keeps what a record log reports: the partitions that changed, and those that are not followed."""

    def __init__(self) -> None:
        self.changes: asyncio.Queue[TopicIdPartition] = asyncio.Queue()
        self.not_followed: asyncio.Queue[TopicIdPartition] = asyncio.Queue()
        self.appends: list[tuple[str, int, int, int]] = []
        """Topic id, partition, log end and records of each report of an append here."""
        self.log_start_offset = -1
        """That of the last report of a change."""

    def appended(self, topic_id: str, partition: int, log_end_offset: int, records: int) -> None:
        self.appends.append((topic_id, partition, log_end_offset, records))
        self.changes.put_nowait((topic_id, partition))

    def changed(self, topic_id: str, partition: int, log_start_offset: int, log_end_offset: int) -> None:
        self.log_start_offset = log_start_offset
        self.changes.put_nowait((topic_id, partition))

    def forgotten(self, topic_id: str, partition: int) -> None:
        self.not_followed.put_nowait((topic_id, partition))

    def take_changes(self) -> list[TopicIdPartition]:
        """The partitions that have changed since this was asked last, in order."""
        return [self.changes.get_nowait() for _ in range(self.changes.qsize())]


class PostgresRecordLogs:
    """Two that are open at once stand for two gateways on the same data."""

    def __init__(self, database_url: str) -> None:
        self.database_url = database_url

    async def new_topic(self) -> str:
        """Return the id of a topic with as many partitions as a test uses."""
        return new_topic()

    @asynccontextmanager
    async def open(
        self,
        *,
        cache_bytes: int = 64 << 20,
        deadline_s: float = 10.0,
        listener: LogListener | None = None,
        interest: Callable[[], Iterable[TopicIdPartition]] = tuple,
        connections: int = 8,
        transactions: TransactionOptions = DEFAULTS,
    ) -> AsyncIterator[PostgresRecordLog]:
        """`interest`: the partitions that somebody waits for."""
        cache = BatchCache(cache_bytes)
        database = await LogDatabase.open(
            self.database_url,
            known_ends=cache.log_ends,
            connections=connections,
        )
        log = PostgresRecordLog(
            database,
            cache,
            listener or Heard(),
            deadline_s=deadline_s,
            transactions=transactions,
        )
        loops = asyncio.create_task(log.run(interest))
        try:
            yield log
            assert not loops.done(), "a loop of the record log ended"
        finally:
            loops.cancel()
            await asyncio.wait([loops])
            await database.close()


@contextmanager
def deadline(log: PostgresRecordLog, seconds: float) -> Iterator[None]:
    """Appends and ends have this deadline here, where a test wants them to fail at it.

    Those that are to succeed stand outside: on a busy machine they take longer than a short deadline.
    """
    parts: tuple[Any, ...] = (log.appender, log.appender._locked_append, log.transactions._ending)
    before = log.transactions._ending._deadline_s
    for part in parts:
        part._deadline_s = seconds
    yield
    for part in parts:
        part._deadline_s = before


def new_topic() -> str:
    return str(uuid.uuid4())


def tail(value: object, timestamp_ms: int = 0) -> bytes:
    return b',"timestamp_ms":%d,"key":null,"value":%b}' % (timestamp_ms, json.dumps(value).encode())


def batch_of(
    topic_id: str, values: Iterable[object], partition: int = 0, timestamps: Sequence[int] | None = None
) -> PartitionAppend:
    """One produce request's records for one partition. `timestamps`: of each record; 0 when absent."""
    values = list(values)
    given = [0] * len(values) if timestamps is None else list(timestamps)
    tails = [tail(value, timestamp_ms) for value, timestamp_ms in zip(values, given, strict=True)]
    return PartitionAppend(topic_id, partition, tails, max(given))


async def append_all(
    log: PostgresRecordLog, appends: Sequence[PartitionAppend], key: IdempotencyKey | None = None
) -> AppendResult:
    """Append as a produce request does: to the transaction that the appends name, if they name one."""
    transaction_id = appends[0].transaction_id
    if transaction_id is None:
        return await log.appender.append(appends, key)
    return await log.transactions.append(transaction_id, appends, key)


async def append(log: PostgresRecordLog, topic_id: str, values: Iterable[object], partition: int = 0) -> int:
    """Append one batch. Returns: its base offset."""
    return (await log.appender.append([batch_of(topic_id, values, partition)])).base_offsets[0]


async def read_all(log: RecordLog, topic_id: str, partition: int = 0, offset: int | None = None) -> list[object]:
    """All values from `offset` (or the log start) to the end; offsets must be dense and in order."""
    bounds = (await log.offsets(topic_id, [partition]))[partition]
    next_offset = bounds.log_start_offset if offset is None else offset
    values: list[object] = []
    while next_offset < bounds.log_end_offset:
        result = await log.read(topic_id, partition, next_offset, 1 << 20, 10_000)
        assert result.batches, f"nothing at {next_offset} of {bounds}"
        for batch in result.batches:
            for record in json.loads(b"[" + batch.slice(next_offset, batch.last_offset) + b"]"):
                assert record["offset"] == next_offset
                next_offset += 1
                values.append(record["value"])
    assert next_offset == bounds.log_end_offset
    return values


async def rows_of(connection: Any, topic_id: str) -> list[int]:
    """Base offsets of the batches that are stored, by partition."""
    rows = await connection.fetch(
        "SELECT base_offset FROM log.record_batches WHERE topic_id = $1 ORDER BY partition, base_offset", topic_id
    )
    return [row[0] for row in rows]


def dead_letter(topic_id: str, offset: int, count: int = 5, group_id: str = "g") -> DeadLetterRow:
    """One of group `group_id` for a record of partition 0."""
    source = SharePartitionKey(group_id, topic_id, 0)
    return DeadLetterRow(source, 0, offset, count, tail([group_id, offset, count]), 7, "rejected by client")

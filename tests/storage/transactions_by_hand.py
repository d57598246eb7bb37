"""Transactions as rows: begun, written and ended by SQL, without the gateway's own code for them.

For tests of readers. Each function is one database transaction under the locks that the gateway takes, and each leaves
the same rows as the gateway does.
"""

import uuid
from collections.abc import Iterable
from typing import Any

from sharequeue_gateway.record_log import store
from sharequeue_gateway.record_log.record_batch import RecordBatch

from sharequeue.protocol.types import TopicIdPartition
from tests.storage.record_logs import tail

OF_A_TRANSACTION, ABORT_MARKER, COMMIT_MARKER = 16, 48, 112
"""Values of `attributes`."""


async def begin(connection: Any, seconds: float = 600) -> str:
    """Returns: the transaction id."""
    transaction_id = str(uuid.uuid4())
    await connection.execute(
        """INSERT INTO log.transactions (transaction_id, timeout_ms, deadline)
           VALUES ($1, $2::float8 * 1000, clock_timestamp() + make_interval(secs => $2))""",
        transaction_id,
        seconds,
    )
    return transaction_id


async def append(
    connection: Any, place: TopicIdPartition, values: Iterable[object], transaction_id: str | None = None
) -> int:
    """Append one batch. Returns: its base offset."""
    async with connection.transaction():
        if transaction_id is not None:
            await _lock_open(connection, transaction_id, "SHARE")
        await store.lock(connection, [place])
        await store.make_partitions(connection, [place])
        base_offset = (await store.bounds(connection, [place]))[place].log_end_offset
        batch = RecordBatch.encode(base_offset, [tail(value) for value in values], 0, transaction_id=transaction_id)
        await _insert(connection, place, batch, 0 if transaction_id is None else OF_A_TRANSACTION)
        if transaction_id is not None:
            await connection.execute(
                "INSERT INTO log.transaction_partitions VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
                transaction_id,
                *place,
                base_offset,
            )
    return base_offset


async def end(connection: Any, transaction_id: str, *, commit: bool) -> dict[TopicIdPartition, int]:
    """Commit or abort. Returns: the offset of the marker of each partition."""
    markers: dict[TopicIdPartition, int] = {}
    async with connection.transaction():
        await _lock_open(connection, transaction_id, "UPDATE")
        rows = await connection.fetch(
            "SELECT topic_id, partition, first_offset FROM log.transaction_partitions WHERE transaction_id = $1",
            transaction_id,
        )
        first_offsets = {(str(row[0]), row[1]): row[2] for row in rows}
        await store.lock(connection, list(first_offsets))
        bounds = await store.bounds(connection, list(first_offsets))
        for place, first_offset in first_offsets.items():
            offset = markers[place] = bounds[place].log_end_offset
            marker = RecordBatch.marker(offset, 0, transaction_id)
            await _insert(connection, place, marker, COMMIT_MARKER if commit else ABORT_MARKER)
            if not commit:
                await connection.execute(
                    "INSERT INTO log.aborted_transactions VALUES ($1, $2, $3, $4, $5)",
                    *place,
                    transaction_id,
                    first_offset,
                    offset,
                )
        await connection.execute("DELETE FROM log.transaction_partitions WHERE transaction_id = $1", transaction_id)
        await connection.execute("DELETE FROM log.transactions WHERE transaction_id = $1", transaction_id)
    return markers


async def _lock_open(connection: Any, transaction_id: str, strength: str) -> None:
    found = await connection.fetchval(
        f"SELECT true FROM log.transactions WHERE transaction_id = $1 FOR {strength}", transaction_id
    )
    assert found, f"transaction {transaction_id} is not open"


async def _insert(connection: Any, place: TopicIdPartition, batch: RecordBatch, attributes: int) -> None:
    await connection.execute(
        """INSERT INTO log.record_batches (topic_id, partition, base_offset, last_offset, max_timestamp_ms, record_count,
             append_id, records, transaction_id, attributes)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)""",
        *place,
        batch.base_offset,
        batch.last_offset,
        batch.max_timestamp_ms,
        batch.record_count,
        uuid.uuid4(),
        batch.stored,
        batch.transaction_id,
        attributes,
    )

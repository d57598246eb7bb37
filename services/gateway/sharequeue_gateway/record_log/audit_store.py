"""The log as it is stored, for audits: these queries bypass the cache."""

from typing import Any

from sharequeue.protocol.messages.audit import LogAudit, LogBatch
from sharequeue_gateway.record_log import store


async def batches(connection: Any, topic_id: str, partition: int, offset: int, limit: int) -> LogAudit:
    """The rows from the one that holds `offset`, and the bounds of the partition, which are read after the rows."""
    rows = await connection.fetch(
        f"""SELECT base_offset, last_offset, record_count, generation FROM log.record_batches
           WHERE topic_id = $1 AND partition = $2 AND {store.FROM_BATCH}
           ORDER BY base_offset LIMIT $4""",
        topic_id,
        partition,
        offset,
        limit,
    )
    found = (await store.bounds(connection, [(topic_id, partition)])).get((topic_id, partition))
    return LogAudit(
        log_start_offset=0 if found is None else found.log_start_offset,
        log_end_offset=0 if found is None else found.log_end_offset,
        deleted=found is not None and found.deleted,
        batches=[
            LogBatch(base_offset=base, last_offset=last, record_count=count, generation=generation)
            for base, last, count, generation in rows
        ],
    )

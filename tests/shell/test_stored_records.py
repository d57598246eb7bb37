"""Single records of the log, read in portions."""

import asyncio
from typing import Any

from sharequeue_gateway.delivery.stored_records import batches_between, records_in
from sharequeue_gateway.record_log.log import ReadResult, below_log_start
from sharequeue_gateway.record_log.record_batch import RecordBatch


class Trimmed:
    """A log of one batch of five records, whose log start is its fourth."""

    batch = RecordBatch.encode(0, [b',"timestamp_ms":1,"key":null,"value":1}'] * 5, 1)

    async def read(self, topic_id: str, partition: int, offset: int, *_: int) -> ReadResult[RecordBatch]:
        if offset < 3:
            raise below_log_start(offset, 3)
        return ReadResult([self.batch] if offset < 5 else [], 3, 5, 5)


def test_records_that_left_the_log_are_not_in_its_first_batch() -> None:
    log: Any = Trimmed()

    async def offsets() -> list[int]:
        parts = [part async for part in batches_between(log, ("t", 0), 0, 9, 1 << 20, 100)]
        return [record.offset for first, batches in parts for record in records_in(batches, first, 9)]

    assert asyncio.run(offsets()) == [3, 4]

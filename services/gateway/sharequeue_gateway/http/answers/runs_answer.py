"""The answer of readRecords as runs of stored records, which costs nothing for each record."""

from collections.abc import Iterable
from typing import Final

from sharequeue.protocol.apis import RECORD_RUNS
from sharequeue.protocol.record_runs import BOUNDS, Bounds, packed_parts, run_parts
from sharequeue_gateway.record_log.log import Cut
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.stored_batch import PackedBatch
from sharequeue_http.answer import Answer

CONTENT_TYPE: Final = (b"content-type", RECORD_RUNS.encode())
LARGE_BYTES: Final = 64 * 1024
"""Records of a batch with more bytes are sent without a copy."""


def record_runs(cuts: Iterable[Cut[RecordBatch | PackedBatch]], bounds: Bounds) -> Answer:
    """The answer. `cuts`: batches, each with the first and the last offset to send.

    A large batch is a part of the answer as it is in memory. The bytes between two large batches are joined.
    """
    parts: list[bytes | memoryview] = []
    small: list[bytes | memoryview] = [BOUNDS.pack(*bounds)]
    for batch, first, last in cuts:
        if isinstance(batch, PackedBatch):
            small += packed_parts(batch.base_offset, batch.size, batch.block)
        else:
            run = batch.run(first, last)
            if run is None:
                continue
            small += run_parts(*run)
        if len(small[-1]) >= LARGE_BYTES:
            records = small.pop()
            parts += (b"".join(small), records)
            small = []
    first_part, *more = *parts, b"".join(small)
    return Answer(bytes(first_part), headers=(CONTENT_TYPE,), more=more)

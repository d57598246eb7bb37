"""The messages of compaction: list record batches, and remove records from them."""

from typing import Annotated

from msgspec import Meta

from sharequeue.protocol.messages.fields import Count, NonNegative, Offset, PageSize, Request, Response, TimestampMs
from sharequeue.protocol.types import MAX_INT64, MAX_RECORDS

MAX_BATCHES = 1000
"""In one replaceRecordBatches."""


class ListRecordBatchesQuery(Request):
    offset: Offset = 0
    max_batches: PageSize = 1000


class RecordBatchListing(Response):
    """One stored batch. `generation`: how often it was replaced. `size_bytes`: its stored size."""

    base_offset: Offset
    last_offset: Offset
    record_count: Count
    generation: Count
    max_timestamp_ms: TimestampMs
    size_bytes: Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]


class RecordBatchList(Response):
    """Batches from the one that holds the requested offset on; `next_offset`: the offset of the next request."""

    batches: list[RecordBatchListing]
    next_offset: Offset
    log_start_offset: Offset
    last_stable_offset: Offset
    log_end_offset: Offset


class RemovedRange(Request):
    first_offset: Offset
    last_offset: Offset


class BatchReplacement(Request):
    """Removes records from one batch: the ranges `remove`, ascending and disjoint. `generation`: as it was listed."""

    base_offset: Offset
    generation: NonNegative
    remove: Annotated[list[RemovedRange], Meta(min_length=1, max_length=MAX_RECORDS)]


class ReplaceRecordBatchesRequest(Request):
    batches: Annotated[list[BatchReplacement], Meta(min_length=1, max_length=MAX_BATCHES)]


class ReplacedBatch(Response):
    """A batch as it is now."""

    base_offset: Offset
    generation: Count
    record_count: Count


class ReplacedBatches(Response):
    batches: list[ReplacedBatch]

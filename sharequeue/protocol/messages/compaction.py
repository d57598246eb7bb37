"""The messages of compaction: list record batches, and remove records from them."""

from typing import Annotated

from msgspec import Meta

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most
from sharequeue.protocol.types import MAX_INT64, MAX_PAGE_SIZE, MAX_RECORDS

MAX_BATCHES = 1000
"""In one replaceRecordBatches."""


class ListRecordBatchesQuery(Request):
    offset: fields.Offset = 0
    """The list begins with the batch that holds this offset."""
    max_batches: fields.PageSize = 1000
    """How many batches to answer at most, from 1 to 10,000."""


class RecordBatchListing(Response):
    """One stored batch. `generation`: how often it was replaced. `size_bytes`: its size, uncompressed."""

    base_offset: fields.Offset
    """The first offset of the batch, also if its record was removed."""
    last_offset: fields.Offset
    """The last offset of the batch, included."""
    record_count: fields.Count
    """How many records the batch holds. Compaction lowers it, to 0 at last."""
    generation: fields.Count
    """How often the batch was replaced. Send it with a replacement."""
    max_timestamp_ms: fields.TimestampMs
    """The latest timestamp of its records, in milliseconds since the epoch."""
    size_bytes: Annotated[int, Meta(ge=0, le=MAX_INT64, extra_json_schema={"format": "int64"})]
    """Its size in bytes. The database may hold it compressed, in fewer bytes."""
    aborted: bool = False
    """Whether its records belong to an aborted transaction.
    Remove them all: only `read_uncommitted` readers get them."""


class RecordBatchList(Response):
    """Batches from the one that holds the requested offset on; `next_offset`: the offset of the next request."""

    batches: Annotated[list[RecordBatchListing], at_most(MAX_PAGE_SIZE)]
    """Batches from the one that holds `offset` on, ascending."""
    next_offset: fields.Offset
    """Send it as `offset` with the next call, to list the batches behind these."""
    log_start_offset: fields.Offset
    """The first offset that can be read."""
    last_stable_offset: fields.Offset
    """Nothing at or above this offset may be compacted."""
    log_end_offset: fields.Offset
    """One above the last record's offset."""


class RemovedRange(Request, gc=False):
    """Offsets from the first to the last, both included."""

    first_offset: fields.Offset
    """The first offset to remove, included."""
    last_offset: fields.Offset
    """The last offset to remove, included."""


class BatchReplacement(Request):
    """Removes records from one batch: the ranges `remove`, ascending and disjoint. `generation`: as it was listed."""

    base_offset: fields.Offset
    """The first offset of the batch, as it was listed."""
    generation: fields.NonNegative
    """The generation of the batch, as it was listed. If the batch was replaced since, the request is refused (409)."""
    remove: Annotated[list[RemovedRange], Meta(min_length=1, max_length=MAX_RECORDS)]
    """The ranges to remove, 1 to 10,000, ascending and disjoint."""


class ReplaceRecordBatchesRequest(Request):
    """The batches to replace, all or none."""

    batches: Annotated[list[BatchReplacement], Meta(min_length=1, max_length=MAX_BATCHES)]
    """1 to 1,000 batches, ascending, of 64 MiB together unless there is one only. All are replaced, or none."""
    topic_id: fields.Uuid | None = None
    """The id of the topic that is meant. If the topic of this name has another id, nothing happens."""


class ReplacedBatch(Response):
    """A batch as it is now."""

    base_offset: fields.Offset
    """The first offset of the batch. It is as before."""
    generation: fields.Count
    """One more than before: send it with a later replacement."""
    record_count: fields.Count
    """How many records the batch still holds."""


class ReplacedBatches(Response):
    """The batches that were replaced."""

    batches: Annotated[list[ReplacedBatch], at_most(MAX_BATCHES)]
    """The batches as they are now, in request order."""

"""The messages of listInFlightRecords."""

from typing import Annotated

from msgspec import Meta

from sharequeue.protocol.messages.fields import (
    AnyInt64,
    Count,
    Offset,
    PageSize,
    PageToken,
    PartitionIndex,
    Request,
    Response,
    TimestampMs,
    TopicName,
)
from sharequeue.protocol.messages.problems import PartitionError
from sharequeue.protocol.types import DeliveryState, Int32


class InFlightQuery(Request):
    """`page_size` counts partitions and batches. A partition is listed whole, so the last one may exceed the page."""

    topic: TopicName | None = None
    partition: PartitionIndex | None = None
    page_size: PageSize = 1000
    page_token: PageToken | None = None


DeliveryStateName = Annotated[str, Meta(extra_json_schema={"enum": [state.name for state in DeliveryState]})]


class InFlightBatch(Response):
    first_offset: Offset
    last_offset: Offset
    delivery_state: DeliveryStateName
    delivery_count: Count
    member_id: str | None = None
    lock_expires_at_ms: TimestampMs | None = None
    available_at_ms: TimestampMs | None = None
    reason: str | None = None


class DeadLetterStatus(Response):
    """A range on its way to the dead-letter queue that could not be written yet. The gateway tries again until it can."""

    first_offset: Offset
    last_offset: Offset
    attempts: Int32
    last_error: str
    next_attempt_at_ms: TimestampMs


class InFlightPartition(Response):
    topic: str
    partition: PartitionIndex
    start_offset: Offset
    end_offset: AnyInt64
    batches: list[InFlightBatch]
    dead_letters: list[DeadLetterStatus] = []
    parked_dead_letters: Int32 = 0
    parked_cause: str | None = None
    """The reason why the last parked dead letter was refused."""


class ListInFlightResponse(Response):
    """`errors`: partitions of the group whose leader cannot answer now."""

    partitions: list[InFlightPartition]
    errors: list[PartitionError] = []
    next_page_token: str | None = None

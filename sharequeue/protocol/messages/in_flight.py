"""The messages of listInFlightRecords."""

from typing import Annotated

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
    at_most,
    word,
)
from sharequeue.protocol.messages.problems import PartitionError
from sharequeue.protocol.types import KEPT_REASONS, MAX_ERRORS, MAX_PAGE_SIZE, DeliveryState, GivenReason, Int32


class InFlightQuery(Request):
    """`page_size` counts partitions and batches. A partition is listed whole, so the last one may exceed the page."""

    topic: TopicName | None = None
    """Only partitions of this topic. Absent: of all topics of the group."""
    partition: PartitionIndex | None = None
    """Only the partition with this number. It needs `topic`."""
    page_size: PageSize = 1000
    """How many partitions and batches a page has; its last partition is listed whole, so a page may have more."""
    page_token: PageToken | None = None


DeliveryStateName = Annotated[
    str,
    word(
        "DeliveryState",
        "`AVAILABLE`: to be delivered, perhaps after a delay. `ACQUIRED`: a member holds it. `ACKNOWLEDGED`: accepted. "
        "`ARCHIVING`: its dead letter is being written. `ARCHIVED`: finished without being accepted.",
        [state.name for state in DeliveryState],
    ),
]


class InFlightBatch(Response):
    """A range of records with the same state, delivery count and holder."""

    first_offset: Offset
    """The first offset of the range, included."""
    last_offset: Offset
    """The last offset of the range, included."""
    delivery_state: DeliveryStateName
    """What the group does with these records. Finished ones behind the window are not listed."""
    delivery_count: Count
    """How often these records were delivered to the group."""
    attempt: Count
    """How many of these deliveries count: all but those that were never begun."""
    member_id: str | None = None
    """The member that holds the records. Absent unless they are ACQUIRED."""
    lock_expires_at_ms: TimestampMs | None = None
    """When the lock ends, in milliseconds since the epoch. Absent unless the records are ACQUIRED."""
    available_at_ms: TimestampMs | None = None
    """When the delay of a release ends, in milliseconds since the epoch. Absent without a delay."""
    reason: str | None = None
    """The reason that the last release or reject gave. Absent without one."""
    reason_at_ms: TimestampMs | None = None
    """When it was given, in milliseconds since the epoch, rounded down to 100 ms. Absent without one."""
    earlier_reasons: Annotated[tuple[GivenReason, ...], at_most(KEPT_REASONS)] = ()
    """The last reasons of earlier deliveries, the oldest first. Absent without one, or if the records are finished."""
    transaction_id: str | None = None
    """The transaction on which the records are pending: its end settles them, or gives them back.
    Absent without one."""


class DeadLetterStatus(Response):
    """A range on its way to the dead-letter queue that could not be written yet. The gateway tries again until it can."""  # noqa: W505

    first_offset: Offset
    """The first offset of the range, included."""
    last_offset: Offset
    """The last offset of the range, included."""
    attempts: Int32
    """How often the gateway tried to write the dead letters."""
    last_error: str
    """Why the last attempt failed, in words."""
    next_attempt_at_ms: TimestampMs
    """When the gateway tries again, in milliseconds since the epoch."""


class InFlightPartition(Response):
    """The window of a group in one partition: from the first record that is not finished on."""

    topic: str
    """The name of the topic. The list is in the order of topics and partitions."""
    partition: PartitionIndex
    """The number of the partition, from 0."""
    start_offset: Offset
    """All records of the group before this offset are finished."""
    end_offset: AnyInt64
    """The last offset that the group has acquired up to, included. Records behind it are new to the group."""
    batches: list[InFlightBatch]
    """Ranges of equal records from `start_offset` on, ascending."""
    dead_letters: list[DeadLetterStatus] = []
    """Ranges whose dead letters could not be written yet. The gateway tries again until it can."""
    parked_dead_letters: Int32 = 0
    """How many dead letters were refused for good. They are kept, and a redrive sends them too."""
    parked_cause: str | None = None
    """Why the last parked dead letter was refused. Absent without one."""
    limited_by: str | None = None
    """The bound that makes new records wait: the name of its setting, or `runs` or `span` of the window. Absent without
    one."""


class ListInFlightResponse(Response):
    """A page of the records in flight, by partition."""

    partitions: Annotated[list[InFlightPartition], at_most(MAX_PAGE_SIZE)]
    """Partitions with their records in flight, by topic and number."""
    errors: Annotated[list[PartitionError], at_most(MAX_ERRORS)] = []
    """Partitions whose leader cannot answer now, at most 50."""
    next_page_token: str | None = None
    """Send it as `page_token` for the next page. Absent on the last page."""

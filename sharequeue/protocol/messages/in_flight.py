"""The messages of listInFlightRecords, and of the look-up of single records."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.dead_letters import MAX_KEY_LENGTH, DeadLetter
from sharequeue.protocol.messages.fields import Request, Response, at_most, word
from sharequeue.protocol.messages.problems import PartitionError
from sharequeue.protocol.types import (
    KEPT_REASONS,
    MAX_DELAY_MS,
    MAX_ERRORS,
    MAX_PAGE_SIZE,
    MAX_REASON_LENGTH,
    DeliveryState,
    GivenReason,
    Int32,
)


class InFlightQuery(Request):
    """`page_size` counts partitions and batches. A partition is listed whole, so the last one may exceed the page."""

    topic: fields.TopicName | None = None
    """Only partitions of this topic. Absent: of all topics of the group."""
    partition: fields.PartitionIndex | None = None
    """Only the partition with this number. It needs `topic`."""
    offset: fields.Offset | None = None
    """Only the range that this offset belongs to, and what is unfinished before it. It needs `partition`."""
    loaded: bool = False
    """True: only partitions that a gateway has in memory. The call loads none."""
    page_size: fields.PageSize = 1000
    """How many partitions and batches a page has; its last partition is listed whole, so a page may have more."""
    page_token: fields.PageToken | None = None


MOST_FOUND: Final = 100
"""Records that one call finds by their key."""

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

    first_offset: fields.Offset
    """The first offset of the range, included."""
    last_offset: fields.Offset
    """The last offset of the range, included."""
    delivery_state: DeliveryStateName
    """What the group does with these records. Finished ones behind the window are not listed."""
    delivery_count: fields.Count
    """How often these records were delivered to the group."""
    attempt: fields.Count
    """How many of these deliveries count: all but those that were never begun."""
    member_id: str | None = None
    """The member that holds the records. Absent unless they are ACQUIRED."""
    lock_expires_at_ms: fields.TimestampMs | None = None
    """When the lock ends, in milliseconds since the epoch. Absent unless the records are ACQUIRED."""
    available_at_ms: fields.TimestampMs | None = None
    """When the delay of a release ends, in milliseconds since the epoch. Absent without a delay."""
    reason: str | None = None
    """The reason that the last release or reject gave. Absent without one."""
    reason_at_ms: fields.TimestampMs | None = None
    """When it was given, in milliseconds since the epoch, rounded down to 100 ms. Absent without one."""
    earlier_reasons: Annotated[tuple[GivenReason, ...], at_most(KEPT_REASONS)] = ()
    """The last reasons of earlier deliveries, the oldest first. Absent without one, or if the records are finished."""
    transaction_id: str | None = None
    """The transaction on which the records are pending: its end settles them, or gives them back.
    Absent without one."""


class DeadLetterStatus(Response):
    """A range on its way to the dead-letter queue that could not be written yet. The gateway tries again until it can."""  # noqa: W505

    first_offset: fields.Offset
    """The first offset of the range, included."""
    last_offset: fields.Offset
    """The last offset of the range, included."""
    attempts: Int32
    """How often the gateway tried to write the dead letters."""
    last_error: str
    """Why the last attempt failed, in words."""
    next_attempt_at_ms: fields.TimestampMs
    """When the gateway tries again, in milliseconds since the epoch."""


class InFlightPartition(Response):
    """The window of a group in one partition: from the first record that is not finished on."""

    topic: str
    """The name of the topic. The list is in the order of topics and partitions."""
    partition: fields.PartitionNumber
    start_offset: fields.Offset
    """All records of the group before this offset are finished."""
    end_offset: fields.AnyInt64
    """The last offset that the group has acquired up to, included. Records behind it are new to the group."""
    batches: list[InFlightBatch]
    """Ranges of equal records from `start_offset` on, ascending."""
    unfinished_before: fields.AnyInt64 | None = None
    """How many offsets before `offset` the group has not finished. Absent without `offset`."""
    dead_letters: list[DeadLetterStatus] = []
    """Ranges whose dead letters could not be written yet. The gateway tries again until it can."""
    parked_dead_letters: Int32 = 0
    """How many dead letters were refused for good. They are kept, and a redrive sends them too."""
    parked_cause: str | None = None
    """Why the last parked dead letter was refused. Absent without one."""
    limited_by: str | None = None
    """The bound that makes new records wait: the name of its setting, or `runs` or `span` of the window. Absent without
    one."""
    removed_unread: fields.AnyInt64 = 0
    """How many offsets left the log before the group got them, or while they waited for another delivery."""


class ListInFlightResponse(Response):
    """A page of the records in flight, by partition."""

    partitions: Annotated[list[InFlightPartition], at_most(MAX_PAGE_SIZE)]
    """Partitions with their records in flight, by topic and number."""
    errors: Annotated[list[PartitionError], at_most(MAX_ERRORS)] = []
    """Partitions whose leader cannot answer now, at most 50."""
    next_page_token: fields.NextPageToken | None = None


MOST_BUCKETS: Final = 1000


class WindowQuery(Request):
    """A part of the window of a share-partition, in buckets of equal size."""

    from_offset: fields.Offset | None = None
    """The first offset. Absent: the start offset of the group."""
    to_offset: fields.Offset | None = None
    """The end (exclusive). Absent: the end of the log."""
    buckets: Annotated[int, Meta(ge=1, le=MOST_BUCKETS, extra_json_schema={"format": "int32"})] = 100
    """How many buckets the answer has at most, from 1 to 1,000."""


class WindowBucket(Response):
    """Counts of some contiguous offsets by what the group does with them. A count of 0 is left out."""

    finished: fields.AnyInt64 = 0
    """Those before the start offset."""
    available: fields.AnyInt64 = 0
    """Those to be delivered again."""
    delayed: fields.AnyInt64 = 0
    """Those to be delivered again after a delay."""
    acquired: fields.AnyInt64 = 0
    """Those that a member holds."""
    pending: fields.AnyInt64 = 0
    """Those that a transaction decides about."""
    archiving: fields.AnyInt64 = 0
    """Those whose dead letters are being written."""
    acknowledged: fields.AnyInt64 = 0
    """Those that were accepted."""
    archived: fields.AnyInt64 = 0
    """Those that are finished without being accepted."""
    unread: fields.AnyInt64 = 0
    """Those in a gap of the window: the leader has not read yet whether there are records."""
    new: fields.AnyInt64 = 0
    """Those that the group has never got."""
    member_id: str | None = None
    """The member that holds all that is `acquired`. Absent if there are several."""
    lock_expires_at_ms: fields.TimestampMs | None = None
    """When the first of the locks ends, in milliseconds since the epoch. Absent without one."""
    available_at_ms: fields.TimestampMs | None = None
    """When the first of the delays ends, in milliseconds since the epoch. Absent without one."""


class Window(Response):
    """The window of a group in a partition, counted in buckets."""

    loaded: bool
    """False: no gateway has it in memory. Then only the start offset is known, and the rest counts as `new`."""
    start_offset: fields.AnyInt64
    """All records of the group before this offset are finished. −1: the group has never fetched from the partition."""
    end_offset: fields.AnyInt64
    """The last offset of the window, included; before the start offset if nothing is in flight."""
    log_start_offset: fields.Offset
    """The first offset that the log still has."""
    log_end_offset: fields.Offset
    """The first offset that the log does not have yet."""
    from_offset: fields.Offset
    """The first offset of the first bucket."""
    to_offset: fields.Offset
    """The end of the last bucket, exclusive: at most the end of the log."""
    bucket_size: fields.AnyInt64
    """How many offsets a bucket has; the last one may have fewer."""
    buckets: Annotated[list[WindowBucket], at_most(MOST_BUCKETS)]
    """The buckets from `from_offset` on, without what lies behind the end of the log."""


BY_HAND: Final = "rejected by hand"
RecordAction = Annotated[
    Literal["release", "reject", "extend", "deliver_now"],
    Meta(
        title="RecordAction",
        description="Of a held record: `release`, `reject`, or `extend` its lock. Of a delayed one: `deliver_now`, or "
        "`reject`.",
    ),
]


class ChangeRecordRequest(Request):
    """A change of one record by hand."""

    action: RecordAction
    """What becomes of the record."""
    delivery_count: fields.AtLeastOne
    """The `delivery_count` that lookUpRecord or listInFlightRecords shows. With another one nothing is changed."""
    reason: Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None = None
    """Why, for `release` and `reject`. Absent: a `reject` of a delayed record says `rejected by hand`."""
    delay_ms: Annotated[int, Meta(ge=0, le=MAX_DELAY_MS, extra_json_schema={"format": "int32"})] | None = None
    """For `release`: how long the record is not delivered, in milliseconds. Absent: as long as the group's settings
    say."""
    lock_duration_ms: fields.LockDurationMs | None = None
    """For `extend`: how long the lock lasts from now on, in milliseconds. Absent: as long as before."""


class RecordChange(Response):
    """The change is durable. Without fields: the record was delayed."""

    member_id: str | None = None
    """The member that held the record."""
    note: str | None = None
    """Words about what a change of a held record cannot do: stop its worker."""


RecordStateName = Annotated[
    str,
    word(
        "RecordState",
        "What a group does with a record. `new`: it has not fetched it yet. `ready`: to be delivered again. `delayed`: to "
        "be delivered after a delay. `held`: a member holds it. `pending`: a transaction decides about it. `dying`: its "
        "dead letter is being written. `dead`: it has a dead letter. `finished`: accepted, or finished without a dead "
        "letter. `skipped`: the group never gets it: there is no record at the offset, its transaction was aborted, or it "
        "was redriven for another group.",
        ["new", "ready", "delayed", "held", "pending", "dying", "dead", "finished", "skipped"],
    ),
]


class RecordLife(Response):
    """The life of one record in a group: what the group has done with it, and what it does with it now."""

    topic: str
    """The name of the topic that was looked at."""
    partition: fields.PartitionNumber
    offset: fields.Offset
    """Where the record is in the partition."""
    state: RecordStateName
    """What the group does with the record."""
    log_start_offset: fields.Offset
    """The first offset that the log still has. A record before it was removed, finished or not."""
    timestamp_ms: fields.TimestampMs | None = None
    """The time of the record, in milliseconds since the epoch. Absent if the log does not have it."""
    unfinished_before: fields.AnyInt64 | None = None
    """How many offsets before it the group has not finished: an upper bound of the records that come first. Absent if
    the record is behind that."""
    finished_by: str | None = None
    """The member whose acknowledgement has finished it. Absent unless the group's `share.outcomes.keep.ms` keeps it."""
    finished_at_ms: fields.TimestampMs | None = None
    """When that was, in milliseconds since the epoch. Absent unless the group keeps it."""
    in_flight: InFlightBatch | None = None
    """The range of equal records that it belongs to, with holder, lock, delay, reasons and transaction. Absent if the
    group keeps nothing about it: it is new, or was finished long ago."""
    dead_letters: Annotated[list[DeadLetter], at_most(MAX_PAGE_SIZE)] = []
    """Its dead letters that are still in their topic, open or not: reasons, place, and what became of them."""


class FindRecordsQuery(Request):
    """Records by their key, the newest first."""

    key: Annotated[str, Meta(max_length=MAX_KEY_LENGTH)]
    """The whole key, as text."""
    partition: fields.PartitionIndex | None = None
    """Where to look. Absent: in the partition that producers give the key without naming one."""
    page_size: Annotated[int, Meta(ge=1, le=MOST_FOUND, extra_json_schema={"format": "int32"})] = 10
    """How many records a page has at most, from 1 to 100."""
    page_token: fields.PageToken | None = None


class FoundRecords(Response):
    """Records with a key, the newest first."""

    records: Annotated[list[RecordLife], at_most(MOST_FOUND)]
    """A page may have none although there are further pages: a call looks at 100,000 records, or for a second."""
    partition: fields.PartitionIndex
    """The partition that was looked at."""
    looked: fields.AnyInt64
    """How many offsets the call looked at."""
    next_page_token: str | None = None
    """Send it as `page_token` to go on with older records. Absent at the start of the log."""

"""The messages of dead letters: which are meant, and what became of them."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most
from sharequeue.protocol.types import KEPT_REASONS, MAX_INT64, MAX_PAGE_SIZE, MAX_REASON_LENGTH, GivenReason

MAX_KEY_LENGTH: Final = 65_536
"""Of the text that keys are compared with."""

MaxRecords = Annotated[int, Meta(ge=1, le=MAX_INT64, extra_json_schema={"format": "int64"})]

WantedCause = Annotated[
    Literal["rejected", "delivery_limit"],
    Meta(
        title="WantedCause",
        description="`rejected`: a client rejected the record. `delivery_limit`: it used up its attempts.",
    ),
]

DeadLetterState = Annotated[
    Literal["open", "redriven", "dropped", "finished"],
    Meta(
        title="DeadLetterState",
        description="`open`: nobody has settled it. `redriven`: its record was sent again. `dropped`: it was closed by a "
        "call. `finished`: the group of `errors.deadletterqueue.consumer.group` finished it.",
    ),
]

RedriveTarget = Annotated[
    Literal["retry", "source"],
    Meta(
        title="RedriveTarget",
        description="`retry`: this group alone. `source`: every group of the topic, as the records are appended again.",
    ),
]


class LetterFilter(Request):
    """The dead letters that are meant: those that fit all fields."""

    topic: fields.TopicName | None = None
    """Only dead letters of records of this topic (not `dlq.…`). Absent: of any."""
    partition: fields.PartitionIndex | None = None
    """Only records of this partition."""
    offset: fields.Offset | None = None
    """Only the record at this offset of `topic`, which must be given, and of `partition` (absent: 0)."""
    key: Annotated[str, Meta(max_length=MAX_KEY_LENGTH)] | None = None
    """Only records with exactly this key. A dead letter without a copy has no key."""
    cause: WantedCause | None = None
    """Only dead letters of this cause."""
    reason: Annotated[str, Meta(max_length=MAX_REASON_LENGTH)] | None = None
    """Text that the client's last `reason`, or the cause in words, contains, at most 1,024 characters."""
    after_ms: fields.TimestampMs | None = None
    """Only records that became dead letters at this time or later, in milliseconds since the epoch."""
    before_ms: fields.TimestampMs | None = None
    """Only records that became dead letters before this time, in milliseconds since the epoch."""


class ListDeadLettersQuery(LetterFilter):
    """A page of the dead letters that fit all fields."""

    closed: bool = False
    """True: also dead letters that are not open any more, with what became of them."""
    records: bool = False
    """True: with the value and the headers of each record, as its dead letter has them."""
    page_size: fields.PageSize = 100
    page_token: fields.PageToken | None = None


class RecordPlace(Response):
    """A place in the log."""

    topic: str
    """The name of the topic that has it."""
    partition: fields.PartitionIndex
    """The number of the partition that has it, from 0."""
    offset: fields.Offset
    """Where it is in that partition."""


class DeadLetter(Response):
    """A dead letter of a group: the place of its record, why it died, and what became of it."""

    topic: str
    """The name of the topic that the record came from."""
    partition: fields.PartitionIndex
    """The number of the partition that the record came from, from 0."""
    offset: fields.Offset
    """Where the record is in that partition; the log may not have it any more."""
    state: DeadLetterState
    """What became of it."""
    died_at_ms: fields.TimestampMs
    """When the record became a dead letter, in milliseconds since the epoch."""
    delivery_count: fields.Count
    """How often the record was delivered."""
    cause: str
    """Why it became a dead letter, in words."""
    reason: str | None = None
    """The reason that the last release or reject gave. Absent without one."""
    reasons: Annotated[list[GivenReason], at_most(KEPT_REASONS)] = []
    """The last reasons with their times, the oldest first. Absent if there is no other than `reason`."""
    letter: RecordPlace | None = None
    """Where the dead letter is. Absent if it is parked: its topic refused it."""
    closed_at_ms: fields.TimestampMs | None = None
    """When it was redriven, dropped or finished, in milliseconds since the epoch. Absent while it is open."""
    redriven_to: RecordPlace | None = None
    """The record that it was redriven as. Absent unless it was redriven to a topic that there is."""
    consumer_group: str | None = None
    """The group that finished it in its topic. Absent unless one did."""
    key: str | None = None
    """The key of the record as text. Absent without one, or without a copy."""
    key_base64: fields.Base64 | None = None
    """The key in base64. Absent unless it was produced as bytes."""
    value: Raw | UnsetType = UNSET
    """The value of the record. Absent unless `records` was asked for and the dead letter has a copy."""
    value_base64: fields.Base64 | None = None
    """The value in base64, if it was produced as bytes. Absent as `value` is."""
    headers: dict[str, str] = {}
    """The headers of the record. Absent unless `records` was asked for."""


class DeadLetterList(Response):
    """A page of the dead letters of a group, in the order of their places; parked ones come last."""

    dead_letters: Annotated[list[DeadLetter], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` dead letters. A page may have less, or none, although there are further pages: a call looks
    at 20,000 dead letters and 8 MiB at most."""
    unauthorized_count: fields.AnyInt64 = 0
    """How many dead letters came from topics that the caller may not read. They are not listed."""
    next_page_token: fields.NextPageToken | None = None


class DropDeadLettersRequest(LetterFilter):
    """The open dead letters that are meant: those that fit all fields."""

    max_records: MaxRecords | None = None
    """The most dead letters of this call. If it ends there, `next_page_token` continues. Absent: all."""
    page_token: fields.PageToken | None = None
    """The `next_page_token` of the call before. Absent: from the first dead letter on."""
    dry_run: bool = False
    """True: count only, and change nothing."""


class DropResult(Response):
    """The number of dead letters that were dropped, or would be."""

    matched: fields.AnyInt64
    """How many open dead letters fit the filter."""
    dropped: fields.AnyInt64
    """How many of them were dropped: 0 for a `dry_run`."""
    unauthorized_count: fields.AnyInt64 = 0
    """How many of them came from topics that the caller may not read. They stay."""
    next_page_token: str | UnsetType = UNSET
    """Send it as `page_token` to continue. Absent if no dead letters are left. A call looks at 100,000 at most."""


class RedriveDeadLettersRequest(DropDeadLettersRequest):
    """The dead letters to send back, and their target."""

    to: RedriveTarget = "retry"
    """Who gets the records again."""


class RedriveResult(Response):
    """The number of dead letters that were sent back, or would be, and of those that could not."""

    matched: fields.AnyInt64
    """How many open dead letters fit the filter."""
    redriven: fields.AnyInt64
    """How many of them were sent: 0 for a `dry_run`."""
    skipped_count: fields.AnyInt64 = 0
    """How many of them have no record to send, or no topic to send it to."""
    unauthorized_count: fields.AnyInt64 = 0
    """How many of them came from topics that the caller may not write. They stay, and a later call may send them."""
    next_page_token: str | UnsetType = UNSET
    """Send it as `page_token` to continue. Absent if no dead letters are left. A call looks at 100,000 at most."""

"""The messages of transactions: begin, commit, abort, describe, list."""

from typing import Annotated, Literal

from msgspec import Meta

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Request, Response, at_most
from sharequeue.protocol.messages.problems import TransactionReason, TransactionState
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import MAX_NAME_LENGTH, MAX_PAGE_SIZE, MAX_SETTLED, Int32, Int64

TransactionalId = Annotated[fields.PlainText, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
MAX_NOTE_LENGTH = 256
MAX_MEMBERS = 1000
"""Of one commit: entries with acknowledgements."""
MAX_PARTS = 1000
"""Parts that one commit may name."""


class BeginTransactionRequest(Request):
    """A new transaction. No field is required."""

    transactional_id: TransactionalId | None = None
    """A name that the producer keeps over its restarts. Only the newest producer with this name may continue. 1 to 249
    characters."""
    producer_epoch: fields.NonNegative | None = None
    """The epoch that an earlier begin with this `transactional_id` answered. Without it a new producer begins: what is
    open is aborted, and producers with an earlier epoch are refused."""
    timeout_ms: Int32 = 60_000
    """The transaction is aborted if it is open for longer, by the clock of PostgreSQL. 1 to 900,000, unless the service
    says otherwise. A part has the deadline of its whole."""
    part_of: fields.Uuid | None = None
    """The id of an open transaction. The new one is a part of it: produce to it as to any other. The commit of the
    whole commits the parts that it names, and aborts the others. Not with a `transactional_id`."""


class BegunTransaction(Response):
    """A transaction that has begun and is open."""

    transaction_id: fields.Uuid
    """Send it as `Transaction-Id` with each produce, and in the path of its commit."""
    producer_epoch: Int32
    """Send it with the next begin of this producer. 0 without a `transactional_id`."""
    timeout_ms: Int32
    """As in the request."""
    expires_at_ms: fields.TimestampMs
    """When the transaction is aborted if it is still open, in milliseconds since the epoch."""
    transactional_id: str | None = None
    """As in the request. Absent without one."""
    committed_note: str | None = None
    """The `note` of the last commit with this `transactional_id`, for at least 7 days. Absent if there is none."""


class MemberAcknowledgements(Request):
    """The acknowledgements of a member of a group, as in acknowledgeRecords."""

    group_id: fields.GroupId
    """The group that the records were fetched for."""
    member_id: fields.MemberId
    """The member that holds the records: `member_id` of the answer of the fetch."""
    acknowledgements: Annotated[list[Acknowledgement], Meta(max_length=MAX_SETTLED)]
    """Ranges and what becomes of them: `accept`, `release` or `reject`. At most 10,000 in the whole request."""


class CommitTransactionRequest(Request):
    """The end of a transaction whose records become visible, and which settles what its client consumed."""

    note: Annotated[str, Meta(max_length=MAX_NOTE_LENGTH)] | None = None
    """A text that the next begin with the same `transactional_id` answers, to find out after a crash whether this
    commit happened. At most 256 characters."""
    parts: Annotated[list[fields.Uuid], at_most(MAX_PARTS)] = []
    """The parts of this transaction whose records become visible with its own. Its other parts are aborted. If one of
    them is not open, nothing is committed, and the transaction stays open."""
    acknowledgements: Annotated[list[MemberAcknowledgements], Meta(max_length=MAX_MEMBERS)] = []
    """What the commit settles: records of any groups and topics, in at most 1,000 share-partitions. All of them are
    settled and the records of the transaction become visible, or neither. Refused with `kafka_defaults`."""


class EndTransactionRequest(Request):
    """Has no fields: send `{}`."""


class EndedTransaction(Response):
    """The outcome of a transaction. It is durable, and a repeat of the call answers it again."""

    transaction_id: fields.Uuid
    """Its id, for describeTransaction."""
    state: TransactionState
    """What became of it."""
    reason: TransactionReason
    """Who ended it: its client, its `timeout_ms`, a newer producer with its `transactional_id`, or an operator."""
    partitions: Int32
    """To how many partitions it wrote."""
    ended_at_ms: fields.TimestampMs
    """When it ended, in milliseconds since the epoch."""


class TransactionPartition(Response):
    """A partition that an open transaction wrote to."""

    topic_id: fields.TopicId
    partition: fields.PartitionNumber
    first_offset: Int64
    """The first record of the transaction here. Until it ends,
    readers of committed records stop there at the latest."""
    topic: str | None = None
    """The name of the topic. Absent if this gateway does not know it."""


class WaitingSharePartition(Response):
    """A share-partition that waits for what a transaction does with it."""

    group_id: str
    """The group: one whose records were settled, or one that reads committed records only."""
    topic_id: fields.TopicId
    partition: fields.PartitionNumber
    topic: str | None = None
    """The name of the topic. Absent if this gateway does not know it."""


class UnappliedSettlement(WaitingSharePartition):
    """A share-partition whose leader has not applied yet what a committed transaction settled there."""


class BlockedSharePartition(WaitingSharePartition):
    """A share-partition of a read_committed group that gets no record at or above the first one of a transaction."""


class TransactionDescription(Response):
    """A transaction, open or ended."""

    transaction_id: fields.Uuid
    """The id in the path."""
    producer_epoch: Int32
    """The epoch that its begin answered; 0 without a `transactional_id`."""
    state: TransactionState
    """Whether it is open, or what became of it."""
    began_at_ms: fields.TimestampMs
    """When it began, in milliseconds since the epoch."""
    partitions: Annotated[list[TransactionPartition], at_most(1000)]
    """Where it wrote to while it is open. Empty once it has ended."""
    transactional_id: str | None = None
    """The name of its producer. Absent if it has none."""
    part_of: fields.Uuid | None = None
    """The transaction that it is a part of. Absent if it is not a part, and once it has ended with records."""
    reason: TransactionReason | None = None
    """Who ended it. Absent while it is open."""
    timeout_ms: Int32 | None = None
    """How long it may be open before it is aborted. Absent once it has ended with records."""
    ended_at_ms: fields.TimestampMs | None = None
    """When it ended, in milliseconds since the epoch. Absent while it is open."""
    blocks: Annotated[list[BlockedSharePartition], at_most(1000)] | None = None
    """The share-partitions that wait for its end: in their partitions it is the oldest open transaction. Absent once it
    has ended, or if the group coordinator does not answer which isolation level a group has."""
    more_blocked: bool = False
    """True if it may block others, too: `blocks` covers only the first 200 groups that read its partitions."""
    unapplied: Annotated[list[UnappliedSettlement], at_most(1000)] = []
    """Where its acknowledgements are decided, but their leader has not applied them yet. Nobody gets these records."""


ListedState = Annotated[
    Literal["open", "committed", "aborted"],
    Meta(title="ListedTransactionState", description="What became of the transactions of a list."),
]


class ListTransactionsQuery(Request):
    """A page of the transactions of one state."""

    state: ListedState = "open"
    """Ended ones are listed for as long as their outcomes are kept."""
    transactional_id: TransactionalId | None = None
    """Only those of this producer. Absent: all."""
    transactional_id_prefix: TransactionalId | None = None
    """Only those of producers whose `transactional_id` begins with this. Absent: all."""
    older_than_ms: fields.TimestampMs = 0
    """Only those that have been open for longer, or that ended longer ago, in milliseconds."""
    page_size: fields.PageSize = 1000
    page_token: fields.PageToken | None = None


class TransactionListing(Response):
    """An open transaction in a list."""

    transaction_id: fields.Uuid
    """Its id, for describeTransaction and terminateTransaction."""
    producer_epoch: Int32
    """The epoch that its begin answered; 0 without a `transactional_id`."""
    began_at_ms: fields.TimestampMs
    """When it began, in milliseconds since the epoch."""
    age_ms: Int64
    """How long it has been open, in milliseconds."""
    timeout_ms: Int32
    """How long it may be open before it is aborted."""
    partitions: Int32
    """To how many partitions it has written so far."""
    transactional_id: str | None = None
    """The name of its producer. Absent if it has none."""


class EndedTransactionListing(EndedTransaction):
    """A transaction in a list that was committed or aborted."""

    producer_epoch: Int32
    """The epoch that its begin answered; 0 without a `transactional_id`."""
    began_at_ms: fields.TimestampMs
    """When it began, in milliseconds since the epoch."""
    transactional_id: str | None = None
    """The name of its producer. Absent if it has none."""


class TransactionList(Response):
    """A page of the open transactions, the oldest first; or of the ended ones, the last one first."""

    transactions: Annotated[list[TransactionListing], at_most(MAX_PAGE_SIZE)]
    """At most `page_size` open transactions."""
    ended: Annotated[list[EndedTransactionListing], at_most(MAX_PAGE_SIZE)] = []
    """At most `page_size` transactions that were committed, or aborted; absent without `state`."""
    next_page_token: str | None = None
    """Send it as `page_token` for the next page. Absent on the last page. One page looks at 10,000 ended transactions
    at most, so a page with a filter may be empty although there is a next page."""

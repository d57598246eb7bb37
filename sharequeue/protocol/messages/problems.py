"""The faults of a request, of one of its partitions, or of one acknowledgement, and the fields of a problem."""

from typing import Annotated, Final

from sharequeue.protocol.messages import fields
from sharequeue.protocol.messages.fields import Response, at_most, open_word, word
from sharequeue.protocol.types import MAX_SETTLED, Int32

MAX_BATCHES_PRODUCED: Final = 1000
"""Partitions that one request appends to."""

AcknowledgementStatus = Annotated[
    str,
    word(
        "AcknowledgementStatus",
        "`applied`: the outcome is durable. `ignored`: all of its offsets were finished before. `failed`: nothing of it "
        "happened, and `code` says why. `unknown`: it may have happened; send it again with its `delivery_count`.",
        ("applied", "ignored", "failed", "unknown"),
    ),
]

ErrorCode = Annotated[
    str,
    open_word(
        "ErrorCode",
        "Kafka's name of an error, or one for an error that only HTTP has. A later version may have more of them.",
        (),
    ),
]
"""The document lists them: `sharequeue.protocol.errors` has the table."""

TransactionState = Annotated[
    str,
    open_word(
        "TransactionState", "Whether a transaction is open, or what became of it.", ("open", "committed", "aborted")
    ),
]
TransactionReason = Annotated[
    str,
    open_word(
        "TransactionReason",
        "Who ended a transaction. `refused`: an acknowledgement of its commit was refused.",
        ("client", "timed_out", "fenced", "administrator", "refused"),
    ),
]


class AcknowledgementResult(Response):
    """The result of one acknowledgement."""

    status: AcknowledgementStatus
    """What became of it. Only `unknown` needs a repeat."""
    code: ErrorCode | None = None
    """Kafka's name of the error. Absent if it was applied or ignored."""
    kafka_code: Int32 | None = None
    """Kafka's number of the error, or −1. Absent if it was applied or ignored."""
    detail: str | None = None
    """The cause in words, at most 200 characters. Absent if it was applied or ignored."""
    retriable: bool | None = None
    """Whether the same acknowledgement may succeed later. Absent if it was applied or ignored."""


class PartitionError(Response):
    """A partition that failed; −1: the whole topic."""

    topic: str
    """The name of the topic; its id if the topic was deleted."""
    partition: Int32
    """The number of the partition; −1 stands for the whole topic."""
    code: ErrorCode
    """Kafka's name of the error."""
    kafka_code: Int32
    """Kafka's number of the error, or −1."""
    detail: str
    """The cause in words, and what to do."""


class PointedDetail(Response):
    """A faulty place of the request: an RFC 6901 pointer into the body, or `/` and a query parameter."""

    pointer: str
    """A JSON pointer (RFC 6901) into the body, or a slash and the name of a query parameter."""
    detail: str
    """What is wrong there, in JSON's words: `must be an integer, not a string`."""


class ProducedBatch(Response):
    """The records of a request that one partition has got. Their offsets are dense, in the order of the request."""

    partition: fields.PartitionIndex
    """The partition that the records were appended to, from 0."""
    first_offset: fields.Offset
    """The place of the first of them in the partition."""
    last_offset: fields.Offset
    """The place of the last of them, included."""


class Problem(Response):
    """RFC 9457 problem document, the body of every error."""

    type: str
    """`urn:sharequeue:problem:` and the code in lower case with hyphens. It names the kind of problem and leads to no
    page."""
    title: str
    """The kind of problem in words. It is the same for every problem of this code."""
    status: Int32
    """The HTTP status of the answer, from 400 to 599."""
    detail: str
    """The cause of this problem in words, and what to do."""
    code: ErrorCode
    """Kafka's name of the error. Decide by it, not by `detail`, whose words may change."""
    kafka_code: Int32
    """Kafka's number of the error. Errors that only HTTP has share a number with one that Kafka has."""
    retriable: bool
    """Whether the same request may succeed later. If so, wait for the seconds of `Retry-After` first."""
    definite: bool
    """True: the request surely had no effect. False: it may have had one; repeat it only if twice does no harm."""
    request_id: str
    """The header `X-Request-Id` of the answer. The logs of the services name it."""
    errors: list[PointedDetail] = []
    """The faulty places of the request."""
    limit: fields.AnyInt64 | None = None
    """The limit that the request is above. Absent if the problem is not a limit."""
    current_leader: str | None = None
    """The node id of the gateway that leads the share-partition. Between gateways only."""
    results: Annotated[list[AcknowledgementResult], at_most(MAX_SETTLED)] = []
    """The result of each acknowledgement in request order, if all of them failed."""
    failed_count: Int32 = 0
    """How many entries of `results` failed or are unknown."""
    transaction_id: str | None = None
    """The transaction that the problem is about. Absent in other problems."""
    state: TransactionState | None = None
    """What became of that transaction. Absent if it is not known."""
    reason: TransactionReason | None = None
    """Who ended that transaction. Absent if it is open, or not known."""
    ended_at_ms: fields.TimestampMs | None = None
    """When that transaction ended, in milliseconds since the epoch. Absent if it is open, or not known."""
    appended: bool | None = None
    """True: the records of this request are in the transaction, which has ended. Absent if they are not."""
    producer_epoch: Int32 | None = None
    """The current epoch of the transactional id, if the request sent another one."""
    capability: str | None = None
    """The capability that the record log lacks and the request needs. Absent in other problems."""
    first_batches: Annotated[list[ProducedBatch], at_most(MAX_BATCHES_PRODUCED)] = []
    """Where the first request with this `Idempotency-Key` appended its records, if that request was another one."""

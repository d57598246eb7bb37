"""The Python client: `Producer`, `ShareConsumer`, `RecordStream` and `Admin`, for asyncio; `sharequeue.client.sync` has
them for ordinary code.

Any program may import this package, on any system; it needs msgspec and httptools alone. The names that this package
and `sync` export are public, its other modules are not. The client decides when to send, repeat, renew and give up. The
service decides which member holds a record.

The life of a delivery, a range of offsets that one fetch acquired:

                 a fetch acquires it
                         │
                         ▼                        half of the lock's time is over: renewed in the background
       ┌──────────────▶ HELD ───────────────────▶ and held on; or the renewal is refused: LOST, another
       │                 │                        member may get the record, an acknowledgement fails
       │                 │ a poll returns its records; `acknowledge` (in implicit mode the next poll) chooses outcomes
       │                 ▼
       │              CHOSEN ───────────────────▶ `acknowledge` again: the last choice counts
       │                 │
       │                 │ the next poll or commit sends them
       │                 ▼
       │             IN FLIGHT ─────────────────▶ lost answer, or a result that is unknown or retriable:
       │                 │                        sent again, as long as request_timeout_ms says
       │ renew, applied  ├─────── refused ──────▶ LOST: among the `failures` of a commit, the callback's, or logged
       └─────────────────┤
                         │ accept, release, reject: applied
                         ▼
                      SETTLED                     `close` settles what is chosen and releases the rest

`consuming/deliveries.py` has these states, `consuming/settling.py` moves deliveries through them,
`consuming/renewing.py` renews.

Errors: `ApiError` is the service's problem (`code`, `retriable`, `definite`, `status`, `detail`, and `problem`, the
whole document). Its subclasses are exported, too: `UnknownTopicOrPartition` and others stand for one code each,
`Unreachable` for a gateway that takes no connection, `UnexpectedAnswer` for an answer that is not a gateway's, and
`LoginWanted` for one that wants a login.
`AcknowledgementError` lists what was not applied. `IllegalState` is a fault of the program. Only `Record.value` raises
`ValueUndecodable`, or its subclass `ValueTooDeep`.
"""

from sharequeue.client.admin import Admin as Admin
from sharequeue.client.consuming.acknowledging import Committed as Committed
from sharequeue.client.consuming.deliveries import Record as Record
from sharequeue.client.consuming.record_stream import RecordStream as RecordStream
from sharequeue.client.consuming.share_consumer import ShareConsumer as ShareConsumer
from sharequeue.client.errors import (
    AcknowledgementError as AcknowledgementError,
    AcknowledgementFailure as AcknowledgementFailure,
    IllegalState as IllegalState,
    ValueTooDeep as ValueTooDeep,
    ValueUndecodable as ValueUndecodable,
)
from sharequeue.client.new_record import NewRecord as NewRecord
from sharequeue.client.producer import Producer as Producer
from sharequeue.client.scheduling import Scheduled as Scheduled
from sharequeue.client.sending import Pending as Pending, Produced as Produced
from sharequeue.client.transaction import Transaction as Transaction
from sharequeue.protocol.errors import (
    ClusterAuthorizationFailed as ClusterAuthorizationFailed,
    ConcurrentTransactions as ConcurrentTransactions,
    FencedMemberEpoch as FencedMemberEpoch,
    GroupAuthorizationFailed as GroupAuthorizationFailed,
    GroupIdNotFound as GroupIdNotFound,
    GroupMaxSizeReached as GroupMaxSizeReached,
    InvalidConfig as InvalidConfig,
    InvalidGroupId as InvalidGroupId,
    InvalidPartitions as InvalidPartitions,
    InvalidProducerEpoch as InvalidProducerEpoch,
    InvalidRecordState as InvalidRecordState,
    InvalidShareSessionEpoch as InvalidShareSessionEpoch,
    InvalidTopic as InvalidTopic,
    InvalidTransactionTimeout as InvalidTransactionTimeout,
    InvalidTxnState as InvalidTxnState,
    InvalidUpdateVersion as InvalidUpdateVersion,
    NonEmptyGroup as NonEmptyGroup,
    ProducerFenced as ProducerFenced,
    ResourceNotFound as ResourceNotFound,
    ShareSessionLimitReached as ShareSessionLimitReached,
    ShareSessionNotFound as ShareSessionNotFound,
    StorageError as StorageError,
    TopicAlreadyExists as TopicAlreadyExists,
    TopicAuthorizationFailed as TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed as TransactionalIdAuthorizationFailed,
    TransactionalIdNotFound as TransactionalIdNotFound,
    UnknownMemberId as UnknownMemberId,
    UnknownTopicId as UnknownTopicId,
    UnknownTopicOrPartition as UnknownTopicOrPartition,
)
from sharequeue_http.forms.errors import (
    ApiError as ApiError,
    AuthenticationFailed as AuthenticationFailed,
    CoordinatorNotAvailable as CoordinatorNotAvailable,
    InvalidRequest as InvalidRequest,
    LoginWanted as LoginWanted,
    RequestTimedOut as RequestTimedOut,
    Throttled as Throttled,
    TooLarge as TooLarge,
    UnexpectedAnswer as UnexpectedAnswer,
    Unreachable as Unreachable,
)

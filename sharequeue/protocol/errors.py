"""Every error of the protocol: Kafka's name and number, the HTTP status, and what the caller may conclude.

Two statuses ask the caller to change the request: 400 says that the service cannot read it (its HTTP, JSON or UTF-8),
422 that the service refuses something it says.

Pure code raises the small exceptions below; `sharequeue_http.problems` turns them into problem documents.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

from sharequeue.protocol.messages.problems import Problem
from sharequeue.protocol.types import group_id_fault


class Error(NamedTuple):
    """One row of the table.

    `retriable`: the same request may succeed later. `definite`: the request surely had no effect; otherwise a retry
    may do the work twice.
    """

    code: str
    kafka_code: int
    status: int
    title: str
    retriable: bool = False
    definite: bool = True


ERRORS: Final = (
    Error("UNKNOWN_SERVER_ERROR", -1, 500, "Unexpected server error", definite=False),
    Error("NONE", 0, 200, "No error"),
    Error("OFFSET_OUT_OF_RANGE", 1, 422, "Offset out of range"),
    Error("CORRUPT_MESSAGE", 2, 500, "Stored record is corrupt"),
    Error("UNKNOWN_TOPIC_OR_PARTITION", 3, 404, "Unknown topic or partition"),
    Error("NOT_LEADER_OR_FOLLOWER", 6, 421, "Not the leader", retriable=True),
    Error("REQUEST_TIMED_OUT", 7, 503, "Request timed out", retriable=True, definite=False),
    Error("MESSAGE_TOO_LARGE", 10, 413, "Record or request too large"),
    Error("COORDINATOR_LOAD_IN_PROGRESS", 14, 503, "Coordinator is loading", retriable=True),
    Error("COORDINATOR_NOT_AVAILABLE", 15, 503, "Coordinator not available", retriable=True),
    Error("NOT_COORDINATOR", 16, 421, "Not the coordinator", retriable=True),
    Error("INVALID_TOPIC_EXCEPTION", 17, 422, "Invalid topic name"),
    Error("INVALID_GROUP_ID", 24, 422, "Invalid group id"),
    Error("UNKNOWN_MEMBER_ID", 25, 404, "Unknown member"),
    Error("TOPIC_AUTHORIZATION_FAILED", 29, 403, "Not authorised for the topic"),
    Error("GROUP_AUTHORIZATION_FAILED", 30, 403, "Not authorised for the group"),
    Error("CLUSTER_AUTHORIZATION_FAILED", 31, 401, "The cluster token is missing or wrong"),
    Error("UNSUPPORTED_VERSION", 35, 422, "Unsupported"),
    Error("TOPIC_ALREADY_EXISTS", 36, 409, "Topic already exists"),
    Error("INVALID_PARTITIONS", 37, 422, "Invalid number of partitions"),
    Error("INVALID_CONFIG", 40, 422, "Invalid configuration"),
    Error("INVALID_REQUEST", 42, 422, "Invalid request"),
    Error("UNKNOWN_PATH", 42, 404, "Unknown path"),
    Error("HOST_NOT_ALLOWED", 42, 421, "Host is not this gateway's"),
    Error("ORIGIN_NOT_ALLOWED", 42, 403, "Pages of this origin may not call"),
    Error("INVALID_PRODUCER_EPOCH", 47, 409, "Producer epoch is unknown"),
    Error("INVALID_TXN_STATE", 48, 409, "Transaction is not in the state this needs"),
    Error("INVALID_TRANSACTION_TIMEOUT", 50, 422, "Invalid transaction timeout"),
    Error("CONCURRENT_TRANSACTIONS", 51, 409, "Transaction is in use", retriable=True),
    Error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 53, 403, "Not authorised for the transaction"),
    Error("KAFKA_STORAGE_ERROR", 56, 503, "Storage not available", retriable=True, definite=False),
    Error("NON_EMPTY_GROUP", 68, 409, "Group is in use"),
    Error("GROUP_ID_NOT_FOUND", 69, 404, "Unknown group"),
    Error("FENCED_LEADER_EPOCH", 74, 409, "Leader epoch is fenced", retriable=True),
    Error("GROUP_MAX_SIZE_REACHED", 81, 429, "Group is full"),
    Error("THROTTLING_QUOTA_EXCEEDED", 89, 429, "Throttled", retriable=True),
    Error("PRODUCER_FENCED", 90, 409, "Producer is fenced"),
    Error("INVALID_UPDATE_VERSION", 95, 409, "Another version is there"),
    Error("UNKNOWN_TOPIC_ID", 100, 404, "Unknown topic id"),
    Error("TRANSACTIONAL_ID_NOT_FOUND", 105, 404, "Unknown transaction"),
    Error("FENCED_MEMBER_EPOCH", 110, 409, "Member epoch is fenced"),
    Error("INVALID_RECORD_STATE", 121, 409, "Record is not in the state this needs"),
    Error("SHARE_SESSION_NOT_FOUND", 122, 404, "Share session not found"),
    Error("INVALID_SHARE_SESSION_EPOCH", 123, 409, "Invalid share session epoch"),
    Error("FENCED_STATE_EPOCH", 124, 409, "State epoch is fenced"),
    Error("SHARE_SESSION_LIMIT_REACHED", 133, 429, "Share session limit reached", retriable=True),
)
BY_NUMBER: Final[Mapping[int, Error]] = {error.kafka_code: error for error in reversed(ERRORS)}
"""Errors by Kafka's number; the first row of a number counts.
Errors that only HTTP has share the number of a row above."""
BY_CODE: Final[Mapping[str, Error]] = {error.code: error for error in ERRORS}


class ApiError(Exception):
    """A request, a partition or an acknowledgement that failed, and why.

    `detail` tells people what was wrong and what to do. `pointers` are the faulty places of the body, each as
    (JSON pointer, detail). `status` replaces the table's status for a code that has several (42: 400, 415, …).
    """

    error: ClassVar[Error] = BY_NUMBER[-1]

    def __init__(
        self,
        detail: str,
        *,
        error: Error | None = None,
        status: int | None = None,
        definite: bool | None = None,
        retry_after_s: float | None = None,
        limit: int | None = None,
        pointers: Sequence[tuple[str, str]] = (),
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        if error is not None:
            self.error = error  # type: ignore[misc]  # an instance may stand for any row of the table
        self.detail = detail
        self.status = self.error.status if status is None else status
        self.definite = self.error.definite if definite is None else definite
        self.retry_after_s = retry_after_s
        self.limit = limit
        self.pointers = tuple(pointers)
        self.extra = extra or {}
        self.problem: Problem | None = None
        """The problem document that another service answered, if the error came from there."""

    @property
    def code(self) -> str:
        """The code in docs/errors.md; of `Unreachable` and `UnexpectedAnswer` the one that this page gives them."""
        return self.error.code

    @property
    def retriable(self) -> bool:
        """Whether the same call may succeed later."""
        return self.error.retriable


class UnexpectedAnswer(ApiError):
    """The answer is not one of the call's: its status or content type is another one, as that of a login page. The call
    may have had its effect, unless `definite`."""

    @property
    def code(self) -> str:
        return "UNEXPECTED_ANSWER"


class UnknownTopicOrPartition(ApiError):
    error = BY_CODE["UNKNOWN_TOPIC_OR_PARTITION"]


class NotLeaderOrFollower(ApiError):
    error = BY_CODE["NOT_LEADER_OR_FOLLOWER"]


class RequestTimedOut(ApiError):
    error = BY_CODE["REQUEST_TIMED_OUT"]


class TooLarge(ApiError):
    error = BY_CODE["MESSAGE_TOO_LARGE"]


class CoordinatorNotAvailable(ApiError):
    error = BY_CODE["COORDINATOR_NOT_AVAILABLE"]


class Unreachable(CoordinatorNotAvailable):
    """There is no connection to the gateway (or service): the call was not sent."""

    @property
    def code(self) -> str:
        return "UNREACHABLE"


class CoordinatorLoadInProgress(ApiError):
    error = BY_CODE["COORDINATOR_LOAD_IN_PROGRESS"]


class NotCoordinator(ApiError):
    error = BY_CODE["NOT_COORDINATOR"]


class InvalidTopic(ApiError):
    error = BY_CODE["INVALID_TOPIC_EXCEPTION"]


class InvalidGroupId(ApiError):
    error = BY_CODE["INVALID_GROUP_ID"]


class UnknownMemberId(ApiError):
    error = BY_CODE["UNKNOWN_MEMBER_ID"]


class ClusterAuthorizationFailed(ApiError):
    error = BY_CODE["CLUSTER_AUTHORIZATION_FAILED"]


class TopicAlreadyExists(ApiError):
    error = BY_CODE["TOPIC_ALREADY_EXISTS"]


class InvalidPartitions(ApiError):
    error = BY_CODE["INVALID_PARTITIONS"]


class InvalidConfig(ApiError):
    error = BY_CODE["INVALID_CONFIG"]


class InvalidRequest(ApiError):
    error = BY_CODE["INVALID_REQUEST"]


class UnknownPath(ApiError):
    error = BY_CODE["UNKNOWN_PATH"]


class HostNotAllowed(ApiError):
    error = BY_CODE["HOST_NOT_ALLOWED"]


class OriginNotAllowed(ApiError):
    error = BY_CODE["ORIGIN_NOT_ALLOWED"]


class StorageError(ApiError):
    error = BY_CODE["KAFKA_STORAGE_ERROR"]


class NonEmptyGroup(ApiError):
    error = BY_CODE["NON_EMPTY_GROUP"]


class GroupIdNotFound(ApiError):
    error = BY_CODE["GROUP_ID_NOT_FOUND"]


class FencedLeaderEpoch(ApiError):
    error = BY_CODE["FENCED_LEADER_EPOCH"]


class GroupMaxSizeReached(ApiError):
    error = BY_CODE["GROUP_MAX_SIZE_REACHED"]


class Throttled(ApiError):
    error = BY_CODE["THROTTLING_QUOTA_EXCEEDED"]


class InvalidProducerEpoch(ApiError):
    error = BY_CODE["INVALID_PRODUCER_EPOCH"]


class InvalidTxnState(ApiError):
    error = BY_CODE["INVALID_TXN_STATE"]


class InvalidTransactionTimeout(ApiError):
    error = BY_CODE["INVALID_TRANSACTION_TIMEOUT"]


class ConcurrentTransactions(ApiError):
    error = BY_CODE["CONCURRENT_TRANSACTIONS"]


class TransactionalIdAuthorizationFailed(ApiError):
    error = BY_CODE["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]


class ProducerFenced(ApiError):
    error = BY_CODE["PRODUCER_FENCED"]


class TransactionalIdNotFound(ApiError):
    error = BY_CODE["TRANSACTIONAL_ID_NOT_FOUND"]


class InvalidUpdateVersion(ApiError):
    error = BY_CODE["INVALID_UPDATE_VERSION"]


class UnknownTopicId(ApiError):
    error = BY_CODE["UNKNOWN_TOPIC_ID"]


class FencedMemberEpoch(ApiError):
    error = BY_CODE["FENCED_MEMBER_EPOCH"]


class InvalidRecordState(ApiError):
    error = BY_CODE["INVALID_RECORD_STATE"]


class ShareSessionNotFound(ApiError):
    error = BY_CODE["SHARE_SESSION_NOT_FOUND"]


class InvalidShareSessionEpoch(ApiError):
    error = BY_CODE["INVALID_SHARE_SESSION_EPOCH"]


class FencedStateEpoch(ApiError):
    error = BY_CODE["FENCED_STATE_EPOCH"]


class ShareSessionLimitReached(ApiError):
    error = BY_CODE["SHARE_SESSION_LIMIT_REACHED"]


_CLASSES: Final[Mapping[Error, type[ApiError]]] = {
    kind.error: kind for kind in ApiError.__subclasses__() if "error" in vars(kind)
}


def exception_type(error: Error) -> type[ApiError]:
    """The exception class of a row of the table; ApiError for rows without a class of their own."""
    return _CLASSES.get(error, ApiError)


def error_of(kafka_code: int, detail: str | None) -> ApiError:
    """The exception for an error that another service answered as data."""
    error = BY_NUMBER.get(kafka_code, BY_NUMBER[-1])
    return exception_type(error)(detail or error.title, error=error)


def checked_group_id(group_id: str) -> str:
    """The same group id. Raises: InvalidGroupId: it cannot name a group."""
    fault = group_id_fault(group_id)
    if fault:
        raise InvalidGroupId(fault)
    return group_id

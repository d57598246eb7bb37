"""Every error of the protocol: Kafka's name and number, the HTTP status, and what the caller may conclude.

Pure code raises the small exceptions below. The form of an error, and the errors that HTTP itself has, are those of
`sharequeue_http.forms.errors`, which learns the others here.
"""

from collections.abc import Mapping
from typing import Final

from sharequeue.protocol.messages.problems import Problem
from sharequeue.protocol.types import group_id_fault
from sharequeue_http.forms.errors import (
    KNOWN,
    ApiError,
    AuthenticationFailed,
    CoordinatorNotAvailable,
    Error,
    HostNotAllowed,
    InvalidRequest,
    OriginNotAllowed,
    RequestTimedOut,
    Throttled,
    TooLarge,
    UnknownPath,
    exception_type,
)

KAFKA_CODES: Final[Mapping[Error, int]] = {
    ApiError.error: -1,
    Error("NONE", 200, "No error"): 0,
    Error("OFFSET_OUT_OF_RANGE", 422, "Offset out of range"): 1,
    Error("CORRUPT_MESSAGE", 500, "Stored record is corrupt"): 2,
    Error("UNKNOWN_TOPIC_OR_PARTITION", 404, "Unknown topic or partition"): 3,
    Error("NOT_LEADER_OR_FOLLOWER", 421, "Not the leader", retriable=True): 6,
    RequestTimedOut.error: 7,
    TooLarge.error: 10,
    Error("COORDINATOR_LOAD_IN_PROGRESS", 503, "Coordinator is loading", retriable=True): 14,
    CoordinatorNotAvailable.error: 15,
    Error("NOT_COORDINATOR", 421, "Not the coordinator", retriable=True): 16,
    Error("INVALID_TOPIC_EXCEPTION", 422, "Invalid topic name"): 17,
    Error("INVALID_GROUP_ID", 422, "Invalid group id"): 24,
    Error("UNKNOWN_MEMBER_ID", 404, "Unknown member"): 25,
    Error("TOPIC_AUTHORIZATION_FAILED", 403, "Not authorised for the topic"): 29,
    Error("GROUP_AUTHORIZATION_FAILED", 403, "Not authorised for the group"): 30,
    Error("CLUSTER_AUTHORIZATION_FAILED", 403, "Not authorised for the cluster"): 31,
    Error("UNSUPPORTED_VERSION", 501, "Not with this record log"): 35,
    Error("TOPIC_ALREADY_EXISTS", 409, "Topic already exists"): 36,
    Error("INVALID_PARTITIONS", 422, "Invalid number of partitions"): 37,
    Error("INVALID_CONFIG", 422, "Invalid configuration"): 40,
    InvalidRequest.error: 42,
    UnknownPath.error: 42,
    HostNotAllowed.error: 42,
    OriginNotAllowed.error: 42,
    Error("INVALID_PRODUCER_EPOCH", 409, "Producer epoch is unknown"): 47,
    Error("INVALID_TXN_STATE", 409, "Transaction is not in the state this needs"): 48,
    Error("INVALID_TRANSACTION_TIMEOUT", 422, "Invalid transaction timeout"): 50,
    Error("CONCURRENT_TRANSACTIONS", 409, "Transaction is in use", retriable=True): 51,
    Error("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 403, "Not authorised for the transaction"): 53,
    Error("KAFKA_STORAGE_ERROR", 503, "Storage not available", retriable=True, definite=False): 56,
    AuthenticationFailed.error: 58,
    Error("NON_EMPTY_GROUP", 409, "Group is in use"): 68,
    Error("GROUP_ID_NOT_FOUND", 404, "Unknown group"): 69,
    Error("FENCED_LEADER_EPOCH", 409, "Leader epoch is fenced", retriable=True): 74,
    Error("GROUP_MAX_SIZE_REACHED", 429, "Group is full"): 81,
    Throttled.error: 89,
    Error("PRODUCER_FENCED", 409, "Producer is fenced"): 90,
    Error("INVALID_UPDATE_VERSION", 409, "Another version is there"): 95,
    Error("RESOURCE_NOT_FOUND", 404, "Unknown key or schedule"): 91,
    Error("UNKNOWN_TOPIC_ID", 404, "Unknown topic id"): 100,
    Error("TRANSACTIONAL_ID_NOT_FOUND", 404, "Unknown transaction"): 105,
    Error("FENCED_MEMBER_EPOCH", 409, "Member epoch is fenced"): 110,
    Error("INVALID_RECORD_STATE", 409, "Record is not in the state this needs"): 121,
    Error("SHARE_SESSION_NOT_FOUND", 404, "Share session not found"): 122,
    Error("INVALID_SHARE_SESSION_EPOCH", 409, "Invalid share session epoch"): 123,
    Error("FENCED_STATE_EPOCH", 409, "State epoch is fenced"): 124,
    Error("SHARE_SESSION_LIMIT_REACHED", 429, "Share session limit reached", retriable=True): 133,
}
"""The table: every error, and Kafka's number of it. Errors that only HTTP has share the number of a row above."""
BY_NUMBER: Final[Mapping[int, Error]] = {number: error for error, number in reversed(list(KAFKA_CODES.items()))}
"""Errors by Kafka's number; the first row of a number counts."""
BY_CODE: Final[Mapping[str, Error]] = {error.code: error for error in KAFKA_CODES}

TOPIC_ERRORS: Final = ("INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PARTITION")
"""Of every call that names a topic."""
GROUP_ERRORS: Final = ("INVALID_GROUP_ID",)
"""Of every call that names a group."""


class UnknownTopicOrPartition(ApiError):
    error = BY_CODE["UNKNOWN_TOPIC_OR_PARTITION"]


class NotLeaderOrFollower(ApiError):
    error = BY_CODE["NOT_LEADER_OR_FOLLOWER"]


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


class TopicAlreadyExists(ApiError):
    error = BY_CODE["TOPIC_ALREADY_EXISTS"]


class InvalidPartitions(ApiError):
    error = BY_CODE["INVALID_PARTITIONS"]


class InvalidConfig(ApiError):
    error = BY_CODE["INVALID_CONFIG"]


class TopicAuthorizationFailed(ApiError):
    error = BY_CODE["TOPIC_AUTHORIZATION_FAILED"]


class GroupAuthorizationFailed(ApiError):
    error = BY_CODE["GROUP_AUTHORIZATION_FAILED"]


class ClusterAuthorizationFailed(ApiError):
    error = BY_CODE["CLUSTER_AUTHORIZATION_FAILED"]


class ResourceNotFound(ApiError):
    error = BY_CODE["RESOURCE_NOT_FOUND"]


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


KNOWN.add(
    {
        error: {"type": f"urn:sharequeue:problem:{error.code.lower().replace('_', '-')}", "kafka_code": number}
        for error, number in KAFKA_CODES.items()
    },
    Problem,
)


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

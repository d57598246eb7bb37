"""Errors of brokers, as errors of the calls that met them."""

from typing import Final

from sharequeue.protocol.errors import StorageError, UnknownTopicOrPartition
from sharequeue_http.forms.errors import ApiError, InvalidRequest, RequestTimedOut, TooLarge
from sharequeue_kafka.errors import KafkaError

MISSING: Final = {"UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID"}
_TOO_LARGE: Final = {"MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"}
_INVALID: Final = {"INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE"}


def append_error(fault: KafkaError) -> ApiError:
    """Return what an append answers: a refusal by the broker is the caller's to mend; without an answer, it may have
    happened."""
    if fault.name in MISSING:
        return UnknownTopicOrPartition("Kafka has deleted the topic, or the partition", definite=fault.definite)
    if fault.name in _TOO_LARGE:
        return TooLarge(
            f"the records for one partition exceed what its topic takes in one batch (max.message.bytes of Kafka):"
            f" send fewer records at once ({fault.message})"
        )
    if fault.name in _INVALID and fault.definite:
        return InvalidRequest(f"Kafka refuses the records: {fault.message}")
    if fault.definite:
        return StorageError(f"Kafka did not take the records, nothing was appended: {fault}", definite=True)
    return RequestTimedOut(f"Kafka did not answer in time: the records may have been appended ({fault})")


def storage_error(fault: KafkaError) -> StorageError:
    """Return what a read answers, or an append that has not begun."""
    return StorageError(f"Kafka cannot be used now: {fault}", definite=True)

"""The state of share-partitions: calls of the share coordinator. Source: KIP-932."""

from functools import partial

from sharequeue.protocol.messages.share_state import (
    ShareStateRequest,
    ShareStateResponse,
    TopicDeletedRequest,
    TopicDeletedResponse,
    WriteBatchRequest,
    WriteBatchResponse,
)
from sharequeue_http.forms.api import Api

_repeatable = partial(Api, idempotent=True)
INITIALIZE_STATE = _repeatable(
    "initializeShareGroupState",
    "POST /v1/share-state/initialize",
    "Set the state epoch and start offset of share-partitions, and discard earlier state batches.",
    request=ShareStateRequest,
    response=ShareStateResponse,
)
READ_STATE = _repeatable(
    "readShareGroupState",
    "POST /v1/share-state/read",
    "Read the state of share-partitions; a higher leader epoch is recorded and fences lower ones.",
    request=ShareStateRequest,
    response=ShareStateResponse,
)
WRITE_STATE = _repeatable(
    "writeShareGroupState",
    "POST /v1/share-state/write",
    "Write state of one group's share-partitions; answered when it is durable.",
    request=ShareStateRequest,
    response=ShareStateResponse,
)
WRITE_STATE_BATCH = _repeatable(
    "writeShareGroupStates",
    "POST /v1/share-state/write-batch",
    "Write state of several groups' share-partitions; answered when all of it is durable.",
    request=WriteBatchRequest,
    response=WriteBatchResponse,
)
DELETE_STATE = _repeatable(
    "deleteShareGroupState",
    "POST /v1/share-state/delete",
    "Delete the state of share-partitions.",
    request=ShareStateRequest,
    response=ShareStateResponse,
)
READ_STATE_SUMMARY = _repeatable(
    "readShareGroupStateSummary",
    "POST /v1/share-state/read-summary",
    "Read epochs, start offset and delivery-complete count of share-partitions.",
    request=ShareStateRequest,
    response=ShareStateResponse,
)
TOPIC_STATE_DELETED = _repeatable(
    "deleteTopicShareState",
    "POST /v1/share-state/topic-deleted",
    "Delete every group's state for a deleted topic, in the shards of this instance.",
    request=TopicDeletedRequest,
    response=TopicDeletedResponse,
)

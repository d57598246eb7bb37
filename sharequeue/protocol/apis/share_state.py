"""The state of share-partitions: calls of the share coordinator. Source: KIP-932."""

from functools import partial

from sharequeue.protocol.messages.share_state import (
    ShareStateRequest,
    ShareStateResponse,
    TopicDeletedRequest,
    TopicDeletedResponse,
)
from sharequeue_http.forms.api import Api

_repeatable = partial(Api, idempotent=True)
_call = partial(_repeatable, request=ShareStateRequest, response=ShareStateResponse)
INITIALIZE_STATE = _call(
    "initializeShareGroupState",
    "POST /v1/share-state/initialize",
    "Set the state epoch and start offset of share-partitions, and discard earlier state batches.",
)
READ_STATE = _call(
    "readShareGroupState",
    "POST /v1/share-state/read",
    "Read the state of share-partitions; a higher leader epoch is recorded and fences lower ones.",
)
WRITE_STATE = _call(
    "writeShareGroupStates",
    "POST /v1/share-state/write",
    "Write state of share-partitions; answered when all of it is durable.",
)
DELETE_STATE = _call(
    "deleteShareGroupState",
    "POST /v1/share-state/delete",
    "Delete the state of share-partitions.",
)
READ_STATE_SUMMARY = _call(
    "readShareGroupStateSummary",
    "POST /v1/share-state/read-summary",
    "Read epochs, start offset and delivery-complete count of share-partitions.",
)
TOPIC_STATE_DELETED = _repeatable(
    "deleteTopicShareState",
    "POST /v1/share-state/topic-deleted",
    "Delete every group's state for a deleted topic, in the shards of this instance.",
    request=TopicDeletedRequest,
    response=TopicDeletedResponse,
)

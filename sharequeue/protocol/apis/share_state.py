"""The state of share-partitions: calls of the share coordinator. Source: KIP-932."""

from sharequeue.protocol.messages.audit import ExportStateQuery, ExportStateResponse
from sharequeue.protocol.messages.share_state import (
    ShareStateRequest,
    ShareStateResponse,
    TopicDeletedRequest,
    TopicDeletedResponse,
    WriteBatchRequest,
    WriteBatchResponse,
)
from sharequeue_http.forms.api import Api

INITIALIZE_STATE = Api(
    "initializeShareGroupState",
    "POST",
    "/v1/share-state/initialize",
    "Set the state epoch and start offset of share-partitions, and discard earlier state batches.",
    request=ShareStateRequest,
    response=ShareStateResponse,
    idempotent=True,
)
READ_STATE = Api(
    "readShareGroupState",
    "POST",
    "/v1/share-state/read",
    "Read the state of share-partitions; a higher leader epoch is recorded and fences lower ones.",
    request=ShareStateRequest,
    response=ShareStateResponse,
    idempotent=True,
)
WRITE_STATE = Api(
    "writeShareGroupState",
    "POST",
    "/v1/share-state/write",
    "Write state of one group's share-partitions; answered when it is durable.",
    request=ShareStateRequest,
    response=ShareStateResponse,
    idempotent=True,
)
WRITE_STATE_BATCH = Api(
    "writeShareGroupStates",
    "POST",
    "/v1/share-state/write-batch",
    "Write state of several groups' share-partitions; answered when all of it is durable.",
    request=WriteBatchRequest,
    response=WriteBatchResponse,
    idempotent=True,
)
DELETE_STATE = Api(
    "deleteShareGroupState",
    "POST",
    "/v1/share-state/delete",
    "Delete the state of share-partitions.",
    request=ShareStateRequest,
    response=ShareStateResponse,
    idempotent=True,
)
READ_STATE_SUMMARY = Api(
    "readShareGroupStateSummary",
    "POST",
    "/v1/share-state/read-summary",
    "Read epochs, start offset and delivery-complete count of share-partitions.",
    request=ShareStateRequest,
    response=ShareStateResponse,
    idempotent=True,
)
TOPIC_STATE_DELETED = Api(
    "deleteTopicShareState",
    "POST",
    "/v1/share-state/topic-deleted",
    "Delete every group's state for a deleted topic, in the shards of this instance.",
    request=TopicDeletedRequest,
    response=TopicDeletedResponse,
    idempotent=True,
)
EXPORT_STATE = Api(
    "exportShareGroupState",
    "GET",
    "/v1/share-state/export",
    "List the stored rows of share-partitions, a page at a time.",
    request=ExportStateQuery,
    response=ExportStateResponse,
)

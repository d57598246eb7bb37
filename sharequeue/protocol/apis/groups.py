"""Every call of the services, one row each: the row serves the server, the client, OpenAPI and the tests."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from sharequeue.protocol import (
    audit_messages,
    bounds,
    compaction_messages,
    group_messages,
    internal,
    messages,
    report_messages,
)
from sharequeue.protocol.messages import Request

NO_BODY: Final = None
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class Api:
    """One call. `path` holds `{parameters}`; `request` is the type of the body (GET, DELETE: the query), `response` the answer's.

    `errors`: the codes that are particular to this call; every call may also answer 42, 413, 415, -1 and 503.
    `idempotent`: asking twice does no more than asking once, so an answer that was lost may be asked for again.
    """

    operation_id: str
    method: str
    path: str
    summary: str
    request: Any = NO_BODY
    response: Any = NO_BODY
    status: int = 200
    tag: str = "Internal"
    errors: tuple[str, ...] = ()
    idempotent: bool = False
    raw_body: bool = False
    """The body is bytes of any content type, not JSON."""
    headers: tuple[tuple[str, str], ...] = ()
    """Request headers this call understands, as (name, meaning)."""
    also: tuple[int, ...] = ()
    """Further statuses that answer `response`, not a problem."""
    media_types: tuple[str, ...] = ()
    """Further media types of the answer, for who asks for one with `Accept`."""
    check_body: Callable[[bytes], None] = bounds.check_values
    """Called with a client's body before it is decoded. Raises: TooMany."""
    query_parameters: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        if self.method in ("GET", "DELETE") and self.request is not NO_BODY:
            object.__setattr__(self, "query_parameters", self.request.__struct_fields__)

    @property
    def internal(self) -> bool:
        """Only services call it, with the cluster token."""
        return self.tag == "Internal"


class ListTopicsQuery(Request):
    page_size: messages.PageSize = 1000
    page_token: messages.PageToken | None = None


_TOPIC_ERRORS = ("INVALID_TOPIC_EXCEPTION", "UNKNOWN_TOPIC_OR_PARTITION")
_GROUP_ERRORS = ("INVALID_GROUP_ID",)
_SESSION_ERRORS = ("SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH")
_IDEMPOTENCY_KEY = ("Idempotency-Key", "1 to 128 characters; a repeat within 24 hours answers the first answer again")

_IDEMPOTENCY_RETENTION = (
    "Idempotency-Retention-Ms",
    "for how long the key must be known: up to 604800000 (7 days); each repeat says the same",
)

# Topics (gateway, which forwards to the group coordinator)

CREATE_TOPIC = Api(
    "createTopic",
    "POST",
    "/v1/topics",
    "Make a topic.",
    messages.CreateTopicRequest,
    messages.Topic,
    201,
    "Topics",
    ("INVALID_TOPIC_EXCEPTION", "INVALID_PARTITIONS", "INVALID_CONFIG", "TOPIC_ALREADY_EXISTS"),
)
LIST_TOPICS = Api(
    "listTopics",
    "GET",
    "/v1/topics",
    "List topics by name, a page at a time.",
    ListTopicsQuery,
    messages.ListTopicsResponse,
    tag="Topics",
    idempotent=True,
)
DESCRIBE_TOPIC = Api(
    "describeTopic",
    "GET",
    "/v1/topics/{topic}",
    "Describe a topic: settings and the offsets of its partitions.",
    response=messages.DescribeTopicResponse,
    tag="Topics",
    errors=_TOPIC_ERRORS,
    idempotent=True,
)
UPDATE_TOPIC = Api(
    "updateTopic",
    "PATCH",
    "/v1/topics/{topic}",
    "Add partitions or change settings.",
    messages.UpdateTopicRequest,
    messages.Topic,
    tag="Topics",
    errors=(*_TOPIC_ERRORS, "INVALID_PARTITIONS", "INVALID_CONFIG"),
    idempotent=True,
)
DELETE_TOPIC = Api(
    "deleteTopic",
    "DELETE",
    "/v1/topics/{topic}",
    "Delete a topic, its records and every group's state for it.",
    status=204,
    tag="Topics",
    errors=_TOPIC_ERRORS,
)
DELETE_RECORDS = Api(
    "deleteRecords",
    "POST",
    "/v1/topics/{topic}/delete-records",
    "Delete records below an offset; -1 is the log end. Holds on every gateway within a second.",
    messages.DeleteRecordsRequest,
    messages.DeleteRecordsResponse,
    tag="Topics",
    errors=(*_TOPIC_ERRORS, "OFFSET_OUT_OF_RANGE"),
    idempotent=True,
)
READ_RECORDS = Api(
    "readRecords",
    "GET",
    "/v1/topics/{topic}/partitions/{partition}/records",
    "Read records by offset, without a group and without locks.",
    messages.ReadRecordsQuery,
    messages.ReadRecordsResponse,
    tag="Topics",
    errors=(*_TOPIC_ERRORS, "OFFSET_OUT_OF_RANGE"),
    idempotent=True,
    media_types=(ARROW_STREAM,),
)
LIST_RECORD_BATCHES = Api(
    "listRecordBatches",
    "GET",
    "/v1/topics/{topic}/partitions/{partition}/batches",
    "List the record batches of a partition: their offsets, how many records each holds, its generation.",
    compaction_messages.ListRecordBatchesQuery,
    compaction_messages.ListRecordBatchesResponse,
    tag="Topics",
    errors=(*_TOPIC_ERRORS, "OFFSET_OUT_OF_RANGE"),
    idempotent=True,
)
REPLACE_RECORD_BATCHES = Api(
    "replaceRecordBatches",
    "POST",
    "/v1/topics/{topic}/partitions/{partition}/replace-batches",
    "Compact: take records out of batches of a topic with cleanup.policy=compact, all or none; offsets stay.",
    compaction_messages.ReplaceRecordBatchesRequest,
    compaction_messages.ReplaceRecordBatchesResponse,
    tag="Topics",
    errors=(*_TOPIC_ERRORS, "OFFSET_OUT_OF_RANGE", "INVALID_UPDATE_VERSION", "MESSAGE_TOO_LARGE"),
    idempotent=True,
)

# Produce

PRODUCE_RECORDS = Api(
    "produceRecords",
    "POST",
    "/v1/topics/{topic}/records",
    "Append records, all or none; answered when they are durable.",
    messages.ProduceRequest,
    messages.ProduceResponse,
    tag="Produce",
    errors=(*_TOPIC_ERRORS, "MESSAGE_TOO_LARGE", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"),
    headers=(_IDEMPOTENCY_KEY, _IDEMPOTENCY_RETENTION),
    check_body=bounds.check_records,
)
PRODUCE_RAW_RECORD = Api(
    "produceRawRecord",
    "POST",
    "/v1/topics/{topic}/records/raw",
    "Append one record: the body is its value, of any content type; it is read back as value_base64.",
    response=messages.ProduceResponse,
    tag="Produce",
    errors=(*_TOPIC_ERRORS, "MESSAGE_TOO_LARGE", "KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"),
    raw_body=True,
    headers=(
        _IDEMPOTENCY_KEY,
        _IDEMPOTENCY_RETENTION,
        ("Record-Key", "the record's key"),
        ("Record-Partition", "the partition; without it the key's hash or the next partition in turn"),
    ),
)

# Fetch and acknowledge

FETCH_RECORDS = Api(
    "fetchRecords",
    "POST",
    "/v1/share-groups/{group}/fetch",
    "Acquire records and read them; may acknowledge earlier ones with the same call. Waits up to max_wait_ms.",
    messages.FetchRequest,
    messages.FetchResponse,
    tag="Records",
    errors=(*_GROUP_ERRORS, *_TOPIC_ERRORS, *_SESSION_ERRORS, "SHARE_SESSION_LIMIT_REACHED"),
)
ACKNOWLEDGE_RECORDS = Api(
    "acknowledgeRecords",
    "POST",
    "/v1/share-groups/{group}/acknowledge",
    "Accept, release, reject or renew records; answered when the outcome is durable.",
    messages.AcknowledgeRequest,
    messages.AcknowledgeResponse,
    tag="Records",
    errors=(*_GROUP_ERRORS, *_SESSION_ERRORS, "INVALID_RECORD_STATE"),
)
LIST_IN_FLIGHT_RECORDS = Api(
    "listInFlightRecords",
    "GET",
    "/v1/share-groups/{group}/in-flight",
    "List what the group has in flight: who holds it, until when, how often it was delivered.",
    messages.InFlightQuery,
    messages.ListInFlightResponse,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_TOPIC_OR_PARTITION"),
    idempotent=True,
)

# Groups (gateway, which forwards to the group coordinator)

GET_SHARE_GROUP_CONFIG = Api(
    "getShareGroupConfig",
    "GET",
    "/v1/share-groups/{group}/config",
    "The settings of a group in force.",
    response=messages.ShareGroupConfigResponse,
    tag="Groups",
    errors=_GROUP_ERRORS,
    idempotent=True,
)
UPDATE_SHARE_GROUP_CONFIG = Api(
    "updateShareGroupConfig",
    "PATCH",
    "/v1/share-groups/{group}/config",
    "Change settings of a group; the group need not exist yet.",
    messages.UpdateShareGroupConfigRequest,
    messages.ShareGroupConfigResponse,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "INVALID_CONFIG"),
    idempotent=True,
)
LIST_SHARE_GROUP_OFFSETS = Api(
    "listShareGroupOffsets",
    "GET",
    "/v1/share-groups/{group}/offsets",
    "The start offset and the lag of every share-partition of a group.",
    response=messages.ListShareGroupOffsetsResponse,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND"),
    idempotent=True,
)

SHARE_GROUP_HEARTBEAT = Api(
    "shareGroupHeartbeat",
    "POST",
    "/v1/share-groups/{group}/heartbeat",
    "Join a group, stay in it, learn what is assigned, or leave.",
    group_messages.ShareGroupHeartbeatRequest,
    group_messages.ShareGroupHeartbeatResponse,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_MAX_SIZE_REACHED"),
    idempotent=True,
    headers=(("Client-Id", "who this is, for describeShareGroup; User-Agent stands in for it"),),
    check_body=bounds.check_names,
)
LEAVE_SHARE_GROUP = Api(
    "leaveShareGroup",
    "DELETE",
    "/v1/share-groups/{group}/members/{member_id}",
    "Leave a group: the member's share session is closed, and all it holds is released.",
    status=204,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "UNKNOWN_MEMBER_ID"),
    idempotent=True,
)
LIST_SHARE_GROUPS = Api(
    "listShareGroups",
    "GET",
    "/v1/share-groups",
    "List groups by id, a page at a time.",
    group_messages.ListShareGroupsQuery,
    group_messages.ListShareGroupsResponse,
    tag="Groups",
    idempotent=True,
)
DESCRIBE_SHARE_GROUP = Api(
    "describeShareGroup",
    "GET",
    "/v1/share-groups/{group}",
    "Describe a group: its state, its epochs, its members and what each is assigned.",
    group_messages.DescribeShareGroupQuery,
    group_messages.DescribeShareGroupResponse,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND"),
    idempotent=True,
)
DELETE_SHARE_GROUP = Api(
    "deleteShareGroup",
    "DELETE",
    "/v1/share-groups/{group}",
    "Delete a group that is not in use, and where it stands in every topic.",
    group_messages.InUseQuery,
    status=204,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP"),
)
RESET_SHARE_GROUP_OFFSETS = Api(
    "resetShareGroupOffsets",
    "POST",
    "/v1/share-groups/{group}/offsets/reset",
    "Have a group that is not in use start elsewhere; a group that is not there comes to be.",
    group_messages.ResetShareGroupOffsetsRequest,
    group_messages.ResetShareGroupOffsetsResponse,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", *_TOPIC_ERRORS),
)
DELETE_SHARE_GROUP_OFFSETS = Api(
    "deleteShareGroupOffsets",
    "DELETE",
    "/v1/share-groups/{group}/offsets/{topic}",
    "Forget where a group that is not in use stands in a topic.",
    group_messages.InUseQuery,
    status=204,
    tag="Groups",
    errors=(*_GROUP_ERRORS, "GROUP_ID_NOT_FOUND", "NON_EMPTY_GROUP", *_TOPIC_ERRORS),
)
REDRIVE_DEAD_LETTERS = Api(
    "redriveDeadLetters",
    "POST",
    "/v1/share-groups/{group}/dead-letters/redrive",
    "Send a group's dead letters back to their topics, each once.",
    group_messages.RedriveDeadLettersRequest,
    group_messages.RedriveDeadLettersResponse,
    tag="Groups",
    errors=(*_GROUP_ERRORS, *_TOPIC_ERRORS),
    idempotent=True,
)

# Reports

LIST_ACTIVITY = Api(
    "listActivity",
    "GET",
    "/v1/reports/activity",
    "What went through the queue, by hour, group and partition, a page at a time.",
    report_messages.ListActivityQuery,
    report_messages.ListActivityResponse,
    tag="Reports",
    idempotent=True,
)

# Audits, for operators: with the cluster token

AUDIT_SHARE_STATE = Api(
    "auditShareState",
    "GET",
    "/v1/audit/share-state",
    "What is stored of share-partitions, what their share coordinators answer, and where their logs begin and end.",
    audit_messages.ExportStateQuery,
    audit_messages.AuditStateResponse,
    tag="Audit",
    errors=("CLUSTER_AUTHORIZATION_FAILED",),
    idempotent=True,
)
AUDIT_LOG = Api(
    "auditLog",
    "GET",
    "/v1/audit/log/{topic_id}/{partition}",
    "The record batches of a partition as they are stored, without their records.",
    audit_messages.AuditLogQuery,
    audit_messages.AuditLogResponse,
    tag="Audit",
    errors=("CLUSTER_AUTHORIZATION_FAILED",),
    idempotent=True,
)

# Every service

LIVEZ = Api("livez", "GET", "/livez", "The process runs.", response=messages.Empty, tag="Operations", idempotent=True)
READYZ = Api(
    "readyz",
    "GET",
    "/readyz",
    "Whether the service can do its work, and which dependency is missing; 503 if it cannot.",
    response=messages.Readiness,
    tag="Operations",
    idempotent=True,
    also=(503,),
)

METRICS = Api("metrics", "GET", "/metrics", "Metrics in Prometheus text form.", tag="Operations", idempotent=True)

# Share coordinator

INITIALIZE_STATE = Api(
    "initializeShareGroupState",
    "POST",
    "/v1/share-state/initialize",
    "Set state epoch and start offset of share-partitions; earlier state batches are discarded.",
    internal.ShareStateRequest,
    internal.ShareStateResponse,
    idempotent=True,
)
READ_STATE = Api(
    "readShareGroupState",
    "POST",
    "/v1/share-state/read",
    "Read the state of share-partitions; a higher leader epoch is recorded and fences lower ones.",
    internal.ShareStateRequest,
    internal.ShareStateResponse,
    idempotent=True,
)
WRITE_STATE = Api(
    "writeShareGroupState",
    "POST",
    "/v1/share-state/write",
    "Write state of one group's share-partitions; answered when it is durable.",
    internal.ShareStateRequest,
    internal.ShareStateResponse,
    idempotent=True,
)
WRITE_STATE_BATCH = Api(
    "writeShareGroupStates",
    "POST",
    "/v1/share-state/write-batch",
    "Write state of several groups' share-partitions; answered when all of it is durable.",
    internal.WriteBatchRequest,
    internal.WriteBatchResponse,
    idempotent=True,
)
DELETE_STATE = Api(
    "deleteShareGroupState",
    "POST",
    "/v1/share-state/delete",
    "Forget the state of share-partitions.",
    internal.ShareStateRequest,
    internal.ShareStateResponse,
    idempotent=True,
)
READ_STATE_SUMMARY = Api(
    "readShareGroupStateSummary",
    "POST",
    "/v1/share-state/read-summary",
    "Read epochs, start offset and delivery-complete count of share-partitions.",
    internal.ShareStateRequest,
    internal.ShareStateResponse,
    idempotent=True,
)
TOPIC_STATE_DELETED = Api(
    "deleteTopicShareState",
    "POST",
    "/v1/share-state/topic-deleted",
    "Forget every group's state for a topic that was deleted, in the shards of this instance.",
    internal.TopicDeletedRequest,
    internal.TopicDeletedResponse,
    idempotent=True,
)
EXPORT_STATE = Api(
    "exportShareGroupState",
    "GET",
    "/v1/share-state/export",
    "What is stored of share-partitions, row by row, a page at a time.",
    audit_messages.ExportStateQuery,
    audit_messages.ExportStateResponse,
    idempotent=True,
)
FIND_COORDINATOR = Api(
    "findCoordinator",
    "GET",
    "/v1/coordinators",
    "Which group coordinator owns a group, or which share coordinator a share-partition, `group:topic_id:partition`.",
    internal.FindCoordinatorQuery,
    internal.FindCoordinatorResponse,
    idempotent=True,
)
SHARDS = Api(
    "shards",
    "GET",
    "/v1/shards",
    "Which instance of this kind of coordinator owns which shard.",
    response=internal.ShardsResponse,
    idempotent=True,
)

# Group coordinator

REGISTER_GATEWAY = Api(
    "registerGateway",
    "POST",
    "/v1/cluster/gateways",
    "A gateway starts: it is told a leader epoch above all earlier ones.",
    internal.RegisterGatewayRequest,
    internal.RegisterGatewayResponse,
    idempotent=True,
)
RENEW_GATEWAY = Api(
    "renewGateway",
    "POST",
    "/v1/cluster/gateways/renew",
    "A gateway lives on, or leaves; it is told who leads with it.",
    internal.RenewGatewayRequest,
    internal.RenewGatewayResponse,
    idempotent=True,
)
NEXT_LEADER_EPOCH = Api(
    "nextLeaderEpoch",
    "POST",
    "/v1/cluster/leader-epochs",
    "A leader epoch above all earlier ones, for a share-partition that must be reloaded.",
    internal.NextLeaderEpochRequest,
    internal.LeaderEpochResponse,
    errors=("NOT_LEADER_OR_FOLLOWER",),
    idempotent=True,
)
DESCRIBE_TOPICS = Api(
    "describeTopics",
    "POST",
    "/v1/metadata/topics",
    "Topics by name or id.",
    internal.DescribeTopicsRequest,
    internal.DescribeTopicsResponse,
    idempotent=True,
)
METADATA_CHANGES = Api(
    "metadataChanges",
    "GET",
    "/v1/metadata/changes",
    "Wait for changes of topics and group settings.",
    internal.MetadataChangesQuery,
    internal.MetadataChangesResponse,
    idempotent=True,
)
INITIALIZE_SHARE_PARTITIONS = Api(
    "initializeSharePartitions",
    "POST",
    "/v1/metadata/initialize",
    "Make sure that share-partitions are initialised; a group comes to be with its first fetch.",
    internal.InitializeSharePartitionsRequest,
    internal.InitializeSharePartitionsResponse,
    idempotent=True,
)
GROUP_SUMMARY = Api(
    "shareGroupSummary",
    "GET",
    "/v1/metadata/groups/{group}",
    "Start offsets and delivery-complete counts of a group's initialised share-partitions.",
    internal.GroupSummaryQuery,
    internal.GroupSummaryResponse,
    errors=("GROUP_ID_NOT_FOUND",),
    idempotent=True,
)


ALTER_SHARE_GROUP_OFFSETS = Api(
    "alterShareGroupOffsets",
    "POST",
    "/v1/metadata/groups/{group}/offsets",
    "Have a group start at these offsets, under a new state epoch; every gateway has unloaded what it led before.",
    internal.AlterShareGroupOffsetsRequest,
    internal.AlterShareGroupOffsetsResponse,
    errors=("NON_EMPTY_GROUP",),
)
LEAVE_GROUP = Api(
    "removeShareGroupMember",
    "DELETE",
    "/v1/metadata/groups/{group}/members/{member_id}",
    "Take a member out of a group.",
    response=internal.LeaveShareGroupResponse,
    idempotent=True,
)

# Gateway, for the group coordinator

GROUP_USAGE = Api(
    "shareGroupUsage",
    "POST",
    "/v1/led/groups/{group}/usage",
    "Whether anybody uses a group through this gateway.",
    internal.GroupTopicsRequest,
    internal.GroupUsageResponse,
    idempotent=True,
)
RELEASE_MEMBER = Api(
    "releaseMember",
    "POST",
    "/v1/led/groups/{group}/members/{member_id}/release",
    "Close a member's share session and release what it holds in the share-partitions this gateway leads.",
    internal.GroupTopicsRequest,
    internal.ReleaseMemberResponse,
    idempotent=True,
)
UNLOAD_GROUP = Api(
    "unloadShareGroup",
    "POST",
    "/v1/led/groups/{group}/unload",
    "Forget what was loaded of a group: its state was set anew.",
    internal.UnloadGroupRequest,
    messages.Empty,
    idempotent=True,
)
DELETE_TOPIC_RECORDS = Api(
    "deleteTopicRecords",
    "POST",
    "/v1/log/delete-topic",
    "Remove the records of a topic that was deleted.",
    internal.DeleteTopicRecordsRequest,
    messages.Empty,
    idempotent=True,
)

# Gateway, for the other gateways

FETCH_FROM_LEADER = Api(
    "fetchFromLeader",
    "POST",
    "/v1/leader/{group}/fetch",
    "The part of a client's fetch that this gateway leads.",
    internal.LeaderFetchRequest,
    internal.LeaderFetchResponse,
)
ACKNOWLEDGE_AT_LEADER = Api(
    "acknowledgeAtLeader",
    "POST",
    "/v1/leader/{group}/acknowledge",
    "The acknowledgements of a client's call that this gateway leads.",
    messages.AcknowledgeRequest,
    messages.AcknowledgeResponse,
)
AWAIT_RECORDS = Api(
    "awaitRecords",
    "POST",
    "/v1/leader/{group}/await",
    "Wait until one of these share-partitions may have something to acquire.",
    internal.AwaitRecordsRequest,
    messages.Empty,
)
RELEASE_AT_LEADER = Api(
    "releaseAtLeader",
    "POST",
    "/v1/leader/{group}/release",
    "Release what a member holds of share-partitions this gateway leads.",
    internal.ReleaseMemberRequest,
    messages.Empty,
    idempotent=True,
)
IN_FLIGHT_AT_LEADER = Api(
    "inFlightAtLeader",
    "GET",
    "/v1/leader/{group}/in-flight",
    "What the group has in flight in the share-partitions this gateway leads.",
    messages.InFlightQuery,
    messages.ListInFlightResponse,
    idempotent=True,
)
YIELD_SHARE_PARTITIONS = Api(
    "yieldSharePartitions",
    "POST",
    "/v1/leader/yield",
    "Finish what is under way in these share-partitions, lead them no more, and tell what is held.",
    internal.YieldRequest,
    internal.YieldResponse,
    idempotent=True,
)
FETCH_IN_SESSION = Api(
    "fetchInSession",
    "POST",
    "/v1/sessions/{group}/fetch",
    "A client's fetch in a share session that this gateway keeps.",
    messages.FetchRequest,
    messages.FetchResponse,
)
ACKNOWLEDGE_IN_SESSION = Api(
    "acknowledgeInSession",
    "POST",
    "/v1/sessions/{group}/acknowledge",
    "A client's acknowledgements in a share session that this gateway keeps.",
    messages.AcknowledgeRequest,
    messages.AcknowledgeResponse,
)


_LONGEST_KNOWN: Final = 256
"""Clients choose names: what is kept of them has a bound."""
_known_segment: Final = functools.lru_cache(1024)(functools.partial(quote, safe=""))


def path_of(api: Api, **parameters: Any) -> str:
    """The path with its parameters filled in, percent-encoded."""
    return api.path.format(**{name: _segment(str(value)) for name, value in parameters.items()})


def _segment(text: str) -> str:
    return _known_segment(text) if len(text) <= _LONGEST_KNOWN else quote(text, safe="")

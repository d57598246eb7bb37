"""Owners of shards, gateways, topics and groups: calls of the coordinators."""

from functools import partial

from sharequeue.protocol.messages import cluster as messages
from sharequeue_http.forms.api import Api

_repeatable = partial(Api, idempotent=True)
SHARDS = Api(
    "shards",
    "GET /v1/shards",
    "List the owner of each shard of this kind of coordinator.",
    response=messages.ShardsResponse,
)
REGISTER_GATEWAY = _repeatable(
    "registerGateway",
    "POST /v1/cluster/gateways",
    "Register a gateway that starts; answers a leader epoch above all earlier ones.",
    request=messages.Gateway,
    response=messages.RegisterGatewayResponse,
)
RENEW_GATEWAY = _repeatable(
    "renewGateway",
    "POST /v1/cluster/gateways/renew",
    "Renew the lease of a gateway, or end it; answers the gateways of the generation.",
    request=messages.RenewGatewayRequest,
    response=messages.RenewGatewayResponse,
)
NEXT_LEADER_EPOCH = _repeatable(
    "nextLeaderEpoch",
    "POST /v1/cluster/leader-epochs",
    "Get a leader epoch above all earlier ones, for a share-partition that must be loaded again.",
    request=messages.NextLeaderEpochRequest,
    response=messages.LeaderEpochResponse,
    errors=("NOT_LEADER_OR_FOLLOWER",),
)
DESCRIBE_TOPICS = _repeatable(
    "describeTopics",
    "POST /v1/metadata/topics",
    "Describe topics by name or id.",
    request=messages.DescribeTopicsRequest,
    response=messages.DescribeTopicsResponse,
)
METADATA_CHANGES = Api(
    "metadataChanges",
    "GET /v1/metadata/changes",
    "Wait for changes of topics and group settings.",
    request=messages.MetadataChangesQuery,
    response=messages.MetadataChangesResponse,
)
INITIALIZE_SHARE_PARTITIONS = _repeatable(
    "initializeSharePartitions",
    "POST /v1/metadata/initialize",
    "Make sure that share-partitions are initialised; the first fetch of a group creates it.",
    request=messages.InitializeSharePartitionsRequest,
    response=messages.InitializeSharePartitionsResponse,
)
GROUP_SUMMARY = Api(
    "shareGroupSummary",
    "GET /v1/metadata/groups/{group}",
    "List the start offsets and delivery-complete counts of a group's initialised share-partitions.",
    request=messages.GroupSummaryQuery,
    response=messages.GroupSummaryResponse,
    errors=("GROUP_ID_NOT_FOUND",),
)
ALTER_SHARE_GROUP_OFFSETS = Api(
    "alterShareGroupOffsets",
    "POST /v1/metadata/groups/{group}/offsets",
    "Start a group at these offsets, under a new state epoch, after every gateway has unloaded what it led of it.",
    request=messages.AlterShareGroupOffsetsRequest,
    response=messages.AlterShareGroupOffsetsResponse,
    errors=("NON_EMPTY_GROUP",),
)
LEAVE_GROUP = _repeatable(
    "removeShareGroupMember",
    "DELETE /v1/metadata/groups/{group}/members/{member_id}",
    "Remove a member from a group.",
    response=messages.LeaveShareGroupResponse,
)

"""Owners of shards, gateways, topics and groups: calls of the coordinators."""

from sharequeue.protocol.messages.cluster import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    FindCoordinatorQuery,
    FindCoordinatorResponse,
    GroupSummaryQuery,
    GroupSummaryResponse,
    InitializeSharePartitionsRequest,
    InitializeSharePartitionsResponse,
    LeaderEpochResponse,
    LeaveShareGroupResponse,
    MetadataChangesQuery,
    MetadataChangesResponse,
    NextLeaderEpochRequest,
    RegisterGatewayRequest,
    RegisterGatewayResponse,
    RenewGatewayRequest,
    RenewGatewayResponse,
    ShardsResponse,
)
from sharequeue_http.forms.api import Api

FIND_COORDINATOR = Api(
    "findCoordinator",
    "GET",
    "/v1/coordinators",
    "Find the group coordinator of a group, or the share coordinator of a share-partition, `group:topic_id:partition`.",
    request=FindCoordinatorQuery,
    response=FindCoordinatorResponse,
)
SHARDS = Api(
    "shards",
    "GET",
    "/v1/shards",
    "List the owner of each shard of this kind of coordinator.",
    response=ShardsResponse,
)
REGISTER_GATEWAY = Api(
    "registerGateway",
    "POST",
    "/v1/cluster/gateways",
    "Register a gateway that starts; answers a leader epoch above all earlier ones.",
    request=RegisterGatewayRequest,
    response=RegisterGatewayResponse,
    idempotent=True,
)
RENEW_GATEWAY = Api(
    "renewGateway",
    "POST",
    "/v1/cluster/gateways/renew",
    "Renew the lease of a gateway, or end it; answers the gateways of the generation.",
    request=RenewGatewayRequest,
    response=RenewGatewayResponse,
    idempotent=True,
)
NEXT_LEADER_EPOCH = Api(
    "nextLeaderEpoch",
    "POST",
    "/v1/cluster/leader-epochs",
    "Get a leader epoch above all earlier ones, for a share-partition that must be loaded again.",
    request=NextLeaderEpochRequest,
    response=LeaderEpochResponse,
    errors=("NOT_LEADER_OR_FOLLOWER",),
    idempotent=True,
)
DESCRIBE_TOPICS = Api(
    "describeTopics",
    "POST",
    "/v1/metadata/topics",
    "Describe topics by name or id.",
    request=DescribeTopicsRequest,
    response=DescribeTopicsResponse,
    idempotent=True,
)
METADATA_CHANGES = Api(
    "metadataChanges",
    "GET",
    "/v1/metadata/changes",
    "Wait for changes of topics and group settings.",
    request=MetadataChangesQuery,
    response=MetadataChangesResponse,
)
INITIALIZE_SHARE_PARTITIONS = Api(
    "initializeSharePartitions",
    "POST",
    "/v1/metadata/initialize",
    "Make sure that share-partitions are initialised; the first fetch of a group creates it.",
    request=InitializeSharePartitionsRequest,
    response=InitializeSharePartitionsResponse,
    idempotent=True,
)
GROUP_SUMMARY = Api(
    "shareGroupSummary",
    "GET",
    "/v1/metadata/groups/{group}",
    "List the start offsets and delivery-complete counts of a group's initialised share-partitions.",
    request=GroupSummaryQuery,
    response=GroupSummaryResponse,
    errors=("GROUP_ID_NOT_FOUND",),
)
ALTER_SHARE_GROUP_OFFSETS = Api(
    "alterShareGroupOffsets",
    "POST",
    "/v1/metadata/groups/{group}/offsets",
    "Start a group at these offsets, under a new state epoch, after every gateway has unloaded what it led of it.",
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
    errors=("NON_EMPTY_GROUP",),
)
LEAVE_GROUP = Api(
    "removeShareGroupMember",
    "DELETE",
    "/v1/metadata/groups/{group}/members/{member_id}",
    "Remove a member from a group.",
    response=LeaveShareGroupResponse,
    idempotent=True,
)

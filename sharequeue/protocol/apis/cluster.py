"""Owners of shards, gateways, topics and groups: calls of the coordinators."""

from sharequeue.protocol.apis.api import Api
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

FIND_COORDINATOR = Api(
    "findCoordinator",
    "GET",
    "/v1/coordinators",
    "Which group coordinator owns a group, or which share coordinator a share-partition, `group:topic_id:partition`.",
    request=FindCoordinatorQuery,
    response=FindCoordinatorResponse,
    idempotent=True,
)
SHARDS = Api(
    "shards",
    "GET",
    "/v1/shards",
    "Which instance of this kind of coordinator owns which shard.",
    response=ShardsResponse,
    idempotent=True,
)
REGISTER_GATEWAY = Api(
    "registerGateway",
    "POST",
    "/v1/cluster/gateways",
    "A gateway starts: it is told a leader epoch above all earlier ones.",
    request=RegisterGatewayRequest,
    response=RegisterGatewayResponse,
    idempotent=True,
)
RENEW_GATEWAY = Api(
    "renewGateway",
    "POST",
    "/v1/cluster/gateways/renew",
    "A gateway lives on, or leaves; it is told who leads with it.",
    request=RenewGatewayRequest,
    response=RenewGatewayResponse,
    idempotent=True,
)
NEXT_LEADER_EPOCH = Api(
    "nextLeaderEpoch",
    "POST",
    "/v1/cluster/leader-epochs",
    "A leader epoch above all earlier ones, for a share-partition that must be reloaded.",
    request=NextLeaderEpochRequest,
    response=LeaderEpochResponse,
    errors=("NOT_LEADER_OR_FOLLOWER",),
    idempotent=True,
)
DESCRIBE_TOPICS = Api(
    "describeTopics",
    "POST",
    "/v1/metadata/topics",
    "Topics by name or id.",
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
    idempotent=True,
)
INITIALIZE_SHARE_PARTITIONS = Api(
    "initializeSharePartitions",
    "POST",
    "/v1/metadata/initialize",
    "Make sure that share-partitions are initialised; a group comes to be with its first fetch.",
    request=InitializeSharePartitionsRequest,
    response=InitializeSharePartitionsResponse,
    idempotent=True,
)
GROUP_SUMMARY = Api(
    "shareGroupSummary",
    "GET",
    "/v1/metadata/groups/{group}",
    "Start offsets and delivery-complete counts of a group's initialised share-partitions.",
    request=GroupSummaryQuery,
    response=GroupSummaryResponse,
    errors=("GROUP_ID_NOT_FOUND",),
    idempotent=True,
)
ALTER_SHARE_GROUP_OFFSETS = Api(
    "alterShareGroupOffsets",
    "POST",
    "/v1/metadata/groups/{group}/offsets",
    "Have a group start at these offsets, under a new state epoch; every gateway has unloaded what it led before.",
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
    errors=("NON_EMPTY_GROUP",),
)
LEAVE_GROUP = Api(
    "removeShareGroupMember",
    "DELETE",
    "/v1/metadata/groups/{group}/members/{member_id}",
    "Take a member out of a group.",
    response=LeaveShareGroupResponse,
    idempotent=True,
)

"""The messages that keep the services together: owners of shards, gateways, leader epochs, and what the group coordinator
knows of topics and groups.

Errors of one partition are data: `error_code` 0 is success. Source: KIP-932.
"""

from typing import Final

from msgspec import Struct

from sharequeue.protocol.messages.fields import Request, Response
from sharequeue.protocol.messages.topics import Topic

# Owners of shards


class ShardOwner(Struct, frozen=True, kw_only=True):
    """Who owns a shard, and where it is reached."""

    shard: int
    node_id: str
    url: str
    owner_epoch: int


class ShardsResponse(Response):
    """The shards that have an owner now, and how many shards keys are spread over."""

    shards: list[ShardOwner]
    count: int


class FindCoordinatorQuery(Request):
    """`key_type`: group or share."""

    key_type: str
    key: str


class CoordinatorLocation(Response):
    key: str
    node_id: str
    url: str
    error_code: int
    error_message: str | None = None


class FindCoordinatorResponse(Response):
    coordinators: list[CoordinatorLocation]


# Group coordinator


CLIENT_ID: Final = "sharequeue-client-id"

CLIENT_HOST: Final = "sharequeue-client-host"
"""Headers of a heartbeat that a gateway passes on: who sent it, percent-encoded, and from where."""


class Gateway(Struct, frozen=True, kw_only=True):
    """A gateway and where the other services reach it."""

    node_id: str
    url: str


class GatewayGeneration(Struct, frozen=True, kw_only=True):
    """The gateways that lead share-partitions, under a number above every leader epoch given before.

    `previous` is the number of the generation before: who knows another one has missed one.
    """

    number: int
    previous: int
    gateways: list[Gateway]


class RegisterGatewayRequest(Request):
    """A gateway starts. `url` is where the other services reach it."""

    node_id: str
    url: str


class RegisterGatewayResponse(Response):
    """`leader_epoch` is above all earlier ones; `lease_ms`: who is not heard of for that long leads no more."""

    leader_epoch: int
    lease_ms: int
    generation: GatewayGeneration


class RenewGatewayRequest(Request):
    """A gateway lives on; `leaving`: it stops, and is to lead nothing any more."""

    node_id: str
    url: str
    leaving: bool = False


class RenewGatewayResponse(Response):
    lease_ms: int
    generation: GatewayGeneration


class NextLeaderEpochRequest(Request):
    """`generation` is the one the gateway knows: one that is out of date is refused (6)."""

    node_id: str
    generation: int


class LeaderEpochResponse(Response):
    """A leader epoch higher than any given before: who leads with it fences every earlier leader."""

    leader_epoch: int


class DescribeTopicsRequest(Request):
    """Topics by name or by id; unknown ones are left out of the answer."""

    names: list[str] = []
    topic_ids: list[str] = []


class DescribeTopicsResponse(Response):
    topics: list[Topic]


class MetadataChangesQuery(Request):
    """Wait up to `max_wait_ms` for changes after `since`; 0 answers the version alone."""

    since: int
    max_wait_ms: int = 30_000


class MetadataChangesResponse(Response):
    """What changed: topics that were made or altered, ids of topics that are gone, groups whose settings changed.

    `reset`: changes since then are no longer known; forget everything cached.
    `generation`: the number of the gateways' generation.
    """

    version: int
    generation: int = 0
    topics: list[Topic] = []
    deleted_topic_ids: list[str] = []
    group_ids: list[str] = []
    reset: bool = False


class TopicIdPartitions(Struct, kw_only=True):
    topic_id: str
    partitions: list[int]


class InitializeSharePartitionsRequest(Request):
    """Make sure that these share-partitions are initialised; the group comes to be if it is new."""

    group_id: str
    topics: list[TopicIdPartitions]


class InitializedPartition(Struct, omit_defaults=True, kw_only=True):
    partition: int
    error_code: int
    error_message: str | None


class InitializedTopic(Struct, kw_only=True):
    topic_id: str
    partitions: list[InitializedPartition]


class InitializeSharePartitionsResponse(Response):
    """The group's stored settings come with it: the gateway needs them to lead."""

    config: dict[str, str]
    topics: list[InitializedTopic]


class GroupPartitionSummary(Struct, kw_only=True):
    """A share-partition's persisted state for offsets and lag; −1 where the share coordinator has none.

    `start_offset`: past all that is finished without a gap. `delivery_complete_count`: what is finished behind it.
    """

    partition: int
    start_offset: int
    leader_epoch: int
    delivery_complete_count: int


class GroupTopicSummary(Struct, kw_only=True):
    topic: str
    topic_id: str
    partitions: list[GroupPartitionSummary]


class GroupSummaryQuery(Request):
    """Without any field all that a group has; else up to `limit` partitions behind a place, by name and number."""

    topic: str | None = None
    after_topic: str = ""
    after_partition: int = -1
    limit: int | None = None


class GroupSummaryResponse(Response):
    """`more`: there are partitions behind the last one of a limited answer."""

    topics: list[GroupTopicSummary]
    more: bool = False


class StartOffset(Struct, kw_only=True):
    partition: int
    start_offset: int


class TopicStartOffsets(Struct, kw_only=True):
    topic_id: str
    partitions: list[StartOffset]


class AlterShareGroupOffsetsRequest(Request):
    """Where a group is to start. `force`: also while it is in use."""

    topics: list[TopicStartOffsets]
    force: bool = False


class AlterShareGroupOffsetsResponse(Response):
    topics: list[InitializedTopic]


class LeaveShareGroupResponse(Response):
    """`error_code`: 25 or 69, where there was no such member. What the group has is told in any case."""

    error_code: int = 0
    topics: list[TopicIdPartitions] = []

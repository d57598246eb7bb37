"""The messages of the coordinators to the other services: owners of shards, gateways, leader epochs, topics and groups.

Errors of one partition are data: `error_code` 0 is success. Source: KIP-932.
"""

from typing import Final

from msgspec import Struct

from sharequeue.protocol.messages.fields import Request, Response
from sharequeue.protocol.messages.topics import Topic

# Owners of shards


class ShardOwner(Struct, frozen=True, kw_only=True):
    """The owner of a shard, and its address."""

    shard: int
    node_id: str
    url: str
    owner_epoch: int


class ShardsResponse(Response):
    """The shards that have an owner now. `count`: all shards that keys are placed on."""

    shards: list[ShardOwner]
    count: int


# Group coordinator


CLIENT_ID: Final = "sharequeue-client-id"

CLIENT_HOST: Final = "sharequeue-client-host"
"""Headers of a heartbeat that a gateway passes on: the client's id, percent-encoded, and its address."""


class Gateway(Struct, frozen=True, order=True):
    """A gateway, and the address at which the other services reach it."""

    node_id: str
    url: str


class GatewayGeneration(Struct, frozen=True, kw_only=True):
    """The gateways that lead share-partitions, under a number above every leader epoch given before.

    `previous` is the number of the generation before. A gateway that knows an older one has missed a generation.
    """

    number: int
    previous: int
    gateways: list[Gateway]


class RegisterGatewayResponse(Response):
    """`leader_epoch` is above all earlier ones. A gateway that does not renew its lease within `lease_ms` loses it."""

    leader_epoch: int
    lease_ms: int
    generation: GatewayGeneration


class RenewGatewayRequest(Request):
    """A gateway is alive. `leaving`: it stops, and leads nothing from now on. `generation`: the one that it knows. If
    that is above the stored one, PostgreSQL went back."""

    gateway: Gateway
    generation: int = 0
    leaving: bool = False


class RenewGatewayResponse(Response):
    lease_ms: int
    generation: GatewayGeneration


class NextLeaderEpochRequest(Request):
    """`generation`: the one that the gateway knows; an outdated one is refused (6). `above`: the highest epoch that it
    knows, of any store."""

    node_id: str
    generation: int
    above: int = 0


class LeaderEpochResponse(Response):
    """A leader epoch above every earlier one. A leader that uses it fences all earlier leaders.

    `lost_to`: epochs up to this one were given before PostgreSQL went back; 0: it did not, as far as anybody knows.
    """

    leader_epoch: int
    lost_to: int = 0


class DescribeTopicsRequest(Request):
    """Topics by name or by id; unknown ones are left out of the answer."""

    names: list[str] = []
    topic_ids: list[str] = []


class DescribeTopicsResponse(Response):
    topics: list[Topic]


class MetadataChangesQuery(Request):
    """Wait up to `max_wait_ms` for changes after `since`. With `max_wait_ms` 0 it answers at once."""

    since: int
    max_wait_ms: int = 30_000


class MetadataChangesResponse(Response):
    """The changes: topics that were created or altered, ids of deleted topics, groups whose settings changed.

    `reset`: the changes since then are no longer known, so the gateway must drop its cache.
    `generation`: the number of the gateways' generation. `service`: the service-wide settings of groups. `access`: the
    revision of keys and rights; if it is another one than the gateway knows, `describeAccess` has them.
    """

    version: int
    generation: int = 0
    access: int = 0
    service: dict[str, int] = {}
    topics: list[Topic] = []
    deleted_topic_ids: list[str] = []
    group_ids: list[str] = []
    reset: bool = False


PartitionNumbers = dict[str, list[int]]
"""Partitions by topic id."""

StartOffsets = dict[str, dict[int, int]]
"""Start offsets by topic id and partition."""


class InitializeSharePartitionsRequest(Request):
    """Make sure that these share-partitions are initialised. The first ones create the group. Without partitions the
    call asks for the settings alone."""

    group_id: str
    partitions: PartitionNumbers


class FailedPartition(Struct, kw_only=True):
    """A partition that was not initialised, or not set; the others of the request were."""

    topic_id: str
    partition: int
    error_code: int
    error_message: str


class InitializeSharePartitionsResponse(Response):
    """`config`: the stored settings of the group, which a leader needs. `service`: those of the service."""

    config: dict[str, str]
    failed: list[FailedPartition] = []
    service: dict[str, int] = {}


class GroupPartitionSummary(Struct, kw_only=True):
    """A share-partition's persisted state for offsets and lag; −1: the share coordinator has none.

    `start_offset`: the first offset that is not finished. `delivery_complete_count`: finished records behind it.
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
    """Without fields, all partitions of the group; else up to `limit` partitions behind a place, by name and number."""

    topic: str | None = None
    after_topic: str = ""
    after_partition: int = -1
    limit: int | None = None


class GroupSummaryResponse(Response):
    """`more`: partitions follow the last one of a limited answer."""

    topics: list[GroupTopicSummary]
    more: bool = False


class AlterShareGroupOffsetsRequest(Request):
    """The offsets at which a group starts. `force`: also while it is in use."""

    offsets: StartOffsets
    force: bool = False


class AlterShareGroupOffsetsResponse(Response):
    failed: list[FailedPartition] = []


class LeaveShareGroupResponse(Response):
    """`error_code`: 25 or 69: there was no such member. `partitions`: the group's, in any case."""

    error_code: int
    partitions: PartitionNumbers

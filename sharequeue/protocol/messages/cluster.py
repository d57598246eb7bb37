"""The messages between the services. Errors of one partition are data: `error_code` 0 is success. Source: KIP-932."""

from collections.abc import Sequence
from typing import Final

from msgspec import Raw, Struct

from sharequeue.protocol.messages import (
    Acknowledgement,
    AcknowledgementResult,
    PartitionError,
    PartitionLeader,
    Request,
    Response,
    Topic,
    TopicPartitions,
)
from sharequeue.protocol.types import AcquireMode, StateAnnotation, StateBatch

# Share coordinator: the five state RPCs. The fields each one takes differ; absent ones have Kafka's defaults.


class PartitionState(Struct, omit_defaults=True, kw_only=True):
    """A share-partition in a state request. `None` stands for a field that was not sent."""

    partition: int
    state_epoch: int | None = None
    leader_epoch: int | None = None
    start_offset: int = -1
    delivery_complete_count: int = -1
    state_batches: list[StateBatch] = []
    annotations: list[StateAnnotation] = []


class TopicState(Struct, omit_defaults=True, kw_only=True):
    topic_id: str | None = None
    partitions: list[PartitionState] = []


class ShareStateRequest(Request):
    """Initialize, Read, Write, Delete and ReadSummary of one group's share-partitions."""

    group_id: str
    topics: list[TopicState]


class GroupState(Struct, kw_only=True):
    group_id: str
    topics: list[TopicState]


class WriteBatchRequest(Request):
    """Writes of several groups at once: what a gateway gathered while its last write was under way."""

    groups: list[GroupState]


class PartitionStateResult(Struct, omit_defaults=True, kw_only=True):
    """`unfinished_offset`, of a summary: the first offset from `start_offset` on that is not finished; the next write of
    the leader has its start offset there, or behind it."""

    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int | None = None
    leader_epoch: int | None = None
    start_offset: int | None = None
    delivery_complete_count: int | None = None
    unfinished_offset: int | None = None
    state_batches: list[StateBatch] | None = None
    annotations: list[StateAnnotation] | None = None


class TopicStateResult(Struct, omit_defaults=True, kw_only=True):
    topic_id: str | None = None
    partitions: list[PartitionStateResult] = []


class ShareStateResponse(Response):
    results: list[TopicStateResult]


class GroupStateResult(Struct, kw_only=True):
    group_id: str
    results: list[TopicStateResult]


class WriteBatchResponse(Response):
    """One entry per group, topic and partition, in request order."""

    groups: list[GroupStateResult]


class TopicDeletedRequest(Request):
    """The group coordinator tells the share coordinator to forget all state of a topic."""

    topic_id: str


class TopicDeletedResponse(Response):
    """The shards in which all state of the topic is gone: those this instance owned all the while."""

    shards: list[int] = []


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


# Group coordinator: what gateways and the share coordinator ask of it.

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


# Gateway: what the group coordinator asks of it.


class DeleteTopicRecordsRequest(Request):
    """Remove a topic's records for good; `partitions` is its partition count."""

    topic_id: str
    partitions: int


# Gateway: what the gateways ask of each other.


ALL_WELL: Final = "sharequeue-all-well"
"""Header of a leader's answer that a client can get as it is: a fetch that acquired, or acknowledgements, and no fault
among them."""
ENDED: Final = "sharequeue-ended"
"""Header of a leader's answer to a fetch that it ended because the group is set anew."""


class LeaderFetchRequest(Request):
    """A part of a client's fetch that another gateway leads; the fields are those of the client's request."""

    member_id: str
    topic_partitions: list[TopicPartitions]
    max_records: int
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    batch_size: int
    acquire_mode: AcquireMode
    fetch_id: str | None = None
    repeat: bool = False
    """Answer what an earlier fetch of this `fetch_id` holds, and acquire nothing."""
    with_records: bool = True
    acknowledgements: list[Acknowledgement] = []
    atomic: bool = False
    look_at_ends: bool = True
    """Look at the ends of the log before nothing is answered."""


class LeaderFetchResponse(Response):
    """What another gateway reads of a FetchResponse; `batches` are its entries as they will be sent."""

    batches: list[Raw]
    errors: list[PartitionError]
    acknowledgement_results: list[AcknowledgementResult]
    acquisition_lock_timeout_ms: int
    leaders: list[PartitionLeader] = []


class AcquiredEntry(Struct):
    """What the gateway that passes an entry of `batches` on must know of it."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int


class AwaitRecordsRequest(Request):
    """Wait until one of these share-partitions may have something to acquire."""

    topic_partitions: list[TopicPartitions]
    max_wait_ms: int


class ReleaseMemberRequest(Request):
    """Release what a member holds of these partitions."""

    member_id: str
    topic_partitions: list[TopicPartitions]


class SharePartitionName(Struct, kw_only=True):
    group_id: str
    topic_id: str
    partition: int


class YieldRequest(Request):
    """Another gateway is about to lead these: finish what is under way and lead them no more."""

    share_partitions: list[SharePartitionName]


class HeldSharePartition(SharePartitionName, kw_only=True):
    """Acquisition locks that memory knows, in the life of a share-partition that the state epoch names.

    `locks`: (first offset, last offset, member, delivery count, deadline in ms since the epoch).
    """

    state_epoch: int
    locks: Sequence[tuple[int, int, str, int, int]]


class YieldResponse(Response):
    """Those of them that were held here until a moment ago."""

    held: list[HeldSharePartition]


class GroupTopicsRequest(Request):
    """The share-partitions a group has, by topic id."""

    topics: list[TopicIdPartitions]


class GroupUsageResponse(Response):
    """What a gateway knows of a group's use: records held are those with a live acquisition lock."""

    share_sessions: int
    waiting_fetches: int
    held_records: int


class ReleaseMemberResponse(Response):
    """Whether the member had a share session here, and how many records it held."""

    share_session: bool
    released_records: int


class UnloadGroupRequest(Request):
    """Lead nothing of these topics for the group with what was loaded before now; without them: nothing at all.

    `end`: the group's share sessions and waiting fetches are ended too.
    """

    topic_ids: list[str] | None = None
    end: bool = False

"""The messages between gateways, and from the group coordinator to a gateway."""

from collections.abc import Sequence
from typing import Final

from msgspec import Raw, Struct

from sharequeue.protocol.messages.cluster import TopicIdPartitions
from sharequeue.protocol.messages.fields import Request, Response
from sharequeue.protocol.messages.problems import AcknowledgementResult, PartitionError
from sharequeue.protocol.messages.records import Acknowledgement, PartitionLeader, TopicPartitions
from sharequeue.protocol.types import AcquireMode


class DeleteTopicRecordsRequest(Request):
    """Remove a topic's records for good; `partitions` is its partition count."""

    topic_id: str
    partitions: int


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

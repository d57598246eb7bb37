"""The messages between gateways, and from the group coordinator to a gateway."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Raw, Struct

from sharequeue.protocol.messages.cluster import PartitionNumbers, StartOffsets
from sharequeue.protocol.messages.fields import AnyInt64, GroupId, Request, Response
from sharequeue.protocol.messages.groups import MOST_AT_WORK, FetchingMember
from sharequeue.protocol.messages.problems import AcknowledgementResult, PartitionError
from sharequeue.protocol.messages.records import Acknowledgement, AcknowledgeRequest, PartitionLeader, TopicPartitions
from sharequeue.protocol.types import MAX_WAIT_MS, AcquireMode, LeftLocks, OffsetsAt, SettledBatch, SharePartitionKey


class DeleteTopicRecordsRequest(Request):
    """Remove a topic's records for good; `partitions` is its partition count."""

    topic_id: str
    partitions: int


PRINCIPAL: Final = "sharequeue-principal"
"""A header, beside the cluster token: whose call another gateway passes on, percent-encoded."""

ENDED: Final = "sharequeue-ended"
"""Header of a leader's answer to a fetch that it ended because the group's state is being replaced."""

TOO_FEW: Final = "sharequeue-too-few"
"""Header of a leader's answer without records: the bytes and records there, which are less than `min_bytes`."""


class FetchLimits(Struct, frozen=True):
    """The most that one fetch may take, and its longest wait. All values are checked and capped."""

    max_records: int
    max_bytes: int
    min_bytes: int
    batch_size: int
    acquire_mode: AcquireMode
    deadline_ms: int
    lock_duration_ms: int | None = None
    """The length of the locks; None: as the group's setting says."""
    look_at_ends: bool = True
    """Read the log ends before an empty answer: another gateway may have appended just now."""

    @property
    def bytes_wanted(self) -> int:
        """The bytes that a fetch waits for: `max_bytes` are enough."""
        return min(self.min_bytes, self.max_bytes)


class Asked(Struct, frozen=True):
    """One fetch of a member, or the part of it that another gateway leads.

    `now_ms`: the time at which the request was read. `turn`: the epoch of its share session, which rotates partitions
    that gave records equally long ago. `fetch_id`: names the fetch for a repeat; `new_id`: no earlier fetch had it.
    `levels`: by topic id; the fetch takes records of one level, the lowest that has some. None: of all topics in turn.
    """

    group_id: str
    member_id: str
    limits: FetchLimits
    now_ms: int
    turn: int | None = None
    fetch_id: str | None = None
    with_records: bool = True
    new_id: bool = False
    levels: Mapping[str, int] | None = None

    @property
    def wait_ms(self) -> int:
        """For how long it may wait."""
        return min(max(self.limits.deadline_ms - self.now_ms, 0), MAX_WAIT_MS)


class LeaderFetchRequest(Request):
    """A part of a client's fetch that another gateway leads. Its times are those of the gateway that asks."""

    asked: Asked
    topic_partitions: list[TopicPartitions]


class LeaderFetchResponse(Response):
    """The part of a FetchResponse that another gateway reads. `batches`: its entries, ready to be sent."""

    batches: list[Raw]
    errors: list[PartitionError]
    acquisition_lock_timeout_ms: int
    leaders: list[PartitionLeader] = []
    paused: bool = False


class LeaderAcknowledgeRequest(AcknowledgeRequest):
    """Acknowledgements of share-partitions, for the gateway that leads them.

    `seen` false: a gateway releases what its fetch acquired for a client that is gone, which never saw the records.
    `renew`: whether one may be a renewal.
    """

    seen: bool = True
    renew: bool = True


class AcquiredEntry(Struct):
    """The fields of an entry of `batches` that the gateway needs to pass it on."""

    topic_id: str
    partition: int
    first_offset: int
    last_offset: int
    delivery_count: int


class AwaitRecordsRequest(Request):
    """Wait until one of these share-partitions may have something to acquire."""

    topic_partitions: list[TopicPartitions]
    max_wait_ms: int


class HeldRequest(Request):
    """The ranges of which a member may hold records. With `max_wait_ms`, the answer waits until it is less than all.

    `settling`: also those whose settling is not durable yet.
    """

    member_id: str
    ranges: list[OffsetsAt]
    with_records: bool = False
    settling: bool = False
    max_wait_ms: int = 0


class TakeStreamRequest(Request):
    """The member has opened its stream at another gateway."""

    member_id: str


class TakeStreamResponse(Response):
    """The stream that this gateway had; without `stream_id` it had none.

    `position`: the last one given. `after`: everything that is held was sent behind it.
    """

    stream_id: str | None = None
    position: int = 0
    after: int = 0


class ChangeReadersRequest(Request):
    """Change a group's rows among the log's readers. All of one life of its share-partitions: `state_epoch`.

    `step`: `reserve` before the state is set, `raise` after it, `remove` after it was deleted.
    """

    step: Literal["reserve", "raise", "remove"]
    state_epoch: int
    offsets: StartOffsets


class ChangeReadersResponse(Response):
    """The start offsets, those of `reserve` within the bounds of the log."""

    offsets: StartOffsets


class HoldRequest(Request):
    """Have records of a member wait for a transaction, which settles them if it commits."""

    member_id: str
    transaction_id: str
    acknowledgements: list[Acknowledgement]


class HeldForTransaction(NamedTuple):
    """The records that wait in one share-partition, and the epochs under which they do."""

    key: SharePartitionKey
    state_epoch: int
    leader_epoch: int
    batches: list[SettledBatch]


class HoldResponse(Response):
    """The acknowledgements that wait (`applied`), in order; and all that waits."""

    results: list[AcknowledgementResult]
    held: list[HeldForTransaction]


class ReleaseMemberRequest(Request):
    """Release a member's records in these partitions."""

    member_id: str
    topic_partitions: list[TopicPartitions]


class SharePartitions(Request):
    """The share-partitions that a call is about."""

    share_partitions: list[SharePartitionKey]


class YieldResponse(Response):
    """The share-partitions among them that this gateway led until now, with the locks in its memory."""

    held: list[tuple[SharePartitionKey, LeftLocks]]


class GroupPartitionsRequest(Request):
    """The share-partitions that a group has."""

    partitions: PartitionNumbers


class GroupUsageResponse(Response):
    """The use that a group makes of a gateway. `held_records`: those with a live acquisition lock. `unused_ms`: for how
    long no gateway was used by it, at least; below 0: it may be in use."""

    share_sessions: int
    waiting_fetches: int
    held_records: int
    unused_ms: int


class ReleaseMemberResponse(Response):
    """The share session that the member had at this gateway, if any, and the number of records that it held."""

    share_session: bool
    released_records: int


class UnloadGroupRequest(Request):
    """Unload the group's share-partitions of these topics; without topics, all of them.

    `end`: end the group's share sessions and waiting fetches too.
    """

    topic_ids: list[str] | None = None
    end: bool = False


class AppendHereRequest(Request):
    """Records of a produce request for one partition, under a key. `records`: each as the log keeps it, without its
    offset.

    `path`, `caller`, `fingerprint`, `lasting`: of the key. Without a fingerprint it is a key that the other gateway has
    made.
    """

    topic_id: str
    partition: int
    records: Annotated[list[Raw], Meta(min_length=1)]
    max_timestamp_ms: int
    key: str
    path: str
    caller: str
    fingerprint: bytes
    lasting: bool


class AppendHereResponse(Response):
    """The offset of the first record. `first`: the answer of an earlier request with the key, which appended them."""

    base_offset: int
    first: bytes = b""


class GroupsHereRequest(Request):
    """The groups that a page of listShareGroups or describeShareGroup shows."""

    group_ids: Annotated[list[GroupId], Meta(max_length=MOST_AT_WORK)]


class GroupHere(Response):
    """The work of a group at one gateway. `settled`: finished records above the floors of the log's readers."""

    group_id: str
    held: AnyInt64 = 0
    delayed: AnyInt64 = 0
    dying: AnyInt64 = 0
    settled: AnyInt64 = 0
    workers: list[FetchingMember] = []


class GroupsHereResponse(Response):
    groups: list[GroupHere]

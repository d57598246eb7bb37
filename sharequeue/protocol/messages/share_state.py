"""The messages of the share coordinator: the state of share-partitions, read and written.

Errors of one partition are data: `error_code` 0 is success. Source: KIP-932.
"""

from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from sharequeue.protocol.messages.fields import Request, Response
from sharequeue.protocol.state import StateBatch, StateBatches
from sharequeue.protocol.types import SharePartitionKey

Id = Annotated[str, Meta(min_length=1)]
"""Kafka answers nothing for an empty group id, and an error for a null topic id. Here both are refused."""


class PartitionState(Struct, omit_defaults=True, kw_only=True):
    """A share-partition in a state request. `None`: the field was not sent.

    `from_offset`, in a read: where the page begins that the caller wants. `version`, in a write of a leader: the newest
    version that it knows, and `store` the start of PostgreSQL that it was stored under. `state`, in a write: what
    changed.
    """

    partition: int
    state_epoch: int | None = None
    leader_epoch: int | None = None
    start_offset: int = -1
    delivery_complete_count: int = -1
    removed_unread: int = 0
    from_offset: int = 0
    version: int = -1
    store: str = ""
    state: StateBatches = StateBatches()


class SharePartitionState(NamedTuple):
    """A share-partition in a state request, with its group and topic."""

    group_id: Id
    topic_id: Id
    state: PartitionState

    @property
    def key(self) -> SharePartitionKey:
        return SharePartitionKey(self.group_id, self.topic_id, self.state.partition)


class ShareStateRequest(Request):
    """Initialize, Read, Write, Delete and ReadSummary of share-partitions, of any groups."""

    states: list[SharePartitionState]


class PartitionStateResult(Struct, omit_defaults=True, kw_only=True):
    """`unfinished_offset`, in a summary: the first offset at or behind `start_offset` that is not finished. The start
    offset of the leader's next write is at or behind it. `batches`, in a read: a page of the state. `texts`: those
    that they name, by their places, which are the same in all pages of one `version`. `next_offset`: where the next
    page begins. Pages of one `version` belong together. `version` and `store`, in a read and in a write: of the state
    now, for the next write. `leader_epoch`, with error 74: the recorded one."""

    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int | None = None
    leader_epoch: int | None = None
    start_offset: int | None = None
    delivery_complete_count: int | None = None
    removed_unread: int = 0
    unfinished_offset: int | None = None
    next_offset: int | None = None
    version: int | None = None
    store: str = ""
    batches: list[StateBatch] = []
    texts: dict[int, str] = {}


class SharePartitionResult(NamedTuple):
    group_id: str
    topic_id: str
    result: PartitionStateResult


class ShareStateResponse(Response):
    """One entry for each of the request, in its order."""

    results: list[SharePartitionResult]


class TopicDeletedRequest(Request):
    """The group coordinator has the share coordinator delete all state of a topic."""

    topic_id: str


class TopicDeletedResponse(Response):
    """The shards in which all state of the topic is deleted: this instance owned them all the time."""

    shards: list[int]

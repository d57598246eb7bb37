"""What a share group is made of, what is asked of it, and what changes: plain data. Source: KIP-932."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from sharequeue.protocol.errors import InvalidRequest
from sharequeue.protocol.types import MAX_MEMBER_ID_LENGTH
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
FIRST_GROUP_EPOCH: Final = 1
"""Of a group nobody has asked for: the first member, or the first initialisation, makes it 2."""


class GroupState(StrEnum):
    """EMPTY has no members, STABLE has some. No group is ever DEAD: a filter may ask for it and finds nothing."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class Topic(Protocol):
    """What a group must know of a topic: `partitions` is their number."""

    @property
    def topic_id(self) -> str: ...

    @property
    def partitions(self) -> int: ...


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings in force when an event comes, already within their bounds. Times in ms."""

    max_size: int = 200
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    assignment_interval_ms: int = 1000
    initialize_retry_interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member's request. `rack_id` and `subscribed_topic_names`: None = as before."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


def check_heartbeat(request: Heartbeat) -> None:
    """The checks of form. Raises: InvalidRequest."""
    if not 1 <= len(request.member_id) <= MAX_MEMBER_ID_LENGTH:
        raise InvalidRequest(f"member_id has 1 to {MAX_MEMBER_ID_LENGTH} characters")
    if request.rack_id == "":
        raise InvalidRequest("rack_id must not be empty; leave it out to keep it as it is")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise InvalidRequest("subscribed_topic_names must be set when joining with member_epoch 0")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest("member_epoch is 0 to join, -1 to leave, or the epoch of the last answer")


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`assignment`: None = as before; empty = nothing any more."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A member as it is persisted. `assignment`: what it was last told; its target may be ahead of it."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = -1
    assignment: Assignment = field(default_factory=dict)


class Epochs(NamedTuple):
    """A group's epochs as they are persisted.

    `assigned_at_ms`: wall clock of the target assignment, 0 = none that the next one must keep a distance from.
    `metadata_hash`: int64 over the subscribed topics, see `metadata_hash`.
    """

    group_epoch: int = FIRST_GROUP_EPOCH
    assignment_epoch: int = 0
    assigned_at_ms: int = 0
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What an event changes. Persist it in one transaction, then give it to `ShareGroupMembership.apply`.

    epochs: the group's row; writing it makes the group, or brings a deleted one back. members: by id, None = gone.
    target: by member id; empty = no row. topics: by topic id, None = no row. deleting: the topics whose state is being
    deleted, all of them; None = unchanged. deleted: the group is gone, but for its epochs.
    In memory only: deadlines: end of session by member id. initializations: to be sent to the share coordinator with
    state epoch `state_epoch`, once this is persisted.
    """

    epochs: Epochs | None = None
    members: Mapping[str, Member | None] = field(default_factory=dict)
    target: Mapping[str, Assignment] = field(default_factory=dict)
    topics: Mapping[str, GroupTopic | None] = field(default_factory=dict)
    deleting: frozenset[str] | None = None
    deleted: bool = False
    deadlines: Mapping[str, int] = field(default_factory=dict)
    initializations: tuple[Initialization, ...] = ()
    state_epoch: int = 0

    @property
    def durable(self) -> bool:
        """Whether there is anything to persist: a plain heartbeat has nothing."""
        things = self.epochs, self.deleting
        return bool(self.members or self.target or self.topics or self.deleted) or things != (None, None)


class HeartbeatDecision(NamedTuple):
    """The answer to send once the changes are persisted and applied."""

    answer: HeartbeatAnswer
    changes: Changes

"""The request of a member and its answer. Source: KIP-932, ShareGroupHeartbeat."""

from dataclasses import dataclass
from typing import Final

from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import Changes

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member's request, in the form of its message. `rack_id` and `subscribed_topic_names`: None leaves them as they
    are."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`assignment`: None if it has not changed; empty if the member has no partition any more."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatDecision(Changes):
    """The answer to send once the changes are persisted and applied."""

    answer: HeartbeatAnswer

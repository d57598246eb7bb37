"""The request of a member and its answer. Source: KIP-932, ShareGroupHeartbeat."""

from dataclasses import dataclass
from typing import Final

from sharequeue.protocol.types import MAX_MEMBER_ID_LENGTH
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import Changes
from sharequeue_http.forms.errors import InvalidRequest

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A member's request. `rack_id` and `subscribed_topic_names`: None leaves them as they are."""

    member_id: str
    member_epoch: int
    rack_id: str | None = None
    subscribed_topic_names: frozenset[str] | None = None
    client_id: str = ""
    client_host: str = ""


def check_heartbeat(request: Heartbeat) -> None:
    """Check the form of a request. Raises: InvalidRequest."""
    if not 1 <= len(request.member_id) <= MAX_MEMBER_ID_LENGTH:
        raise InvalidRequest(f"member_id must have 1 to {MAX_MEMBER_ID_LENGTH} characters")
    if request.rack_id == "":
        raise InvalidRequest("rack_id must not be empty; leave it out to keep the present one")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise InvalidRequest("subscribed_topic_names must name a topic when a member joins with member_epoch 0")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest("member_epoch must be 0 to join, -1 to leave, or the epoch of the last answer")


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

"""The parts of a share group, and the changes that an event makes to them: plain data. Source: KIP-932."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization

FIRST_GROUP_EPOCH: Final = 1
"""Of a group that nobody has used. The first member, or the first initialisation, raises it to 2."""


class ShareGroupState(StrEnum):
    """EMPTY has no members, STABLE has some. No group is ever DEAD: a filter may name it, and finds none."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


class ExistingTopic(Protocol):
    """The part of a topic that a group needs. `partitions`: their number."""

    @property
    def topic_id(self) -> str: ...

    @property
    def partitions(self) -> int: ...


TopicsByName = Mapping[str, ExistingTopic]
"""Every topic of the cluster, without those that are being deleted."""


def partition_counts(topics: Iterable[ExistingTopic]) -> dict[str, int]:
    return {topic.topic_id: topic.partitions for topic in topics}


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings in force at an event, within their bounds. Times in ms."""

    max_size: int = 200
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    assignment_interval_ms: int = 1000
    initialize_retry_interval_ms: int = 30_000


@dataclass(frozen=True, slots=True)
class Member:
    """A member as it is persisted. `assignment`: the one last sent to it; its target may already differ."""

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

    `assigned_at_ms`: wall clock of the target assignment; 0: the next one need not wait for the interval.
    `metadata_hash`: int64 over the subscribed topics, see `subscribed_topics.metadata_hash`.
    """

    group_epoch: int = FIRST_GROUP_EPOCH
    assignment_epoch: int = 0
    assigned_at_ms: int = 0
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes of one event. Persist them in one transaction, then give them to `ShareGroup.apply`.

    epochs: the group's row; writing it creates the group, or brings a deleted one back. members: by id, None removes.
    target: by member id; empty removes the row. topics: by topic id, None removes the row. deleting: all topics whose
    state is being deleted; None leaves them as they are. deleted: only the epochs of the group stay, and its settings,
    unless the group was not used and they did not change for `settings_unused_ms`.

    Not persisted: deadlines: end of session by member id. initializations: to be sent to the share coordinator once the
    rest is persisted.
    """

    epochs: Epochs | None = None
    members: Mapping[str, Member | None] = field(default_factory=dict)
    target: Mapping[str, Assignment] = field(default_factory=dict)
    topics: Mapping[str, GroupTopic | None] = field(default_factory=dict)
    deleting: frozenset[str] | None = None
    deleted: bool = False
    settings_unused_ms: int | None = None
    deadlines: Mapping[str, int] = field(default_factory=dict)
    initializations: tuple[Initialization, ...] = ()

    @property
    def durable(self) -> bool:
        """Return whether there is anything to persist. A heartbeat that changes nothing has nothing."""
        things = self.epochs, self.deleting
        return bool(self.members or self.target or self.topics or self.deleted) or things != (None, None)

"""Drives a group as its service does: decide, keep what was decided, initialise behind the answer. A clock to turn."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sharequeue_coordinator.share_group.changes import Changes, GroupSettings
from sharequeue_coordinator.share_group.heartbeat import Heartbeat, HeartbeatAnswer
from sharequeue_coordinator.share_group.initialization import Initialization
from sharequeue_coordinator.share_group.machine import ShareGroup

NOW_MS = 1_763_640_000_000


class ATopic(NamedTuple):
    topic_id: str
    partitions: int


class Driver:
    """One group `g`, the topics of a cluster, and a share coordinator that succeeds at once, refuses, or is silent.

    Assignment interval 0, as the scenarios have it. Topic `foo` has the id `id-foo`.
    """

    def __init__(self, *, topics: dict[str, int] | None = None, **settings: int) -> None:
        self.now_ms = NOW_MS
        self.settings = GroupSettings(**{"assignment_interval_ms": 0, **settings})
        self.topics: dict[str, ATopic] = {}
        for name, partitions in (topics or {}).items():
            self.create(name, partitions)
        self.group = ShareGroup("g")
        self.share_coordinator = "succeeds"
        self.asked: list[tuple[Initialization, ...]] = []
        """The requests to the share coordinator."""
        self.saved: list[Changes] = []

    def create(self, name: str, partitions: int, topic_id: str | None = None) -> None:
        """Make a topic, or let it grow."""
        self.topics[name] = ATopic(topic_id or f"id-{name}", partitions)

    def heartbeat(
        self,
        member_id: str,
        member_epoch: int,
        topics: Iterable[str] | None = None,
        *,
        rack_id: str | None = None,
        client_id: str = "",
        client_host: str = "",
    ) -> HeartbeatAnswer:
        names = None if topics is None else frozenset(topics)
        request = Heartbeat(member_id, member_epoch, rack_id, names, client_id, client_host)
        before = vars_of(self.group)
        decision = self.group.heartbeat(request, self.topics, self.settings, self.now_ms)
        assert vars_of(self.group) == before, "a decision changes nothing"
        self.apply(decision)
        return decision.answer

    def leave(self, member_id: str) -> None:
        self.apply(self.group.leave(member_id, self.topics))

    def turn(self, ms: int) -> None:
        """Turn the clock; sessions that end in this time end when they are due."""
        until = self.now_ms + ms
        while (deadline := self.group.next_deadline_ms()) is not None and deadline <= until:
            self.now_ms = deadline
            changes = self.group.expire_members(self.topics, self.now_ms)
            assert changes.members, "a deadline is there for somebody"
            self.apply(changes)
        self.now_ms = until

    def apply(self, changes: Changes) -> None:
        """Keep what was decided, and ask the share coordinator what is to be asked."""
        if changes.durable:
            self.saved.append(changes)
        self.group.apply(changes, self.now_ms)
        if changes.initializations:
            self.asked.append(changes.initializations)
            if self.share_coordinator == "succeeds":
                self.apply(self.group.initialized(changes.initializations))
            elif self.share_coordinator == "refuses":
                self.apply(self.group.initialization_refused(changes.initializations))

    def initialize(self, asked: Mapping[str, Iterable[int]]) -> None:
        """A fetch that names partitions, by topic id."""
        self.apply(self.group.initialize(asked, self.topics.values()))

    def delete(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.apply(self.group.topics_deleted([topic.topic_id]))

    def restart(self) -> None:
        """A service that has only what was persisted."""
        group = self.group
        stored = Changes(
            epochs=group.epochs,
            members=group.members,
            target=group.target,
            topics=group.topics,
            deleting=group.deleting,
            deleted=not group.exists,
        )
        self.group = ShareGroup.restore("g", stored, self.settings, self.now_ms)

    def assigned(self, *member_ids: str, topic: str = "foo") -> list[frozenset[int]]:
        """The partitions of a topic in the last answer to each member."""
        return [self.group.members[m].assignment.get(f"id-{topic}", frozenset()) for m in member_ids]


def vars_of(group: ShareGroup) -> dict[str, object]:
    """All of a group but what it only remembers to save time."""
    remembered = {"_settled", "_assigned_to_anybody"}
    return {
        name: dict(value) if isinstance(value, dict) else value
        for name, value in vars(group).items()
        if name not in remembered
    }

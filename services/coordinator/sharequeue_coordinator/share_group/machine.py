"""One share group: its members, epochs, target assignment and share-partitions. Source: KIP-932.

A member's epoch follows the assignment epoch at its own heartbeats. The assignment epoch follows the group epoch: at
once, or when the last assignment is an interval old. There is no revocation handshake. How to use it: see the room.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Self

from sharequeue.protocol.errors import FencedMemberEpoch, GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId
from sharequeue_coordinator.share_group import initialization, subscribed_topics, subscriptions, target_assignment
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import (
    Changes,
    Epochs,
    ExistingTopic,
    GroupSettings,
    Member,
    ShareGroupState,
    TopicsByName,
    partition_counts,
)
from sharequeue_coordinator.share_group.heartbeat import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatDecision,
)
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization
from sharequeue_coordinator.share_group.shared_sets import numbered, shared, shared_all, with_all
from sharequeue_coordinator.share_group.subscribed_topics import View
from sharequeue_http.forms.errors import InvalidRequest


class ShareGroup:
    """A group, also before it exists. `group_id`: for messages."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epochs = Epochs()
        """A new group continues those of a deleted one of its name."""
        self.exists = False
        """False: nobody has created the group yet, or it was deleted."""
        self.members: dict[str, Member] = {}
        self.target: dict[str, Assignment] = {}
        self.topics: dict[str, GroupTopic] = {}
        self.deleting: frozenset[str] = frozenset()
        self._deadlines: dict[str, int] = {}
        self._asked_at: dict[str, Mapping[int, int]] = {}
        self._subscribed: Counter[str] = Counter()
        self._assigned_to_anybody: Mapping[str, Collection[int]] | None = None
        self._settled: View | None = None
        """The topics when everything was initialised and assigned.
        While they stay equal, a heartbeat has nothing to do."""

    @classmethod
    def restore(cls, group_id: str, stored: Changes, settings: GroupSettings, now_ms: int) -> Self:
        """The group as it is stored. Sessions and the retry intervals of initialisations start now."""
        group = cls(group_id)
        deadlines = dict.fromkeys(stored.members, now_ms + settings.session_timeout_ms)
        group.apply(replace(stored, deadlines=deadlines), now_ms)
        return group

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def check_exists(self) -> None:
        """Raises: GroupIdNotFound."""
        if not self.exists:
            raise GroupIdNotFound(f"there is no group {self.group_id!r}")

    def initialized_partitions(self) -> dict[str, list[int]]:
        """The initialised partitions by topic id, ascending; without the topics of which none is."""
        return {topic_id: sorted(topic.initialized) for topic_id, topic in self.topics.items() if topic.initialized}

    def next_deadline_ms(self) -> int | None:
        """Return when the next session ends; None without members. The cost grows with the members."""
        return min(self._deadlines.values(), default=None)

    # Events of members

    def heartbeat(
        self, request: Heartbeat, topics: TopicsByName, settings: GroupSettings, now_ms: int
    ) -> HeartbeatDecision:
        """A member joins, stays, changes its subscription, or leaves.

        Raises: in this order InvalidRequest, GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId, FencedMemberEpoch.
        """
        if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
            raise InvalidRequest("subscribed_topic_names must name a topic when a member joins with member_epoch 0")
        if request.member_epoch == LEAVE_EPOCH:
            left = self.leave(request.member_id, topics)
            answer = HeartbeatAnswer(request.member_id, LEAVE_EPOCH, 0)
            return HeartbeatDecision(answer=answer, epochs=left.epochs, members=left.members, target=left.target)
        member = self._member(request, settings)
        updated = _updated(member, request)
        resubscribed = updated.subscribed_topic_names != member.subscribed_topic_names
        if updated.subscribed_topic_names - member.subscribed_topic_names:
            subscriptions.check(self.group_id, self._subscribed, member, updated, topics)
        epochs, initializations = self._look(member, updated, topics, settings, now_ms)

        own: Assignment = self.target.get(request.member_id, {})
        target: dict[str, Assignment] = {}
        if epochs.group_epoch > epochs.assignment_epoch and self._may_assign(settings, now_ms):
            members = {**self.members, updated.member_id: updated}
            target = target_assignment.changed_targets(members, self.target, self.topics, topics)
            own = target.get(request.member_id, own)
            epochs = epochs._replace(assignment_epoch=epochs.group_epoch, assigned_at_ms=now_ms)
        if updated.member_epoch != epochs.assignment_epoch:
            updated = replace(
                updated,
                member_epoch=epochs.assignment_epoch,
                previous_member_epoch=updated.member_epoch,
                assignment=subscribed_topics.of_topics(own, updated.subscribed_topic_names, topics),
            )
        elif resubscribed:
            assignment = subscribed_topics.of_topics(own, updated.subscribed_topic_names, topics)
            updated = replace(updated, assignment=assignment)

        # Beyond KIP-932: a member that sends its previous epoch has not seen the last answer, so it gets it again.
        send_assignment = (
            request.member_epoch in (JOIN_EPOCH, member.previous_member_epoch)
            or request.subscribed_topic_names is not None
            or updated.assignment != member.assignment
        )
        answer = HeartbeatAnswer(
            request.member_id,
            updated.member_epoch,
            settings.heartbeat_interval_ms,
            updated.assignment if send_assignment else None,
        )
        counts = partition_counts(topics.values() if initializations else ())
        begun = initialization.begin(self.topics, initializations, counts)
        return HeartbeatDecision(
            answer=answer,
            epochs=None if epochs == self.epochs else epochs,
            members={} if updated == self.members.get(request.member_id) else {request.member_id: updated},
            target=target,
            topics=begun,
            deleting=self._deleting_without(begun),
            deadlines={request.member_id: now_ms + settings.session_timeout_ms},
            initializations=initializations,
        )

    def leave(self, member_id: str, topics: TopicsByName) -> Changes:
        """Remove a member. Raises: GroupIdNotFound, UnknownMemberId."""
        self.check_exists()
        if member_id not in self.members:
            raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}")
        return self.remove([member_id], topics)

    def expire_members(self, topics: TopicsByName, now_ms: int) -> Changes:
        """Remove the members whose session has ended."""
        gone = [member_id for member_id, deadline in self._deadlines.items() if deadline <= now_ms]
        return self.remove(gone, topics) if gone else Changes()

    def remove(self, member_ids: Collection[str], topics: TopicsByName) -> Changes:
        """Remove members. The next heartbeat of another member assigns their partitions."""
        left = {member_id: member for member_id, member in self.members.items() if member_id not in member_ids}
        names = frozenset[str]().union(*(member.subscribed_topic_names for member in left.values()))
        view = subscribed_topics.look(names, topics, self.topics)
        epochs = self.epochs._replace(
            group_epoch=self.epochs.group_epoch + 1, metadata_hash=subscribed_topics.metadata_hash(view)
        )
        if not left:
            epochs = epochs._replace(assignment_epoch=epochs.group_epoch, assigned_at_ms=0)
        return Changes(
            epochs=epochs,
            members=dict.fromkeys(member_ids),
            target={member_id: {} for member_id in member_ids if member_id in self.target},
        )

    # Events of share-partitions

    def topics_with_state(self, topic_ids: Iterable[str]) -> frozenset[str]:
        """Return the given topics in which the group has initialised share-partitions, or is deleting them."""
        return frozenset(
            id_ for id_ in topic_ids if id_ in self.deleting or self.topics.get(id_, GroupTopic()).initialized
        )

    def initialize(self, asked: Mapping[str, Iterable[int]], topics: Iterable[ExistingTopic]) -> Changes:
        """Initialise share-partitions that a fetch names, whether or not the group has members.

        The group epoch rises for those that are not being initialised already.
        Args:
            asked: partitions that exist, by topic id. Those that are initialised are left out.
            topics: their topics.
        """
        epochs = self.epochs._replace(group_epoch=self.epochs.group_epoch + 1)
        initializations = tuple(initialization.missing(self.topics, asked, epochs.group_epoch))
        begun = initialization.begin(self.topics, initializations, partition_counts(topics))
        return Changes(
            epochs=epochs if begun else None,
            topics=begun,
            deleting=self._deleting_without(begun),
            initializations=initializations,
        )

    def _deleting_without(self, topic_ids: Collection[str]) -> frozenset[str] | None:
        """`deleting` once these topics are initialised again; None if that is the present one."""
        return None if self.deleting.isdisjoint(topic_ids) else self.deleting.difference(topic_ids)

    def still_asked(self, initializations: Iterable[Initialization]) -> list[Initialization]:
        """The partitions of these that have no answer yet, and that no later event initialises."""
        asked = []
        for each in initializations:
            epochs = self.topics.get(each.topic_id, GroupTopic()).initializing
            left = frozenset(partition for partition in each.partitions if epochs.get(partition) == each.state_epoch)
            asked.append(each._replace(partitions=shared(left)))
        return [each for each in asked if each.partitions]

    def initialized(self, initializations: Iterable[Initialization]) -> Changes:
        """The share coordinator did all of one request. Partitions that are no longer being initialised stay as they
        are."""
        return Changes(topics=initialization.succeed(self.topics, self._still_initializing(initializations)))

    def initialization_refused(self, initializations: Iterable[Initialization]) -> Changes:
        """The share coordinator refused some of one request. The next heartbeat begins all of it again."""
        return Changes(topics=initialization.fail(self.topics, self._still_initializing(initializations)))

    def topics_deleted(self, topic_ids: Collection[str]) -> Changes:
        """Topics were removed from the cluster. The share coordinator deletes its state of them by itself."""
        gone = self.deleting.intersection(topic_ids)
        return Changes(
            topics={topic_id: None for topic_id in topic_ids if topic_id in self.topics},
            deleting=self.deleting - gone if gone else None,
        )

    # State

    def apply(self, changes: Changes, now_ms: int) -> None:
        """Apply what was persisted. No other method changes the group."""
        if changes.epochs is not None:
            self.epochs = changes.epochs
            self.exists = True
        for member_id, member in changes.members.items():
            self._keep(member_id, member)
        for member_id, assignment in changes.target.items():
            if assignment:
                self.target[member_id] = shared_all(assignment)
            else:
                self.target.pop(member_id, None)
        for topic_id, topic in changes.topics.items():
            if topic is None:
                self.topics.pop(topic_id, None)
                self._asked_at.pop(topic_id, None)
            else:
                self.topics[topic_id] = topic._replace(initialized=shared(topic.initialized))
                begun, asked_at = list(topic.initializing), self._asked_at.get(topic_id, {})
                self._asked_at[topic_id] = numbered(begun, [asked_at.get(number, now_ms) for number in begun])
        for topic_id, partitions in initialization.by_topic(changes.initializations).items():
            self._asked_at[topic_id] = with_all(self._asked_at.get(topic_id, {}), partitions, now_ms)
        if changes.deleting is not None:
            self.deleting = changes.deleting
        if changes.deleted:
            self.exists = False
        self._deadlines.update(changes.deadlines)
        if changes.target:
            self._assigned_to_anybody = None
        if changes.durable:
            self._settled = None

    def _keep(self, member_id: str, member: Member | None) -> None:
        before = self.members.pop(member_id, None)
        if member is None:
            self._deadlines.pop(member_id, None)
        else:
            self.members[member_id] = replace(member, assignment=shared_all(member.assignment))
        unwanted = before.subscribed_topic_names if before else frozenset()
        wanted = member.subscribed_topic_names if member else frozenset()
        if wanted != unwanted:
            self._subscribed.update(wanted)
            self._subscribed.subtract(unwanted)
            self._subscribed = +self._subscribed

    def _member(self, request: Heartbeat, settings: GroupSettings) -> Member:
        """The member that sends the heartbeat, or a new one."""
        member_id, epoch = request.member_id, request.member_epoch
        if epoch != JOIN_EPOCH:
            self.check_exists()
        member = self.members.get(member_id)
        if member is None and len(self.members) >= settings.max_size:
            detail = f"group {self.group_id!r} is full: it has {settings.max_size} members"
            raise GroupMaxSizeReached(detail, limit=settings.max_size)
        if member is None:
            if epoch != JOIN_EPOCH:
                raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}: join with member_epoch 0")
            return Member(member_id)
        if epoch not in (JOIN_EPOCH, member.member_epoch, member.previous_member_epoch):
            raise FencedMemberEpoch(
                f"member {member_id!r} is at epoch {member.member_epoch}, not {epoch}: join again with member_epoch 0"
            )
        return member

    def _look(
        self, member: Member, updated: Member, topics: TopicsByName, settings: GroupSettings, now_ms: int
    ) -> tuple[Epochs, tuple[Initialization, ...]]:
        """The epochs, raised if there is something new to assign; and the partitions to initialise."""
        epochs = self.epochs
        resubscribed = updated.subscribed_topic_names != member.subscribed_topic_names
        names: Collection[str] = (
            subscriptions.names_with(self._subscribed, member, updated) if resubscribed else self._subscribed
        )
        view = subscribed_topics.look(names, topics, self.topics)
        if view == self._settled and not resubscribed:
            return epochs, ()
        seen = subscribed_topics.metadata_hash(view)
        assigned_all = epochs.assignment_epoch >= epochs.group_epoch
        if (
            resubscribed
            or seen != epochs.metadata_hash
            or (assigned_all and not subscribed_topics.all_assigned(view, self._assigned()))
        ):
            epochs = epochs._replace(group_epoch=epochs.group_epoch + 1, metadata_hash=seen)
        elif assigned_all and subscribed_topics.all_initialized(view):
            self._settled = view
        return epochs, subscribed_topics.missing(
            view,
            self.topics,
            self._asked_at,
            settings.initialize_retry_interval_ms,
            now_ms,
            state_epoch=epochs.group_epoch,
        )

    def _assigned(self) -> Mapping[str, Collection[int]]:
        if self._assigned_to_anybody is None:
            self._assigned_to_anybody = target_assignment.assigned_to_anybody(self.target)
        return self._assigned_to_anybody

    def _may_assign(self, settings: GroupSettings, now_ms: int) -> bool:
        """Return whether the interval since the last assignment is over. A clock that was set back does not prolong
        it."""
        assigned_at_ms = self.epochs.assigned_at_ms
        return not (assigned_at_ms and 0 <= now_ms - assigned_at_ms < settings.assignment_interval_ms)

    def _still_initializing(self, initializations: Iterable[Initialization]) -> dict[str, frozenset[int]]:
        """Return the given partitions that are still being initialised, by topic id."""
        asked = initialization.by_topic(initializations)
        left = {
            topic_id: partitions.intersection(self.topics.get(topic_id, GroupTopic()).initializing)
            for topic_id, partitions in asked.items()
        }
        return {topic_id: still for topic_id, still in left.items() if still}


def _updated(member: Member, request: Heartbeat) -> Member:
    """The member, with the fields that the request sets."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else names,
    )

"""One share group: its members, its epochs, who shall have which partitions, which of them are initialised.

No IO, no clock, no logging. Events are methods: they take `now_ms` (wall clock), change nothing, and return `Changes`.
The caller persists them in one transaction and gives them to `apply`; if that fails it forgets them, and if the outcome
is unknown it restores the group from what is stored. One event at a time: decide, persist, apply.

    decision = group.heartbeat(request, topics, settings, now_ms)
    if decision.changes.durable: persist(decision.changes)
    group.apply(decision.changes, now_ms)
    answer(decision.answer)
    if decision.changes.initializations: ask the share coordinator, then `initialized` or `initialization_refused`;
        after an unknown outcome neither: a later heartbeat tries again

The share coordinator is asked for a group one request at a time, each within less than the retry interval, and
`initialize` is decided when its turn has come: an initialisation that follows upon a success would undo what was
acknowledged in between. Heartbeats need not wait for that.

A member's epoch follows the assignment epoch at its own heartbeats, and the assignment epoch follows the group epoch: at
once, or when the last assignment is an interval old. There is no revocation handshake. Source: KIP-932.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Self

from sharequeue.protocol.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
)
from sharequeue.protocol.types import MAX_GROUP_NAMES, MAX_GROUP_PARTITIONS, MAX_PARTITIONS_NAMED
from sharequeue_coordinator.share_group import initialization as share_group
from sharequeue_coordinator.share_group import subscribed_topics
from sharequeue_coordinator.share_group.assignor import Assignment, assign
from sharequeue_coordinator.share_group.changes import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Changes,
    Epochs,
    GroupSettings,
    GroupState,
    Heartbeat,
    HeartbeatAnswer,
    HeartbeatDecision,
    Member,
    check_heartbeat,
)
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization
from sharequeue_coordinator.share_group.subscribed_topics import Topics, View


class ShareGroupMembership:
    """A group, from before its first member on.

    Args:
        group_id: for messages. epochs: of a deleted group, whose epochs go on; a group never seen has none.
    """

    def __init__(self, group_id: str, epochs: Epochs | None = None) -> None:
        self.group_id = group_id
        self.epochs = epochs or Epochs()
        self.exists = False
        """False: nobody has made the group yet, or it was deleted."""
        self.members: dict[str, Member] = {}
        self.target: dict[str, Assignment] = {}
        self.topics: dict[str, GroupTopic] = {}
        self.deleting: frozenset[str] = frozenset()
        self._deadlines: dict[str, int] = {}
        self._asked_at: dict[str, dict[int, int]] = {}
        self._subscribed: Counter[str] = Counter()
        self._assigned_to_anybody: Mapping[str, Collection[int]] | None = None
        self._settled: View | None = None
        """What was there when everything was assigned, and nothing left to initialise."""

    @classmethod
    def restore(
        cls,
        group_id: str,
        epochs: Epochs,
        members: Iterable[Member],
        target: Mapping[str, Assignment],
        topics: Mapping[str, GroupTopic],
        deleting: Collection[str],
        settings: GroupSettings,
        now_ms: int,
    ) -> Self:
        """The group as it is stored. Sessions and retries of initialisations are timed anew from now."""
        group = cls(group_id)
        by_id = {member.member_id: member for member in members}
        changes = Changes(
            epochs=epochs,
            members=by_id,
            target=target,
            topics=topics,
            deleting=frozenset(deleting),
            deadlines=dict.fromkeys(by_id, now_ms + settings.session_timeout_ms),
        )
        group.apply(changes, now_ms)
        return group

    @property
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def next_deadline_ms(self) -> int | None:
        """When `expire_members` will next have something to do; None without members. Cost follows the members."""
        return min(self._deadlines.values(), default=None)

    # Events of members

    def heartbeat(self, request: Heartbeat, topics: Topics, settings: GroupSettings, now_ms: int) -> HeartbeatDecision:
        """A member joins, goes on, subscribes anew, or leaves.

        Raises: in this order InvalidRequest, GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId, FencedMemberEpoch.
        """
        check_heartbeat(request)
        if request.member_epoch == LEAVE_EPOCH:
            changes = self.leave(request.member_id, topics)
            return HeartbeatDecision(HeartbeatAnswer(request.member_id, LEAVE_EPOCH, 0), changes)
        member = self._member(request, settings)
        updated = replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscribed_topic_names=(
                member.subscribed_topic_names
                if request.subscribed_topic_names is None
                else request.subscribed_topic_names
            ),
        )
        resubscribed = updated.subscribed_topic_names != member.subscribed_topic_names
        if updated.subscribed_topic_names - member.subscribed_topic_names:
            self._check_subscription(member, updated, topics)
        epochs, initializations = self._look(member, updated, topics, settings, now_ms)

        own: Assignment = self.target.get(request.member_id, {})
        target: dict[str, Assignment] = {}
        if epochs.group_epoch > epochs.assignment_epoch and self._may_assign(settings, now_ms):
            target = self._assign(updated, topics)
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
            updated = replace(
                updated, assignment=subscribed_topics.of_topics(own, updated.subscribed_topic_names, topics)
            )

        # Besides what KIP-932 names: a member that repeats its previous epoch has not seen the last answer.
        told = (
            request.member_epoch in (JOIN_EPOCH, member.previous_member_epoch)
            or request.subscribed_topic_names is not None
            or updated.assignment != member.assignment
        )
        answer = HeartbeatAnswer(
            request.member_id,
            updated.member_epoch,
            settings.heartbeat_interval_ms,
            updated.assignment if told else None,
        )
        begun = share_group.begin(self.topics, initializations)
        recreated = self.deleting & begun.keys()
        return HeartbeatDecision(
            answer,
            Changes(
                epochs=None if epochs == self.epochs else epochs,
                members={} if updated == self.members.get(request.member_id) else {request.member_id: updated},
                target=target,
                topics={topic_id: topic for topic_id, topic in begun.items() if topic != self.topics.get(topic_id)},
                deleting=self.deleting - recreated if recreated else None,
                deadlines={request.member_id: now_ms + settings.session_timeout_ms},
                initializations=initializations,
                state_epoch=epochs.group_epoch,
            ),
        )

    def leave(self, member_id: str, topics: Topics) -> Changes:
        """Raises: GroupIdNotFound, UnknownMemberId."""
        if not self.exists:
            raise GroupIdNotFound(f"there is no group {self.group_id!r}")
        if member_id not in self.members:
            raise UnknownMemberId(f"group {self.group_id!r} has no member {member_id!r}")
        return self.remove([member_id], topics)

    def expire_members(self, topics: Topics, now_ms: int) -> Changes:
        """Remove the members whose session has ended; nothing changes if there is none."""
        gone = [member_id for member_id, deadline in self._deadlines.items() if deadline <= now_ms]
        return self.remove(gone, topics) if gone else Changes()

    # Events of share-partitions

    def stands(self, topic_ids: Iterable[str]) -> frozenset[str]:
        """In which of these topics the group stands somewhere, or did until it is deleted there."""
        return frozenset(
            id_ for id_ in topic_ids if id_ in self.deleting or self.topics.get(id_, GroupTopic()).initialized
        )

    def initialize(self, asked: Mapping[str, Iterable[int]]) -> Changes:
        """Share-partitions that are to be fetched from, whoever is a member: those not initialised yet.

        The group epoch rises, so that an earlier request to the share coordinator that comes late is fenced.
        Args:
            asked: partitions that are there, by topic id.
        """
        initializations = tuple(share_group.missing(self.topics, asked))
        if not initializations:
            return Changes()
        begun = share_group.begin(self.topics, initializations)
        epochs = self.epochs._replace(group_epoch=self.epochs.group_epoch + 1)
        return Changes(
            epochs=epochs,
            topics=begun,
            deleting=self.deleting - begun.keys() if self.deleting & begun.keys() else None,
            initializations=initializations,
            state_epoch=epochs.group_epoch,
        )

    def initialized(self, initializations: Iterable[Initialization]) -> Changes:
        """The share coordinator did all of one request. What is not being initialised any more stays as it is."""
        return Changes(topics=share_group.succeed(self.topics, self._still_initializing(initializations)))

    def initialization_refused(self, initializations: Iterable[Initialization]) -> Changes:
        """The share coordinator refused some of one request: all of it is tried afresh by the next heartbeat."""
        changed, forgotten = share_group.fail(self.topics, self._still_initializing(initializations))
        return Changes(topics={**changed, **dict.fromkeys(forgotten)})

    def topics_deleted(self, topic_ids: Collection[str]) -> Changes:
        """Topics are gone from the cluster; the share coordinator forgets its state of them by itself."""
        gone = self.deleting.intersection(topic_ids)
        return Changes(
            topics={topic_id: None for topic_id in topic_ids if topic_id in self.topics},
            deleting=self.deleting - gone if gone else None,
        )

    # State

    def apply(self, changes: Changes, now_ms: int) -> None:
        """Take over what was persisted. The only place where the group changes."""
        if changes.epochs is not None:
            self.epochs = changes.epochs
            self.exists = True
        for member_id, member in changes.members.items():
            self._keep(member_id, member)
        for member_id, assignment in changes.target.items():
            if assignment:
                self.target[member_id] = assignment
            else:
                self.target.pop(member_id, None)
        for topic_id, topic in changes.topics.items():
            if topic is None:
                self.topics.pop(topic_id, None)
                self._asked_at.pop(topic_id, None)
            else:
                self.topics[topic_id] = topic
                asked_at = self._asked_at.get(topic_id, {})
                self._asked_at[topic_id] = {number: asked_at.get(number, now_ms) for number in topic.initializing}
        for topic_id, partitions, _ in changes.initializations:
            self._asked_at.setdefault(topic_id, {}).update(dict.fromkeys(partitions, now_ms))
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
            self.members[member_id] = member
        unwanted = before.subscribed_topic_names if before else frozenset()
        wanted = member.subscribed_topic_names if member else frozenset()
        if wanted != unwanted:
            self._subscribed.update(wanted)
            self._subscribed.subtract(unwanted)
            self._subscribed = +self._subscribed

    def _member(self, request: Heartbeat, settings: GroupSettings) -> Member:
        """The member that asks, or a new one."""
        member_id, epoch = request.member_id, request.member_epoch
        if epoch != JOIN_EPOCH and not self.exists:
            raise GroupIdNotFound(f"there is no group {self.group_id!r}")
        member = self.members.get(member_id)
        if member is None and len(self.members) >= settings.max_size:
            detail = f"group {self.group_id!r} has {settings.max_size} members, as many as it may"
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

    def _wanted_with(self, member: Member, updated: Member) -> Collection[str]:
        """The names that the group subscribes to once `member` is `updated`."""
        alone = {name for name in member.subscribed_topic_names if self._subscribed[name] == 1}
        return (self._subscribed.keys() - alone) | updated.subscribed_topic_names

    def _check_subscription(self, member: Member, updated: Member, topics: Topics) -> None:
        """Keep what one heartbeat, or the next assignment, has to go over within bounds.

        Raises: InvalidRequest: a member's topics have too many partitions; GroupMaxSizeReached: those of the group.
        """
        own = subscribed_topics.partition_count(updated.subscribed_topic_names, topics)
        if own > MAX_PARTITIONS_NAMED:
            raise InvalidRequest(
                f"the topics of this heartbeat have {own} partitions; a member subscribes to {MAX_PARTITIONS_NAMED} "
                "at most: spread the topics over several groups",
                limit=MAX_PARTITIONS_NAMED,
            )
        names = self._subscribed.total() - len(member.subscribed_topic_names) + len(updated.subscribed_topic_names)
        if names > MAX_GROUP_NAMES:
            raise GroupMaxSizeReached(
                f"the members of group {self.group_id!r} would name {names} topics, each member's counted; they may "
                f"name {MAX_GROUP_NAMES}: subscribe to fewer, or spread them over several groups",
                limit=MAX_GROUP_NAMES,
            )
        every = subscribed_topics.partition_count(self._wanted_with(member, updated), topics)
        if every > MAX_GROUP_PARTITIONS:
            raise GroupMaxSizeReached(
                f"the topics of group {self.group_id!r} would have {every} partitions; they may have "
                f"{MAX_GROUP_PARTITIONS}: spread them over several groups",
                limit=MAX_GROUP_PARTITIONS,
            )

    def _look(
        self, member: Member, updated: Member, topics: Topics, settings: GroupSettings, now_ms: int
    ) -> tuple[Epochs, tuple[Initialization, ...]]:
        """The epochs, risen if there is something new to assign; and what is to be initialised."""
        epochs = self.epochs
        resubscribed = updated.subscribed_topic_names != member.subscribed_topic_names
        names: Collection[str] = self._wanted_with(member, updated) if resubscribed else self._subscribed
        view = subscribed_topics.look(names, topics, self.topics)
        if view == self._settled and not resubscribed:
            return epochs, ()
        initializations = subscribed_topics.missing(
            view, self.topics, self._asked_at, settings.initialize_retry_interval_ms, now_ms
        )
        seen = subscribed_topics.metadata_hash(view)
        assigned_all = epochs.assignment_epoch >= epochs.group_epoch
        if (
            resubscribed
            or seen != epochs.metadata_hash
            or (assigned_all and not subscribed_topics.all_assigned(view, self._assigned()))
            or self._repeats(initializations)
        ):
            return epochs._replace(group_epoch=epochs.group_epoch + 1, metadata_hash=seen), initializations
        if assigned_all and subscribed_topics.all_initialized(view):
            self._settled = view
        return epochs, initializations

    def _repeats(self, initializations: Iterable[Initialization]) -> bool:
        """Whether one was asked for before and never answered: it may still come, and a higher epoch must fence it."""
        return any(
            topic_id in self.topics and partitions & self.topics[topic_id].initializing
            for topic_id, partitions, _ in initializations
        )

    def _assigned(self) -> Mapping[str, Collection[int]]:
        """The partitions that anybody shall have, by topic id."""
        if self._assigned_to_anybody is None:
            assigned: dict[str, set[int]] = {}
            for assignment in self.target.values():
                for topic_id, partitions in assignment.items():
                    assigned.setdefault(topic_id, set()).update(partitions)
            self._assigned_to_anybody = assigned
        return self._assigned_to_anybody

    def _may_assign(self, settings: GroupSettings, now_ms: int) -> bool:
        """The interval since the last assignment is over; a clock that was set back does not prolong it."""
        assigned_at_ms = self.epochs.assigned_at_ms
        return not (assigned_at_ms and 0 <= now_ms - assigned_at_ms < settings.assignment_interval_ms)

    def _assign(self, updated: Member, topics: Topics) -> dict[str, Assignment]:
        """What changes in the target assignment."""
        members = {**self.members, updated.member_id: updated}
        ids: dict[frozenset[str], frozenset[str]] = {}
        assignable: dict[str, frozenset[int]] = {}
        subscriptions = {}
        for member_id, member in members.items():
            names = member.subscribed_topic_names
            if names not in ids:
                ids[names] = frozenset(topics[name].topic_id for name in names if name in topics)
                for topic_id in ids[names]:
                    assignable[topic_id] = self.topics.get(topic_id, GroupTopic()).initialized
            subscriptions[member_id] = ids[names]
        target = assign(subscriptions, assignable, self.target)
        changed: dict[str, Assignment] = {}
        for member_id in {**self.target, **members}:
            assignment = target.get(member_id, {})
            if assignment != self.target.get(member_id, {}):
                changed[member_id] = assignment
        return changed

    def remove(self, member_ids: Collection[str], topics: Topics) -> Changes:
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

    def _still_initializing(self, initializations: Iterable[Initialization]) -> list[Initialization]:
        """What of them is being initialised yet; one of each topic, whose start offset means nothing."""
        by_topic: dict[str, frozenset[int]] = {}
        for topic_id, partitions, _ in initializations:
            still = partitions & self.topics.get(topic_id, GroupTopic()).initializing
            by_topic[topic_id] = by_topic.get(topic_id, frozenset()) | still
        return [Initialization(topic_id, still, -1) for topic_id, still in by_topic.items() if still]

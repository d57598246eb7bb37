"""A group under any sequence of heartbeats, departures, topics and answers: invariants after each, and at rest."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sharequeue_coordinator.share_group.changes import Epochs

from sharequeue.protocol.errors import FencedMemberEpoch, GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from tests.core.share_group_driver import Driver
from tests.examples import examples

MEMBERS = ["A", "B", "C", "D"]
TOPICS = ["t1", "t2", "t3"]
member_ids = st.sampled_from(MEMBERS)
names = st.sampled_from(TOPICS)
subscriptions = st.none() | st.frozensets(names)


class ShareGroupMachine(RuleBasedStateMachine):
    """Keeps beside the group the last answer and the epoch of each member."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver()
        self.epochs: dict[str, tuple[int, int]] = {}
        """Of each member: its epoch and the one before."""
        self.answered: dict[str, Mapping[str, frozenset[int]]] = {}
        self.last = Epochs()
        self.created = 0
        self.first: dict[str, int] = {}
        """Of each topic that the group has seen: how many partitions it had then."""
        self.seen = 0

    @initialize(interval_ms=st.sampled_from([0, 1000]), max_size=st.sampled_from([2, 4]))
    def start(self, interval_ms: int, max_size: int) -> None:
        self.driver = Driver(assignment_interval_ms=interval_ms, max_size=max_size, session_timeout_ms=10_000)

    def expected(self, member_id: str, epoch: int, topics: frozenset[str] | None) -> type[ApiError] | None:
        if epoch == 0 and not topics:
            return InvalidRequest
        if epoch != 0 and not self.driver.group.exists:
            return GroupIdNotFound
        known = self.epochs.get(member_id)
        if epoch == -1:
            return None if known else UnknownMemberId
        if known is None and len(self.epochs) >= self.driver.settings.max_size:
            return GroupMaxSizeReached
        if epoch == 0:
            return None
        if known is None:
            return UnknownMemberId
        return None if epoch in known else FencedMemberEpoch

    def send(self, member_id: str, epoch: int, topics: frozenset[str] | None) -> None:
        expected = self.expected(member_id, epoch, topics)
        if expected is not None:
            with pytest.raises(expected):
                self.driver.heartbeat(member_id, epoch, topics)
            return
        answer = self.driver.heartbeat(member_id, epoch, topics)
        if epoch == -1:
            del self.epochs[member_id], self.answered[member_id]
            return
        before = self.epochs.get(member_id, (0, -1))
        assert answer.member_epoch >= before[0]
        if answer.member_epoch != before[0]:
            self.epochs[member_id] = (answer.member_epoch, before[0])
        full = epoch == 0 or topics is not None or epoch == before[1]
        assert not full or answer.assignment is not None
        if answer.assignment is not None:
            assert full or answer.assignment != self.answered[member_id]
            self.answered[member_id] = answer.assignment

    @rule(member_id=member_ids, topics=subscriptions, epoch=st.integers(-1, 12))
    def heartbeat_of_any_kind(self, member_id: str, topics: frozenset[str] | None, epoch: int) -> None:
        self.send(member_id, epoch, topics)

    @rule(member_id=member_ids, topics=st.frozensets(names, min_size=1))
    def join(self, member_id: str, topics: frozenset[str]) -> None:
        self.send(member_id, 0, topics)

    @rule(member_id=member_ids, topics=subscriptions, previous=st.booleans())
    def heartbeat(self, member_id: str, topics: frozenset[str] | None, previous: bool) -> None:
        self.send(member_id, self.epochs.get(member_id, (5, 4))[previous], topics)

    @rule(name=names, more=st.integers(1, 3))
    def create_or_grow(self, name: str, more: int) -> None:
        topic = self.driver.topics.get(name)
        if topic:
            self.driver.create(name, topic.partitions + more, topic.topic_id)
        else:
            self.created += 1
            self.driver.create(name, more, f"id-{self.created}")

    @precondition(lambda self: self.driver.topics)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.driver.delete(data.draw(st.sampled_from(sorted(self.driver.topics))))

    @rule(how=st.sampled_from(["succeeds", "refuses", "silent"]))
    def share_coordinator(self, how: str) -> None:
        self.driver.share_coordinator = how

    @rule(name=names, partition=st.integers(0, 3))
    def fetch(self, name: str, partition: int) -> None:
        topic = self.driver.topics.get(name)
        if topic and partition < topic.partitions:
            self.driver.initialize({topic.topic_id: [partition]})

    @rule(ms=st.sampled_from([1, 500, 1000, 9000, 30_000]))
    def turn(self, ms: int) -> None:
        self.driver.turn(ms)
        for member_id in self.epochs.keys() - self.driver.group.members.keys():
            del self.epochs[member_id], self.answered[member_id]

    @rule()
    def restart(self) -> None:
        self.driver.restart()

    @precondition(lambda self: self.driver.now_ms + 1000 < (self.driver.group.next_deadline_ms() or 0))
    @rule()
    def rest(self) -> None:
        """With a share coordinator that answers, heartbeats alone bring every member to its target assignment."""
        driver = self.driver
        driver.share_coordinator = "succeeds"
        in_force = driver.settings
        driver.settings = replace(in_force, initialize_retry_interval_ms=0)
        for _ in range(6):
            driver.turn(1000)
            for member_id, (epoch, _) in list(self.epochs.items()):
                self.send(member_id, epoch, None)
        driver.settings = in_force
        group = driver.group
        epoch = group.epochs.group_epoch
        assert not self.epochs or group.epochs.assignment_epoch == epoch
        assert all(epochs == (epoch, epochs[1]) for epochs in self.epochs.values())
        for name, topic in driver.topics.items():
            wanting = [m for m, member in group.members.items() if name in member.subscribed_topic_names]
            got = [self.answered[member_id].get(topic.topic_id, frozenset()) for member_id in wanting]
            if wanting:
                assert frozenset().union(*got) == frozenset(range(topic.partitions))
        saved = len(driver.saved)
        for member_id, (epoch, _) in self.epochs.items():
            assert driver.heartbeat(member_id, epoch).assignment is None
        assert len(driver.saved) == saved, "at rest heartbeats persist nothing"

    @invariant()
    def epochs_only_rise_and_stand_in_order(self) -> None:
        epochs = self.driver.group.epochs
        assert epochs.group_epoch >= self.last.group_epoch
        assert epochs.assignment_epoch >= self.last.assignment_epoch
        assert epochs.assignment_epoch <= epochs.group_epoch
        self.last = epochs

    @invariant()
    def every_partition_begins_where_first_sight_says(self) -> None:
        """At −1 if the topic had it then, else at 0, however often the share coordinator is asked."""
        counts = {topic.topic_id: topic.partitions for topic in self.driver.topics.values()}
        for asked in self.driver.asked[self.seen :]:
            for topic_id, partitions, start_offset, state_epoch in asked:
                first = self.first.setdefault(topic_id, counts[topic_id])
                for partition in partitions:
                    assert start_offset == (-1 if partition < first else 0)
                    unanswered = self.driver.group.topics[topic_id].initializing.get(partition)
                    assert unanswered in (None, state_epoch)
        self.seen = len(self.driver.asked)

    @invariant()
    def members_have_the_assignment_of_their_last_answer(self) -> None:
        members = self.driver.group.members
        assert members.keys() == self.epochs.keys()
        for member_id, member in members.items():
            assert (member.member_epoch, member.previous_member_epoch) == self.epochs[member_id]
            assert member.assignment == self.answered[member_id]
            assert member.member_epoch <= self.driver.group.epochs.assignment_epoch

    @invariant()
    def only_members_have_targets_and_only_of_initialised_partitions(self) -> None:
        group = self.driver.group
        assert group.target.keys() <= group.members.keys()
        there = {topic.topic_id for topic in self.driver.topics.values()}
        for assignment in group.target.values():
            for topic_id, partitions in assignment.items():
                assert topic_id not in there or partitions <= group.topics[topic_id].initialized


TestShareGroup = ShareGroupMachine.TestCase
TestShareGroup.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)

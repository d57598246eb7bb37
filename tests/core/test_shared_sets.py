"""Groups on one wide topic share one set of partitions."""

from typing import NamedTuple

from sharequeue_coordinator.share_group.changes import GroupSettings
from sharequeue_coordinator.share_group.heartbeat import Heartbeat
from sharequeue_coordinator.share_group.machine import ShareGroup


class Topic(NamedTuple):
    topic_id: str
    partitions: int


TOPIC = Topic("id", 1000)


def joined(group_id: str) -> ShareGroup:
    """A group whose member has all partitions."""
    group, epoch = ShareGroup(group_id), 0
    for now_ms in (1000, 2000, 3000):
        beat = Heartbeat("m", epoch, None, frozenset({"wide"}))
        decision = group.heartbeat(beat, {"wide": TOPIC}, GroupSettings(assignment_interval_ms=0), now_ms)
        group.apply(decision.changes, now_ms)
        group.apply(group.initialized(decision.changes.initializations), now_ms)
        epoch = decision.answer.member_epoch
    return group


def test_equal_sets_are_one_object() -> None:
    sets = []
    for group in map(joined, ("a", "b")):
        assert group.members["m"].assignment == {"id": frozenset(range(TOPIC.partitions))}
        sets += [
            group.topics["id"].initialized,
            group.target["m"]["id"],
            group.members["m"].assignment["id"],
            group._assigned()["id"],
        ]
    assert len({id(each) for each in sets}) == 1

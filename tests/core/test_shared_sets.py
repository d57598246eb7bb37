"""Groups on one wide topic share one set of partitions."""

import tracemalloc
from typing import NamedTuple

from sharequeue_coordinator.share_group.changes import GroupSettings
from sharequeue_coordinator.share_group.heartbeat import Heartbeat
from sharequeue_coordinator.share_group.machine import ShareGroup
from sharequeue_coordinator.share_group.shared_sets import OneForAll, with_all


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
        group.apply(decision, now_ms)
        group.apply(group.initialized(decision.initializations), now_ms)
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


def test_a_number_for_all_partitions_is_equal_to_one_for_each() -> None:
    all_two = with_all({}, frozenset(range(100)), 2)
    assert isinstance(all_two, OneForAll)
    assert all_two == dict.fromkeys(range(100), 2)
    assert (all_two[99], all_two.get(100), len(all_two)) == (2, None, 100)
    assert isinstance(with_all(all_two, frozenset(range(200)), 3), OneForAll)
    assert with_all(all_two, frozenset({99, 100}), 3) == {**dict.fromkeys(range(99), 2), 99: 3, 100: 3}


def test_groups_that_wait_for_their_initialisation_take_no_memory_for_each_partition() -> None:
    wide = {"wide": Topic("id", 10_000)}
    groups, begun = [], []

    def join(group_id: str) -> None:
        group = ShareGroup(group_id)
        beat = Heartbeat("m", 0, None, frozenset(wide))
        changes = group.heartbeat(beat, wide, GroupSettings(), 1000)
        group.apply(changes, 1000)
        assert len(group.topics["id"].initializing) == 10_000
        groups.append(group)
        begun.append(group.still_asked(changes.initializations))

    join("first")
    tracemalloc.start()
    try:
        for number in range(5):
            join(str(number))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 5 * 10_000, "each of them takes less than a byte for a partition"

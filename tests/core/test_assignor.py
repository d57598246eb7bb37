"""The assignment of partitions to members, case by case: scenarios AS."""

from collections import Counter
from collections.abc import Collection, Mapping

import pytest
from sharequeue_coordinator.share_group.assignor import Assignment, AssignorError, assign, desired_counts

from sharequeue.protocol.errors import KAFKA_CODES


def some(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def counts(target: Mapping[str, Assignment]) -> list[int]:
    """How many partitions each member has, by member id."""
    return [sum(map(len, target[member_id].values())) for member_id in sorted(target)]


def holders(target: Mapping[str, Assignment]) -> Counter[tuple[str, int]]:
    """How many members have each partition."""
    return Counter(
        (topic_id, partition)
        for assignment in target.values()
        for topic_id, partitions in assignment.items()
        for partition in partitions
    )


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """How many partitions members were given that they had not."""
    return sum(
        len(partitions - before.get(member_id, {}).get(topic_id, some()))
        for member_id, assignment in after.items()
        for topic_id, partitions in assignment.items()
    )


def names(count: int) -> list[str]:
    return [f"m{number:03}" for number in range(count)]


def balanced(members: int, partitions: int) -> dict[str, dict[str, frozenset[int]]]:
    return assign({name: ["t"] for name in names(members)}, {"t": range(partitions)}, {})


def test_as_001_without_members_nothing_is_assigned() -> None:
    assert assign({}, {"t": [0, 1]}, {"gone": {"t": some(0, 1)}}) == {}


def test_as_003_a_missing_topic_is_an_error() -> None:
    with pytest.raises(AssignorError, match="T2") as raised:
        assign({"a": ["T1", "T2"]}, {"T1": [0]}, {})
    assert KAFKA_CODES[raised.value.error] == -1


def test_as_005_only_assignable_partitions_are_assigned() -> None:
    target = assign({"a": ["T1", "T3"], "b": ["T1", "T3"]}, {"T1": range(3), "T3": [0, 1]}, {})
    assert holders(target) == dict.fromkeys([("T1", 0), ("T1", 1), ("T1", 2), ("T3", 0), ("T3", 1)], 1)
    assert sorted(counts(target)) == [2, 3]


THREE = {"A": ["T1", "T2"], "B": ["T3"], "C": ["T2", "T3"]}


def test_as_007_members_with_different_subscriptions_cover_all_topics() -> None:
    target = assign(THREE, {"T1": range(3), "T2": range(3), "T3": range(2)}, {})
    assert len(holders(target)) == 8
    assert target["A"]["T1"] == some(0, 1, 2)
    assert set(target["B"]) == {"T3"}
    assert set(target["C"]) == {"T2", "T3"}


def test_as_009_a_topic_not_yet_assignable_leaves_the_others_covered() -> None:
    target = assign(THREE, {"T1": range(3), "T2": range(3), "T3": []}, {})
    assert len(holders(target)) == 6
    assert target["A"]["T1"] == some(0, 1, 2)
    assert (len(target["A"]["T2"]), target["B"], len(target["C"]["T2"])) == (2, {}, 1)


def test_as_011_the_others_keep_their_partitions_when_a_member_leaves() -> None:
    before = {"A": {"T1": some(0, 1, 2), "T2": some(0, 2)}, "B": {"T3": some(0, 1)}, "C": {"T2": some(1)}}
    target = assign(
        {"A": ["T1", "T2", "T3"], "B": ["T3", "T4"]},
        {"T1": range(3), "T2": range(3), "T3": range(2), "T4": range(1)},
        before,
    )
    assert len(holders(target)) == 9
    assert target["A"]["T1"] == target["A"]["T2"] == some(0, 1, 2)
    assert (len(target["A"]["T3"]), len(target["B"]["T3"])) == (1, 1)
    assert target["B"]["T4"] == some(0)


@pytest.mark.parametrize("different", [False, True])
@pytest.mark.parametrize("sizes", [range(1, 102), range(101, 0, -1)], ids=["growing", "shrinking"])
def test_as_013_a_group_stays_balanced_as_it_grows_and_shrinks(sizes: Collection[int], different: bool) -> None:
    """24 partitions; at each step they are covered, balanced, and shared as by a fresh assignment."""
    assignable = {"T1": range(12), "T2": range(12)}
    target: dict[str, dict[str, frozenset[int]]] = {}
    for size in sizes:
        members = names(size)
        wanted = {name: ["T1", "T2"] for name in members}
        if different:
            wanted["only T1"] = ["T1"]
        before = target
        target = assign(wanted, assignable, before)
        sharing = holders(target)
        assert len(sharing) == 24
        if different:
            t1, t2 = (
                [len(of_member.get(topic_id, some())) for name, of_member in target.items() if topic_id in wanted[name]]
                for topic_id in ("T1", "T2")
            )
            assert max(t1) - min(t1) <= 1
            assert max(t2) - min(t2) <= 1
            assert set(sharing.values()) <= {-(-size // 12), -(-(size + 1) // 12)}
        else:
            assert max(counts(target)) - min(counts(target)) <= 1
            assert set(sharing.values()) == {-(-size // 24)}
        assert assign(wanted, assignable, target) == target


@pytest.mark.parametrize(
    ("members", "partitions", "expected"),
    [
        (3, 6, [2, 2, 2]),
        (2, 3, [2, 1]),
        (3, 1, [1, 1, 1]),
        (5, 2, [2, 1, 1, 1, 1]),
        (4, 3, [2, 1, 2, 1]),
        (1, 7, [7]),
        (3, 0, [0, 0, 0]),
    ],
)
def test_as_015_partitions_are_shared_evenly(members: int, partitions: int, expected: list[int]) -> None:
    target = balanced(members, partitions)
    assert counts(target) == expected
    assert set(holders(target).values()) <= {-(-members // max(partitions, 1))}


def test_as_017_a_new_member_takes_no_more_than_its_share() -> None:
    before = balanced(3, 6)
    after = assign({name: ["t"] for name in [*names(3), "a new one"]}, {"t": range(6)}, before)
    assert len(after["a new one"]["t"]) == 1
    assert moved(before, after) == 1
    for name in names(3):
        assert after[name]["t"] <= before[name]["t"]


def test_a_member_with_the_larger_share_keeps_it() -> None:
    """A fresh assignment would have the counts 2, 1, 2, 1; here other members keep the larger ones."""
    before = {
        "m000": {"t": some(0)},
        "m001": {"t": some(1, 2)},
        "m002": {"t": some(0)},
        "m003": {"t": some(1, 2)},
    }
    assert assign({name: ["t"] for name in names(4)}, {"t": range(3)}, before) == before
    assert desired_counts(6, [0, 0, 0, 0]) == [2, 1, 2, 1]
    assert desired_counts(6, [1, 2, 1, 2]) == [1, 2, 1, 2]


def test_a_partition_with_too_many_members_is_taken_from_some() -> None:
    before = {name: {"t": some(0)} for name in names(4)}
    after = assign({name: ["t"] for name in names(4)}, {"t": range(2)}, before)
    assert holders(after) == {("t", 0): 2, ("t", 1): 2}
    assert counts(after) == [1, 1, 1, 1]
    assert moved(before, after) == 2


def test_a_member_gives_up_shared_partitions_first() -> None:
    before = {"a": {"t": some(0, 1, 2)}, "b": {"t": some(0)}}
    assert assign({"a": ["t"], "b": ["t"]}, {"t": range(3)}, before) == {"a": {"t": some(1, 2)}, "b": {"t": some(0)}}


def test_topics_with_the_same_members_are_balanced_once() -> None:
    """A thousand topics of ten partitions cost as much as one: their members get the very same sets."""
    topics = {f"t{number:03}": range(10) for number in range(1000)}
    wanted = {**dict.fromkeys(names(1000), frozenset(topics)), "m000": frozenset[str]()}
    target = assign(wanted, topics, {})
    assert Counter(map(len, target.values())) == {1000: 999, 0: 1}
    assert len({id(partitions) for assignment in target.values() for partitions in assignment.values()}) <= 11

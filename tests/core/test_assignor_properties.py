"""Any group: every partition is assigned, the members are balanced, few partitions move,
and the order does not matter."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sharequeue_coordinator.share_group.assignor import Assignment, assign

from tests.core.cpu import times_as_much

TOPICS = "abcd"
MEMBERS = [f"m{number}" for number in range(9)]

partitions = st.frozensets(st.integers(0, 7))
assignables = st.fixed_dictionaries(dict.fromkeys(TOPICS, partitions))
subscription = st.frozensets(st.sampled_from(TOPICS))
different = st.dictionaries(st.sampled_from(MEMBERS), subscription, max_size=9)
alike = st.builds(dict.fromkeys, st.frozensets(st.sampled_from(MEMBERS)), subscription)
subscriptions = different | alike
anything = st.dictionaries(
    st.sampled_from([*MEMBERS, "gone"]), st.dictionaries(st.sampled_from([*TOPICS, "gone"]), partitions)
)
"""An earlier assignment of any kind: unbalanced, shared too widely, of topics and members that are gone."""


class Pool(NamedTuple):
    """Topics that are balanced together, over the members that want them."""

    topic_ids: frozenset[str]
    members: list[str]


def pools(wanted: Mapping[str, frozenset[str]]) -> list[Pool]:
    topic_ids = frozenset[str]().union(*wanted.values())
    if len(set(wanted.values())) == 1:
        return [Pool(topic_ids, list(wanted))]
    return [Pool(frozenset({topic}), [m for m, topics in wanted.items() if topic in topics]) for topic in topic_ids]


def held(assignment: Assignment, pool: Pool) -> set[tuple[str, int]]:
    return {(topic, partition) for topic in pool.topic_ids for partition in assignment.get(topic, ())}


@given(subscriptions, assignables, anything)
@example(
    dict.fromkeys(MEMBERS[:4], frozenset("a")),
    {"a": frozenset({0, 1, 2})},
    {"m0": {"a": frozenset({2})}, "m1": {"a": frozenset({0, 1})}, "m2": {"a": frozenset({0, 1})}},
)
def test_every_partition_is_covered_and_the_members_balanced(
    wanted: dict[str, frozenset[str]], assignable: dict[str, frozenset[int]], previous: dict[str, Assignment]
) -> None:
    target = assign(wanted, assignable, previous)
    assert set(target) == (set(wanted) if any(wanted.values()) else set())
    for member_id, assignment in target.items():
        assert set(assignment) <= wanted[member_id]
        assert all(assignment.values())
    for pool in pools(wanted):
        expected = {(topic, partition) for topic in pool.topic_ids for partition in assignable[topic]}
        of_members = [held(target.get(member_id, {}), pool) for member_id in pool.members]
        counts = [len(of_member) for of_member in of_members]
        sharing = -(-len(pool.members) // len(expected)) if expected else 0
        assert max(counts, default=0) - min(counts, default=0) <= 1
        assert sum(counts) == sharing * len(expected)
        assert all(sum(one in of_member for of_member in of_members) == sharing for one in expected)
        assert set().union(*of_members) <= expected


@given(subscriptions, assignables, anything)
def test_a_balanced_assignment_does_not_change(
    wanted: dict[str, frozenset[str]], assignable: dict[str, frozenset[int]], previous: dict[str, Assignment]
) -> None:
    target = assign(wanted, assignable, previous)
    assert assign(wanted, assignable, target) == target


@given(subscriptions, assignables, anything, st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_does_not_matter(
    wanted: dict[str, frozenset[str]],
    assignable: dict[str, frozenset[int]],
    previous: dict[str, Assignment],
    random: object,
) -> None:
    def mixed(mapping: Mapping[str, object]) -> dict[str, object]:
        items = list(mapping.items())
        random.shuffle(items)  # type: ignore[attr-defined]
        return dict(items)

    assert assign(mixed(wanted), mixed(assignable), mixed(previous)) == assign(wanted, assignable, previous)  # type: ignore[arg-type]


@given(alike.filter(bool), st.frozensets(st.integers(0, 40), min_size=9), st.data())
def test_assignment_moves_no_more_than_balance_needs(
    wanted: dict[str, frozenset[str]], numbers: frozenset[int], data: st.DataObject
) -> None:
    """With no more members than partitions each partition has one holder; any split of them may come before."""
    members = sorted(wanted)
    owners: Sequence[str | None] = data.draw(
        st.lists(st.sampled_from([*members, "gone", None]), min_size=len(numbers), max_size=len(numbers))
    )
    before = {
        name: {"a": frozenset(number for number, owner in zip(sorted(numbers), owners, strict=True) if owner == name)}
        for name in [*members, "gone"]
    }
    target = assign(dict.fromkeys(members, "a"), {"a": numbers}, before)
    small, left = divmod(len(numbers), len(members))
    can_stay = sorted((len(before[name]["a"]) for name in members), reverse=True)
    needed = sum(min(count, small + (rank < left)) for rank, count in enumerate(can_stay))
    assert sum(len(target[name].get("a", frozenset()) & before[name]["a"]) for name in members) == needed


MORE = 20


@pytest.mark.parametrize("of", ["members", "topics"])
@pytest.mark.parametrize("change", ["first", "fewer members"])
@pytest.mark.parametrize("wanting", ["the same", "different"])
def test_the_cost_of_an_assignment_grows_with_members_times_topics(wanting: str, change: str, of: str) -> None:
    """100 members and 10 topics of 100 partitions beside 20 times as many of one: five times as much as linear work."""

    def assigning(members: int, topics: int) -> Callable[[], object]:
        assignable = {f"t{number:03}": range(100) for number in range(topics)}
        every = frozenset(assignable)
        less = every if wanting == "the same" else every - {"t000"}
        wanted = {f"m{number:04}": every if number % 2 else less for number in range(members)}
        if change == "first":
            return lambda: assign(wanted, assignable, {})
        target = assign(wanted, assignable, {})
        fewer = {name: topics for name, topics in wanted.items() if not name.endswith("7")}
        return lambda: assign(fewer, assignable, target)

    large = assigning(100 * MORE, 10) if of == "members" else assigning(100, 10 * MORE)
    assert times_as_much(large, assigning(100, 10)) < 5 * MORE

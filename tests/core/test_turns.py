"""Whose turn it is: no pattern of fetches passes a share-partition over for long, here or over several leaders."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.leader.led_index import ready_in_turn
from sharequeue_gateway.leader.wake_up import LedTopic
from sharequeue_gateway.share_partition.fetch_limits import rotate
from sharequeue_gateway.share_partition.turns import (
    NO_DEADLINE_MS,
    Turns,
    by_level,
    by_priority,
    in_turn,
    leaders_in_turn,
    levels_of,
)

from sharequeue.protocol.types import MAX_INT32, SharePartitionKey


class Led:
    """A share-partition as its leader knows it."""

    def __init__(self, number: int, served_turn: int = 0) -> None:
        self.number = number
        self.served_turn = served_turn


@pytest.mark.parametrize(
    ("served", "order"),
    [
        pytest.param([], [], id="none"),
        pytest.param([0, 0, 0], [0, 1, 2], id="new ones as they come"),
        pytest.param([3, 2, 1], [2, 1, 0], id="the longest ago first"),
        pytest.param([7, 0, 5, 0], [1, 3, 2, 0], id="never served before served"),
        pytest.param([9, 8, 10], [1, 0, 2], id="the last served is last"),
    ],
)
def test_the_partition_served_longest_ago_is_first(served: list[int], order: list[int]) -> None:
    assert [led.number for led in in_turn(Led(number, turn) for number, turn in enumerate(served))] == order


@pytest.mark.parametrize("epoch", [1, 2, 5, MAX_INT32])
def test_ss_028_the_session_epoch_orders_partitions_served_at_the_same_time(epoch: int) -> None:
    """SS-027's rotation holds for partitions that gave no records yet."""
    leds = [Led(number) for number in range(3)]
    assert in_turn(rotate(leds, epoch)) == rotate(leds, epoch)
    leds[epoch % 3].served_turn = 1
    assert in_turn(rotate(leds, epoch))[-1] is leds[epoch % 3]


@st.composite
def patterns(draw: st.DrawFn) -> tuple[int, list[tuple[frozenset[int], int | None, int]]]:
    """Partitions, and fetches: which they name, the session's epoch, how many partitions use up what they may take."""
    count = draw(st.integers(1, 6))
    named = st.frozensets(st.integers(0, count - 1), min_size=1)
    fetch = st.tuples(named, st.none() | st.integers(0, 20), st.integers(1, count))
    once = draw(st.lists(fetch, min_size=1, max_size=8))
    return count, once * draw(st.integers(1, 8))  # repeated patterns cause starvation


@given(patterns())
def test_ss_028_n_partitions_are_each_served_within_n_fetches_that_name_them(
    pattern: tuple[int, list[tuple[frozenset[int], int | None, int]]],
) -> None:
    count, fetches = pattern
    leds = [Led(number) for number in range(count)]
    passed_over = [0] * count
    for turn, (named, epoch, served) in enumerate(fetches, 1):
        asked = [leds[number] for number in sorted(named)]
        order = in_turn(asked if epoch is None else rotate(asked, epoch))
        for number in named:
            passed_over[number] += 1
        for led in order[:served]:
            led.served_turn = turn
            passed_over[led.number] = 0
        assert max(passed_over) < count


@pytest.mark.parametrize(
    ("leaders", "turn", "order"),
    [
        ("aaaaa", 3, "a"),
        ("aab", 0, "ab"),
        ("aab", 1, "ab"),
        ("aab", 2, "ba"),
        ("aab", 3, "ab"),
        ("abcab", 4, "bac"),
        ("abcab", 1_000_000_002, "cab"),
    ],
)
def test_the_leader_of_the_partition_whose_turn_it_is_is_asked_first(leaders: str, turn: int, order: str) -> None:
    assert "".join(leaders_in_turn(leaders, lambda leader: leader, turn, len(set(leaders)))) == order


def test_no_more_partitions_are_looked_at_than_it_takes_to_find_all_leaders() -> None:
    looked: list[int] = []

    def leader_of(partition: int) -> int:
        looked.append(partition)
        return partition % 3

    assert leaders_in_turn(range(10_000), leader_of, 9_999, 3) == [0, 1, 2]
    assert looked == [9_999, 0, 1, 2]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(0, 1 << 30), st.integers(1, 3))
def test_n_partitions_of_several_leaders_are_each_served_within_n_fetches(
    leaders: list[int], first: int, served: int
) -> None:
    """Each leader gives what it served longest ago, and uses up what the fetch may take after so many partitions."""
    turns = Turns(10, lambda: first)
    leds = [Led(number) for number in range(len(leaders))]
    numbers = range(len(leaders))
    passed_over = [0] * len(leaders)
    for now in range(1, 4 * len(leaders)):
        order = leaders_in_turn(numbers, leaders.__getitem__, turns.next("fetch"), len(set(leaders)))
        left = served
        passed_over = [fetches + 1 for fetches in passed_over]
        for leader in order:
            for led in in_turn(led for led in leds if leaders[led.number] == leader)[:left]:
                led.served_turn = now
                passed_over[led.number] = 0
                left -= 1
        assert max(passed_over) < 2 * len(leaders)


def numbered() -> Iterator[int]:
    return iter(range(100, 1000, 100))


def test_each_key_has_its_own_turns() -> None:
    turns = Turns(10, numbered().__next__)
    assert [turns.next(key) for key in "abaab"] == [100, 200, 101, 102, 201]


def test_the_key_that_was_used_longest_ago_is_dropped() -> None:
    turns = Turns(2, numbered().__next__)
    assert [turns.next(key) for key in "abaca"] == [100, 200, 101, 300, 102]
    assert turns.next("b") == 400


@pytest.mark.parametrize("topics", [1, 2, 3, 7])
@pytest.mark.parametrize("first_turn", [0, 7, (1 << 30) + 3])
def test_each_lower_topic_is_first_in_its_share_of_fetches(topics: int, first_turn: int) -> None:
    lower = topics - 1
    orders = [by_priority(range(topics), first_turn + turn) for turn in range(10 * max(lower, 1))]
    assert all(sorted(order) == list(range(topics)) for order in orders)
    firsts = [order[0] for order in orders]
    assert [firsts.count(topic) for topic in range(1, topics)] == [1] * lower
    assert {tuple(order) for order in orders if order[0] == 0} == {tuple(range(topics))}


def test_topics_from_the_tenth_on_are_one_level() -> None:
    named = [topic for topic in range(12) for _ in range(2)]
    levels = levels_of(named)
    assert [levels[topic] for topic in range(12)] == [*range(9), 9, 9, 9]
    assert by_level(named[::-1], levels.__getitem__) == [*([n, n] for n in range(9)), [11, 11, 10, 10, 9, 9]]


# Those that may have records


class Listed(Led):
    """A share-partition of an index."""

    def __init__(self, partition: int) -> None:
        super().__init__(partition)
        self.key = SharePartitionKey("g", "t", partition)
        self.place: tuple[int, int] | None = None
        self.empty_until_ms = 0


class CountedLooks(list[Listed]):
    looks = 0

    def __getitem__(self, partition: Any) -> Any:
        self.looks += 1
        return super().__getitem__(partition)


def topic_of(partitions: int) -> LedTopic:
    return LedTopic(CountedLooks(map(Listed, range(partitions))))


def set_empty(topic: LedTopic, led: Any, until_ms: int) -> None:
    led.empty_until_ms = until_ms
    topic.note(led)


@st.composite
def events(draw: st.DrawFn) -> tuple[list[int], list[tuple[str, int, int]]]:
    """The partitions of some topics, and what happens to a share-partition: it gives records, is empty, or may have
    records."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    topics = st.integers(0, len(sizes) - 1)
    kinds = st.sampled_from(["serve", "empty", "wake"])
    happened = draw(st.lists(st.tuples(kinds, topics, st.integers(0, 3)), max_size=40))
    return sizes, [(kind, topic, partition % sizes[topic]) for kind, topic, partition in happened]


@given(events(), st.integers(0, 20), st.integers(1, 12))
def test_the_index_has_in_turn_what_a_look_at_each_share_partition_finds(
    happened: tuple[list[int], list[tuple[str, int, int]]], turn: int, most: int
) -> None:
    sizes, steps = happened
    topics = [topic_of(size) for size in sizes]
    for served, (kind, at, partition) in enumerate(steps, 1):
        led = topics[at].members[partition]
        if kind == "serve":
            led.served_turn = served
            topics[at].note(led)
        else:
            set_empty(topics[at], led, {"empty": NO_DEADLINE_MS, "wake": 0}[kind])
        each = [led for topic in topics for led in topic.members]
        wanted = in_turn(led for led in rotate(each, turn) if not led.empty_until_ms)
        assert ready_in_turn(topics, turn, most) == wanted[:most]


def test_the_first_in_turn_are_found_without_a_look_at_the_others() -> None:
    topic = topic_of(1000)
    for led in topic.members[1:]:
        set_empty(topic, led, NO_DEADLINE_MS)
    assert [led.key.partition for led in ready_in_turn([topic], 7, 16)] == [0]
    for led in topic.members:
        set_empty(topic, led, 0)
    assert isinstance(topic.members, CountedLooks)
    topic.members.looks = 0
    assert [led.key.partition for led in ready_in_turn([topic], 7, 16)] == [*range(7, 23)]
    assert 16 <= topic.members.looks <= 2 * 16

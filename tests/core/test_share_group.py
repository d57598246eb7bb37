"""Initialisation of a group's share-partitions, where it begins, and the effects of a failure: scenarios GI,
RS-007."""

from hypothesis import given
from hypothesis import strategies as st
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization, begin, fail, missing, succeed


def some(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def test_gi_001_topics_never_seen_start_where_the_group_says() -> None:
    asked = {"t1": [0, 1], "t2": [0, 1]}
    wanted = missing({}, asked, 2)
    assert wanted == [Initialization("t1", some(0, 1), -1, 2), Initialization("t2", some(0, 1), -1, 2)]
    begun = GroupTopic({0: 2, 1: 2}, first_partitions=2)
    assert begin({}, wanted, {"t1": 2, "t2": 2}) == {"t1": begun, "t2": begun}


def test_gi_003_rs_007_only_partitions_that_a_topic_got_later_start_at_0() -> None:
    known = {"t1": GroupTopic(initialized=some(1), first_partitions=2)}
    assert missing(known, {"t1": range(4), "t3": range(3)}, 3) == [
        Initialization("t1", some(0), -1, 3),
        Initialization("t1", some(2, 3), 0, 3),
        Initialization("t3", some(0, 1, 2), -1, 3),
    ]


def test_gi_005_an_initialisation_whose_answer_was_lost_is_repeated_as_it_was() -> None:
    known = {"t1": GroupTopic({0: 2, 3: 4}, first_partitions=3)}
    repeats = [Initialization("t1", some(0), -1, 2), Initialization("t1", some(3), 0, 4)]
    assert missing(known, {"t1": [0, 3]}, 9) == repeats
    assert begin(known, repeats, {"t1": 9}) == {}, "nothing to persist"


def test_gi_007_initialised_partitions_are_not_initialised_again() -> None:
    known = begin({}, missing({}, {"t1": [0, 1]}, 2), {"t1": 2})
    known = succeed(known, {"t1": some(0, 1)})
    assert known == {"t1": GroupTopic(initialized=some(0, 1), first_partitions=2)}
    assert missing(known, {"t1": [0, 1]}, 3) == []
    assert missing(known, {"t1": []}, 3) == []


def test_a_refusal_keeps_where_the_group_begins_and_the_initialisations_of_others() -> None:
    known = {"t1": GroupTopic({5: 2}, some(0), 6), "t2": GroupTopic({0: 2}, first_partitions=1)}
    assert fail(known, {"t1": some(6), "t2": some(0)}) == {"t1": known["t1"], "t2": GroupTopic(first_partitions=1)}


partitions = st.frozensets(st.integers(0, 5))
epochs = st.dictionaries(st.integers(0, 5), st.integers(1, 3))
known_topics = st.dictionaries(st.sampled_from("abc"), st.builds(GroupTopic, epochs, partitions, st.integers(0, 4)))
asked_topics = st.dictionaries(st.sampled_from("abcd"), partitions)


@given(known_topics, asked_topics)
def test_after_both_stages_every_partition_is_initialised(
    known: dict[str, GroupTopic], asked: dict[str, frozenset[int]]
) -> None:
    wanted = missing(known, asked, 4)
    begun = {**known, **begin(known, wanted, dict.fromkeys("abcd", 6))}
    for topic_id, topic in known.items():
        assert topic.initializing.items() <= begun[topic_id].initializing.items()
        assert topic.initialized == begun[topic_id].initialized
        assert topic.first_partitions in (0, begun[topic_id].first_partitions)
    named: dict[str, frozenset[int]] = {}
    for one in wanted:
        named[one.topic_id] = named.get(one.topic_id, some()) | one.partitions
    done = {**begun, **succeed(begun, named)}
    assert missing(done, asked, 5) == []
    for topic_id, topic in known.items():
        assert topic.initialized <= done[topic_id].initialized

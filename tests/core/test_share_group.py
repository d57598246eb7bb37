"""Initialisation of a group's share-partitions, their start offsets, and the effects of a failure: scenarios GI,
RS-007."""

from hypothesis import given
from hypothesis import strategies as st
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization, begin, fail, missing, succeed


def some(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def test_gi_001_topics_never_seen_start_where_the_group_says() -> None:
    asked = {"t1": [0, 1], "t2": [0, 1]}
    wanted = missing({}, asked)
    assert wanted == [Initialization("t1", some(0, 1), -1), Initialization("t2", some(0, 1), -1)]
    assert begin({}, wanted) == {"t1": GroupTopic(some(0, 1)), "t2": GroupTopic(some(0, 1))}


def test_gi_003_rs_007_further_partitions_of_a_known_topic_start_at_0() -> None:
    known = {"t1": GroupTopic(initialized=some(0, 1))}
    assert missing(known, {"t1": range(4), "t3": range(3)}) == [
        Initialization("t1", some(2, 3), 0),
        Initialization("t3", some(0, 1, 2), -1),
    ]


def test_gi_005_an_initialisation_whose_answer_was_lost_is_tried_again_from_0() -> None:
    known = {"t1": GroupTopic(initializing=some(0, 1))}
    assert missing(known, {"t1": [0, 1]}) == [Initialization("t1", some(0, 1), 0)]


def test_gi_007_initialised_partitions_are_not_initialised_again() -> None:
    wanted = missing({}, {"t1": [0, 1]})
    known = begin({}, wanted)
    known = succeed(known, wanted)
    assert known == {"t1": GroupTopic(initialized=some(0, 1))}
    assert missing(known, {"t1": [0, 1]}) == []
    assert missing(known, {"t1": []}) == []


def test_after_a_refusal_the_next_try_counts_as_the_first() -> None:
    known = {"t1": GroupTopic(initialized=some(0))}
    wanted = missing(known, {"t1": [0, 1], "t2": [0]})
    after = {**known, **begin(known, wanted)}
    changed, forgotten = fail(after, wanted)
    assert changed == {"t1": GroupTopic(initialized=some(0))}
    assert forgotten == ["t2"]


def test_a_refusal_keeps_the_initialisations_of_others() -> None:
    known = {"t1": GroupTopic(initializing=some(5))}
    wanted = [Initialization("t1", some(6), 0)]
    changed, forgotten = fail({**known, **begin(known, wanted)}, wanted)
    assert (changed, forgotten) == (known, [])


partitions = st.frozensets(st.integers(0, 5))
known_topics = st.dictionaries(st.sampled_from("abc"), st.builds(GroupTopic, partitions, partitions))
asked_topics = st.dictionaries(st.sampled_from("abcd"), partitions)


@given(known_topics, asked_topics)
def test_after_both_stages_every_partition_is_initialised(
    known: dict[str, GroupTopic], asked: dict[str, frozenset[int]]
) -> None:
    wanted = missing(known, asked)
    begun = {**known, **begin(known, wanted)}
    for topic_id, topic in known.items():
        assert topic.initializing <= begun[topic_id].initializing
        assert topic.initialized == begun[topic_id].initialized
    done = {**begun, **succeed(begun, wanted)}
    assert missing(done, asked) == []
    for topic_id, topic in known.items():
        assert topic.initialized <= done[topic_id].initialized

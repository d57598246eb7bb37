"""Heartbeats initialise partitions as topics appear, grow and are deleted: scenarios GI."""

import pytest
from sharequeue_coordinator.share_group.changes import Changes
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization
from sharequeue_coordinator.share_group.offsets import alter, delete_group, delete_offsets

from tests.core.share_group_driver import Driver


def some(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def test_gi_003_rs_007_a_grown_topic_and_a_new_one_are_initialised() -> None:
    driver = Driver(topics={"t1": 2, "t2": 2})
    driver.heartbeat("M1", 0, ["t1", "t2"])
    driver.create("t1", 4)
    driver.create("t3", 3)
    driver.heartbeat("M1", 2, ["t1", "t2", "t3"])
    assert driver.asked[1:] == [
        (Initialization("id-t1", some(2, 3), 0, 3), Initialization("id-t3", some(0, 1, 2), -1, 3))
    ]


def test_gi_005_an_unanswered_initialisation_is_retried_after_30_s() -> None:
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "silent"
    driver.heartbeat("M1", 0, ["t1"])
    driver.turn(29_999)
    driver.heartbeat("M1", 2)
    assert len(driver.asked) == 1, "it may still be answered"
    driver.turn(1)
    driver.heartbeat("M2", 0, ["t1"])
    assert driver.asked[1:] == driver.asked[:1], "the same start offset under the same epoch"
    assert driver.asked[0] == (Initialization("id-t1", some(0, 1), -1, 2),)
    driver.heartbeat("M2", 3)
    assert len(driver.asked) == 2


def test_a_clock_that_is_set_back_does_not_stop_initialisations() -> None:
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "silent"
    driver.heartbeat("M1", 0, ["t1"])
    driver.now_ms -= 3_600_000
    driver.heartbeat("M1", 2)
    assert len(driver.asked) == 2


@pytest.mark.parametrize("first", ["heartbeat", "fetch"])
@pytest.mark.parametrize("then", ["heartbeat", "fetch"])
def test_an_unanswered_initialisation_is_repeated_as_it_was(first: str, then: str) -> None:
    """The share coordinator may have done it: a higher epoch would discard acknowledgements made since."""
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "silent"
    ways = {
        "heartbeat": lambda: driver.heartbeat("M1", 0, ["t1"]),
        "fetch": lambda: driver.initialize({"id-t1": [0, 1]}),
    }
    ways[first]()
    driver.turn(30_000)
    driver.restart()
    driver.create("t1", 3)
    driver.turn(30_000)
    driver.share_coordinator = "succeeds"
    ways[then]()
    ways["fetch"]()
    assert driver.asked[0] == (Initialization("id-t1", some(0, 1), -1, 2),)
    assert driver.asked[1][0] == driver.asked[0][0]
    assert driver.asked[1][1:] == ((Initialization("id-t1", some(2), 0, 3),) if then == "heartbeat" else ())
    assert driver.group.topics["id-t1"].initialized >= some(0, 1)


@pytest.mark.parametrize("begin", ["heartbeat", "fetch", "alteration"])
def test_a_group_begins_alike_in_all_partitions_of_its_first_sight(begin: str) -> None:
    driver = Driver(topics={"t1": 3})
    if begin == "heartbeat":
        driver.share_coordinator = "refuses"
        driver.heartbeat("M1", 0, ["t1"])
        driver.share_coordinator = "succeeds"
    elif begin == "fetch":
        driver.initialize({"id-t1": [2]})
    else:
        driver.apply(alter(driver.group, {"id-t1": {2: 7}}, driver.topics))
    driver.create("t1", 5)
    driver.restart()
    for partition in (4, 1, 3, 0):
        driver.initialize({"id-t1": [partition]})
    starts = {p: one.start_offset for asked in driver.asked[1:] for one in asked for p in one.partitions}
    assert starts == {0: -1, 1: -1, 3: 0, 4: 0}


def test_a_group_begins_again_in_a_topic_whose_offsets_were_deleted() -> None:
    driver = Driver(topics={"t1": 1})
    driver.initialize({"id-t1": [0]})
    driver.create("t1", 3)
    driver.share_coordinator = "silent"
    driver.initialize({"id-t1": [1]})
    driver.apply(delete_offsets(driver.group, driver.topics["t1"]))
    driver.initialize({"id-t1": [0, 1, 2]})
    assert driver.asked[1] == (Initialization("id-t1", some(1), 0, 3),)
    assert driver.asked[2] == (Initialization("id-t1", some(0, 2), -1, 4), Initialization("id-t1", some(1), -1, 3))
    assert driver.group.topics["id-t1"].first_partitions == 3


def test_gi_009_a_deleted_topic_is_forgotten() -> None:
    driver = Driver(topics={"t1": 2, "t2": 1, "t3": 1})
    driver.heartbeat("M1", 0, ["t1", "t2"])
    driver.share_coordinator = "silent"
    driver.heartbeat("M1", 2, ["t1", "t2", "t3"])
    driver.apply(Changes(deleting=some_text("id-t1")))
    for name in ("t1", "t3"):
        driver.delete(name)
    assert driver.group.topics == {"id-t2": GroupTopic(initialized=some(0), first_partitions=1)}
    assert driver.group.deleting == frozenset()
    assert driver.saved[-1].topics == {"id-t3": None}
    answer = driver.heartbeat("M1", 3)
    assert (answer.member_epoch, answer.assignment) == (4, {"id-t2": some(0)})
    assert driver.heartbeat("M1", 4).assignment is None


def some_text(*texts: str) -> frozenset[str]:
    return frozenset(texts)


def test_a_refused_initialisation_is_retried_at_once() -> None:
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "refuses"
    driver.heartbeat("M1", 0, ["t1"])
    assert driver.group.topics == {"id-t1": GroupTopic(first_partitions=2)}
    assert driver.saved[-1].topics == driver.group.topics
    driver.share_coordinator = "succeeds"
    answer = driver.heartbeat("M1", 2)
    assert driver.asked == [(Initialization("id-t1", some(0, 1), -1, 2),)] * 2
    assert (answer.member_epoch, answer.assignment) == (2, None)
    assert driver.heartbeat("M1", 2).assignment == {"id-t1": some(0, 1)}


def test_only_initialised_partitions_are_assigned() -> None:
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "silent"
    driver.heartbeat("M1", 0, ["t1"])
    assert driver.heartbeat("M2", 0, ["t1"]).assignment == {}
    driver.apply(driver.group.initialized(driver.asked[-1]))
    assert driver.heartbeat("M2", 0, ["t1"]).assignment == {"id-t1": some(1)}


def test_a_topic_recreated_under_its_name_is_another_topic() -> None:
    driver = Driver(topics={"t1": 2})
    driver.heartbeat("M1", 0, ["t1"])
    driver.heartbeat("M1", 2)
    driver.create("t1", 2, "another id")
    answer = driver.heartbeat("M1", 3)
    assert (answer.member_epoch, answer.assignment) == (4, {})
    assert driver.asked[-1] == (Initialization("another id", some(0, 1), -1, 4),)
    assert driver.heartbeat("M1", 4).assignment == {"another id": some(0, 1)}


def test_a_late_answer_for_a_deleted_topic_changes_nothing() -> None:
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "silent"
    driver.heartbeat("M1", 0, ["t1"])
    driver.delete("t1")
    for changes in (
        driver.group.initialized(driver.asked[0]),
        driver.group.initialization_refused(driver.asked[0]),
    ):
        assert changes == Changes()


def test_a_late_refusal_keeps_partitions_initialised_since() -> None:
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "silent"
    driver.heartbeat("M1", 0, ["t1"])
    driver.share_coordinator = "succeeds"
    driver.initialize({"id-t1": [0, 1]})
    driver.apply(driver.group.initialization_refused(driver.asked[0]))
    assert driver.group.topics == {"id-t1": GroupTopic(initialized=some(0, 1), first_partitions=2)}


def test_a_group_without_members_initialises_fetched_partitions() -> None:
    driver = Driver(topics={"t1": 2})
    driver.initialize({"id-t1": [0]})
    assert driver.asked == [(Initialization("id-t1", some(0), -1, 2),)]
    assert driver.group.exists
    driver.initialize({"id-t1": [0]})
    assert len(driver.asked) == 1
    driver.initialize({"id-t1": [0, 1]})
    assert driver.asked[-1] == (Initialization("id-t1", some(1), -1, 3),)
    answer = driver.heartbeat("M1", 0, ["t1"])
    assert (answer.member_epoch, answer.assignment) == (4, {"id-t1": some(0, 1)})


@pytest.mark.parametrize("by", ["heartbeat", "fetch"])
def test_initialising_a_topic_ends_its_deletion(by: str) -> None:
    driver = Driver(topics={"t1": 1})
    driver.apply(Changes(epochs=driver.group.epochs, deleting=some_text("id-t1", "id-other")))
    if by == "heartbeat":
        driver.heartbeat("M1", 0, ["t1"])
    else:
        driver.initialize({"id-t1": [0]})
    assert driver.group.deleting == some_text("id-other")


def test_a_restart_resets_the_retry_time_of_initialisations() -> None:
    driver = Driver(topics={"t1": 1})
    driver.share_coordinator = "silent"
    driver.heartbeat("M1", 0, ["t1"])
    driver.turn(20_000)
    driver.restart()
    driver.turn(29_999)
    driver.heartbeat("M1", 2)
    assert len(driver.asked) == 1
    driver.turn(1)
    driver.heartbeat("M1", 2)
    assert len(driver.asked) == 2


def test_a_member_that_drops_a_topic_gives_it_up_at_once() -> None:
    driver = Driver(topics={"t1": 1, "t2": 1}, assignment_interval_ms=5000)
    driver.heartbeat("M1", 0, ["t1", "t2"])
    driver.turn(5000)
    assert driver.heartbeat("M1", 2).assignment == {"id-t1": some(0), "id-t2": some(0)}
    answer = driver.heartbeat("M1", 3, ["t2"])
    assert (answer.member_epoch, answer.assignment) == (3, {"id-t2": some(0)}), "the next target has to wait"
    back = driver.heartbeat("M1", 3, ["t1", "t2"])
    assert (back.member_epoch, back.assignment) == (3, {"id-t1": some(0), "id-t2": some(0)})
    driver.turn(5000)
    assert driver.heartbeat("M1", 3).member_epoch == 5


def test_a_member_gets_no_dropped_topic_from_an_earlier_target() -> None:
    driver = Driver(topics={"t1": 2, "t2": 2}, assignment_interval_ms=5000)
    driver.initialize({"id-t1": [0, 1], "id-t2": [0, 1]})
    driver.heartbeat("A", 0, ["t1", "t2"])
    driver.turn(5000)
    driver.heartbeat("B", 0, ["t1"])
    assert set(driver.group.target["A"]) == {"id-t1", "id-t2"}
    answer = driver.heartbeat("A", 3, ["t2"])
    assert answer.member_epoch == 4
    assert answer.assignment == {"id-t2": driver.group.target["A"]["id-t2"]}


@pytest.mark.parametrize("others", [[], ["t1", "t2"]])
def test_dropping_a_topic_raises_the_epoch_once(others: list[str]) -> None:
    driver = Driver(topics={"t1": 2, "t2": 2})
    driver.heartbeat("A", 0, ["t1", "t2"])
    if others:
        driver.heartbeat("B", 0, others)
    epoch = driver.heartbeat("A", 0, ["t1", "t2"]).member_epoch
    assert driver.heartbeat("A", epoch, ["t2"]).member_epoch == epoch + 1
    for _ in range(3):
        assert driver.heartbeat("A", epoch + 1).member_epoch == epoch + 1


def test_the_epoch_rises_once_when_the_last_subscriber_of_a_topic_leaves() -> None:
    driver = Driver(topics={"t1": 2, "t2": 2})
    driver.heartbeat("A", 0, ["t1"])
    driver.heartbeat("B", 0, ["t2"])
    epoch = driver.heartbeat("A", 0, ["t1"]).member_epoch
    driver.leave("B")
    for _ in range(3):
        assert driver.heartbeat("A", driver.group.members["A"].member_epoch).member_epoch == epoch + 1


def test_an_empty_subscription_has_an_empty_assignment() -> None:
    driver = Driver(topics={"t1": 1})
    driver.heartbeat("M1", 0, ["t1"])
    driver.heartbeat("M1", 2)
    answer = driver.heartbeat("M1", 3, [])
    assert (answer.member_epoch, answer.assignment) == (4, {})
    assert (driver.group.target, driver.saved[-1].target) == ({}, {"M1": {}})
    assert driver.heartbeat("M1", 4).assignment is None


def test_each_member_is_assigned_only_its_subscribed_topics() -> None:
    driver = Driver(topics={"t1": 3, "t2": 2})
    driver.heartbeat("A", 0, ["t1"])
    driver.heartbeat("B", 0, ["t1", "t2"])
    for _ in range(2):
        for member in list(driver.group.members.values()):
            driver.heartbeat(member.member_id, member.member_epoch)
    assert driver.assigned("A", "B", topic="t2") == [some(), some(0, 1)]
    of_a, of_b = driver.assigned("A", "B", topic="t1")
    assert of_a | of_b == some(0, 1, 2)
    assert abs(len(of_a) - len(of_b)) == 1
    driver.leave("A")
    driver.heartbeat("B", driver.group.members["B"].member_epoch)
    assert driver.assigned("B", topic="t1") == [some(0, 1, 2)]


def test_a_late_request_initialises_nothing_that_was_begun_anew_or_deleted() -> None:
    driver = Driver(topics={"t1": 2})
    driver.share_coordinator = "silent"
    driver.heartbeat("m1", 0, ["t1"])
    (late,) = driver.asked
    assert driver.group.still_asked(late) == list(late)
    driver.leave("m1")
    altered = alter(driver.group, {"id-t1": {0: 7}}, driver.topics)
    driver.group.apply(altered, driver.now_ms)
    assert [each.partitions for each in driver.group.still_asked(late)] == [frozenset({1})]
    driver.group.apply(delete_group(driver.group, driver.topics), driver.now_ms)
    assert driver.group.still_asked(late) == []

"""Members of a group, heartbeat by heartbeat: scenarios HB, GI-037."""

import msgspec
import pytest
from sharequeue_coordinator.share_group.changes import Changes, Epochs, GroupSettings, ShareGroupState
from sharequeue_coordinator.share_group.initialization import GroupTopic

from sharequeue.protocol.configs import share_group_config
from sharequeue.protocol.errors import FencedMemberEpoch, GroupIdNotFound, GroupMaxSizeReached, UnknownMemberId
from sharequeue.protocol.messages.groups import ShareGroupHeartbeatRequest
from sharequeue.protocol.types import MAX_GROUP_NAMES, MAX_GROUP_PARTITIONS, MAX_PARTITIONS_NAMED
from sharequeue_http.forms.errors import InvalidRequest
from tests.core.share_group_driver import Driver


def some(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def joined(driver: Driver, *member_ids: str, topics: tuple[str, ...] = ("foo",)) -> None:
    """Members join, everything is initialised, and each has seen the last assignment."""
    for member_id in member_ids:
        driver.heartbeat(member_id, 0, topics)
    settle(driver)


def settle(driver: Driver) -> int:
    """Heartbeats of all until nothing changes any more. Returns: the group epoch."""
    for _ in range(5):
        saved = len(driver.saved)
        for member in list(driver.group.members.values()):
            driver.heartbeat(member.member_id, member.member_epoch)
        if len(driver.saved) == saved:
            return driver.group.epochs.group_epoch
    raise AssertionError("heartbeats never come to rest")


def test_hb_001_a_member_of_a_missing_topic_is_assigned_nothing() -> None:
    driver = Driver()
    answer = driver.heartbeat("M1", 0, ["foo"])
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("M1", 2, 5000)
    assert answer.assignment == {}
    assert driver.asked == []


def test_hb_005_a_member_that_left_can_join_again() -> None:
    driver = Driver(topics={"foo": 2})
    joined(driver, "M1")
    epoch = settle(driver)
    left = driver.heartbeat("M1", -1)
    assert (left.member_id, left.member_epoch, left.heartbeat_interval_ms, left.assignment) == ("M1", -1, 0, None)
    again = driver.heartbeat("M1", 0, ["foo"])
    assert again.member_epoch == epoch + 2
    assert again.assignment == {"id-foo": some(0, 1)}


def test_hb_007_two_members_share_a_topic() -> None:
    driver = Driver()
    joined(driver, "M1", "M2")
    driver.create("foo", 3)
    settle(driver)
    first, second = driver.assigned("M1", "M2")
    assert first | second == some(0, 1, 2)
    assert not first & second
    members = driver.group.members
    assert members["M1"].member_epoch == members["M2"].member_epoch == driver.group.epochs.group_epoch


def test_hb_009_a_full_group_refuses_new_members() -> None:
    driver = Driver(max_size=1)
    driver.heartbeat("M1", 0, ["foo"])
    with pytest.raises(GroupMaxSizeReached) as raised:
        driver.heartbeat("M2", 0, ["foo"])
    assert raised.value.limit == 1
    assert driver.heartbeat("M1", 2).member_epoch == 2
    assert driver.heartbeat("M1", 0, ["foo"]).member_epoch == 2


def test_hb_011_a_full_group_refuses_unknown_members_as_full() -> None:
    driver = Driver(max_size=1)
    driver.heartbeat("M1", 0, ["foo"])
    with pytest.raises(GroupMaxSizeReached):
        driver.heartbeat("M2", 5)


def test_hb_013_an_unknown_member_is_refused() -> None:
    driver = Driver()
    driver.heartbeat("M1", 0, ["foo"])
    with pytest.raises(UnknownMemberId):
        driver.heartbeat("M2", 3)
    with pytest.raises(UnknownMemberId):
        driver.heartbeat("M2", -1)
    with pytest.raises(UnknownMemberId):
        driver.leave("M2")


def test_hb_015_a_member_is_removed_at_the_session_timeout() -> None:
    driver = Driver(session_timeout_ms=501, heartbeat_interval_ms=500)
    driver.heartbeat("M1", 0, ["foo"])
    driver.turn(500)
    assert "M1" in driver.group.members
    driver.turn(1)
    assert (driver.group.members, driver.group.state) == ({}, ShareGroupState.EMPTY)
    assert driver.group.epochs.group_epoch == 3
    assert driver.group.next_deadline_ms() is None
    with pytest.raises(UnknownMemberId):
        driver.heartbeat("M1", 2)


def test_every_heartbeat_prolongs_the_session() -> None:
    driver = Driver(session_timeout_ms=501)
    driver.heartbeat("M1", 0, ["foo"])
    for _ in range(5):
        driver.turn(400)
        driver.heartbeat("M1", 2)
    assert driver.group.next_deadline_ms() == driver.now_ms + 501


def test_a_refused_heartbeat_does_not_prolong_the_session() -> None:
    driver = Driver(session_timeout_ms=501)
    driver.heartbeat("M1", 0, ["foo"])
    driver.turn(400)
    with pytest.raises(FencedMemberEpoch):
        driver.heartbeat("M1", 7)
    driver.turn(101)
    assert driver.group.members == {}


@pytest.mark.parametrize("member_id", ["", "m" * 37])
def test_hb_017_a_member_id_has_1_to_36_characters(member_id: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="member_id"):
        msgspec.convert({"member_id": member_id}, ShareGroupHeartbeatRequest)
    assert Driver().heartbeat("m" * 36, 0, ["foo"]).member_epoch == 2


@pytest.mark.parametrize("wrong", [{"member_epoch": -2}, {"rack_id": ""}])
def test_epochs_below_minus_1_and_empty_racks_are_invalid(wrong: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError, match=min(wrong)):
        msgspec.convert({"member_id": "M1", **wrong}, ShareGroupHeartbeatRequest)


def test_only_the_present_and_the_previous_epoch_are_accepted() -> None:
    driver = Driver(topics={"foo": 1})
    joined(driver, "M1")
    epoch = settle(driver)
    driver.heartbeat("M2", 0, ["bar"])
    driver.heartbeat("M1", epoch)
    for fenced in (1, epoch - 1, epoch + 2):
        with pytest.raises(FencedMemberEpoch):
            driver.heartbeat("M1", fenced)
    assert driver.heartbeat("M1", epoch + 1).assignment is None


def test_a_member_that_repeats_its_previous_epoch_gets_its_assignment() -> None:
    """The answer with the new assignment was lost: leaving the assignment out would say that it is unchanged."""
    driver = Driver(topics={"foo": 2})
    driver.heartbeat("M1", 0, ["foo"])
    lost = driver.heartbeat("M1", 2)
    again = driver.heartbeat("M1", 2)
    assert again == lost
    assert again.assignment == {"id-foo": some(0, 1)}


def test_joining_again_without_leaving_changes_nothing() -> None:
    driver = Driver(topics={"foo": 2})
    joined(driver, "M1")
    epoch = settle(driver)
    saved = len(driver.saved)
    answer = driver.heartbeat("M1", 0, ["foo"])
    assert (answer.member_epoch, answer.assignment) == (epoch, {"id-foo": some(0, 1)})
    assert len(driver.saved) == saved


def test_hb_023_a_full_request_gets_the_assignment() -> None:
    driver = Driver(topics={"a": 1, "b": 1})
    joined(driver, "M1", topics=("a", "b"))
    epoch = settle(driver)
    answer = driver.heartbeat("M1", epoch, ["a", "b"])
    assert (answer.member_epoch, answer.assignment) == (epoch, {"id-a": some(0), "id-b": some(0)})


def test_hb_025_assignments_wait_for_the_assignment_interval() -> None:
    driver = Driver(topics={"foo": 6}, assignment_interval_ms=5000)
    driver.initialize({"id-foo": range(6)})
    before = driver.group.epochs.group_epoch
    first = driver.heartbeat("M1", 0, ["foo"])
    assert (first.member_epoch, first.assignment) == (before + 1, {"id-foo": some(*range(6))})
    driver.turn(4995)
    second = driver.heartbeat("M2", 0, ["foo"])
    assert (second.member_epoch, second.assignment) == (before + 1, {})
    assert driver.group.epochs.group_epoch == before + 2
    assert driver.heartbeat("M1", before + 1).assignment is None
    assert driver.group.epochs.group_epoch == before + 2, "waiting does not raise the epoch again"
    driver.turn(10)
    third = driver.heartbeat("M2", before + 1)
    assert third.member_epoch == before + 2
    assert third.assignment is not None
    assert len(third.assignment["id-foo"]) == 3
    assert driver.heartbeat("M1", before + 1).member_epoch == before + 2
    first_has, second_has = driver.assigned("M1", "M2")
    assert first_has | second_has == some(*range(6))
    assert not first_has & second_has


def test_a_clock_that_is_set_back_does_not_stop_assignments() -> None:
    driver = Driver(topics={"foo": 2}, assignment_interval_ms=5000)
    driver.heartbeat("M1", 0, ["foo"])
    driver.now_ms -= 3_600_000
    assert driver.heartbeat("M1", 2).assignment == {"id-foo": some(0, 1)}


def test_hb_027_a_member_gets_a_leavers_partitions_at_its_next_heartbeat() -> None:
    driver = Driver(topics={"foo": 2})
    joined(driver, "M1", "M2")
    epoch = settle(driver)
    driver.leave("M2")
    assert driver.group.epochs.group_epoch == epoch + 1
    assert set(driver.group.members) == set(driver.group.target) == {"M1"}
    assert driver.saved[-1].members == {"M2": None}
    assert driver.saved[-1].target == {"M2": {}}
    answer = driver.heartbeat("M1", epoch)
    assert (answer.member_epoch, answer.assignment) == (epoch + 1, {"id-foo": some(0, 1)})


def test_hb_029_settings_out_of_bounds_are_clamped() -> None:
    stored = {"share.session.timeout.ms": "70000", "share.heartbeat.interval.ms": "1"}
    config = share_group_config("g", stored, kafka_defaults=True)
    driver = Driver()
    driver.settings = GroupSettings(
        session_timeout_ms=config.session_timeout_ms, heartbeat_interval_ms=config.heartbeat_interval_ms
    )
    assert driver.heartbeat("M1", 0, ["foo"]).heartbeat_interval_ms == 5000
    assert driver.group.next_deadline_ms() == driver.now_ms + 60_000


def test_hb_031_a_member_of_an_emptied_group_is_assigned_at_once() -> None:
    driver = Driver(topics={"foo": 2}, assignment_interval_ms=5000)
    driver.initialize({"id-foo": range(2)})
    driver.heartbeat("M1", 0, ["foo"])
    driver.leave("M1")
    epochs = driver.group.epochs
    assert (epochs.assignment_epoch, epochs.assigned_at_ms) == (epochs.group_epoch, 0)
    answer = driver.heartbeat("M2", 0, ["foo"])
    assert (answer.member_epoch, answer.assignment) == (epochs.group_epoch + 1, {"id-foo": some(0, 1)})


def test_another_rack_or_client_is_persisted_and_raises_no_epoch() -> None:
    driver = Driver()
    driver.heartbeat("M1", 0, ["foo"], rack_id="r1", client_id="c", client_host="h")
    epochs = driver.group.epochs
    assert driver.heartbeat("M1", 2, rack_id="r2", client_id="c", client_host="other").assignment is None
    member = driver.group.members["M1"]
    assert (member.rack_id, member.client_id, member.client_host) == ("r2", "c", "other")
    assert driver.saved[-1].members == {"M1": member}
    assert driver.saved[-1].epochs is None
    driver.heartbeat("M1", 2, client_id="c", client_host="other")
    assert driver.group.members["M1"].rack_id == "r2", "a rack that is left out stays"
    assert driver.group.epochs == epochs


def test_a_group_made_again_continues_its_epochs() -> None:
    driver = Driver()
    driver.apply(Changes(epochs=Epochs(group_epoch=7, assignment_epoch=7), deleted=True))
    driver.restart()
    with pytest.raises(GroupIdNotFound):
        driver.leave("M1")
    assert driver.heartbeat("M1", 0, ["foo"]).member_epoch == 8
    assert driver.group.exists


def test_members_survive_a_restart() -> None:
    driver = Driver(topics={"foo": 4})
    joined(driver, "M1", "M2")
    epoch = settle(driver)
    before = driver.assigned("M1", "M2")
    driver.turn(44_000)
    driver.restart()
    assert driver.group.next_deadline_ms() == driver.now_ms + 45_000
    assert driver.heartbeat("M1", epoch).assignment is None
    assert driver.assigned("M1", "M2") == before
    assert settle(driver) == epoch
    assert driver.group.topics == {"id-foo": GroupTopic(initialized=some(0, 1, 2, 3), first_partitions=4)}


def test_the_partitions_of_one_member_are_limited() -> None:
    driver = Driver(topics={"wide-1": 10_000, "wide-2": 10_000, "one": 1})
    driver.heartbeat("M1", 0, ["wide-1"])
    with pytest.raises(InvalidRequest) as raised:
        driver.heartbeat("M1", 0, ["wide-1", "wide-2", "one"])
    assert (raised.value.status, raised.value.limit) == (422, MAX_PARTITIONS_NAMED)
    assert driver.group.members["M1"].subscribed_topic_names == {"wide-1"}
    driver.heartbeat("M1", 0, ["wide-1", "wide-2"])


def test_the_partitions_of_all_members_are_limited() -> None:
    driver = Driver(topics={f"wide-{number}": 10_000 for number in range(6)})
    for number in range(5):
        driver.heartbeat(f"M{number}", 0, [f"wide-{number}"])
    with pytest.raises(GroupMaxSizeReached) as raised:
        driver.heartbeat("M5", 0, ["wide-5"])
    assert raised.value.limit == MAX_GROUP_PARTITIONS
    assert "M5" not in driver.group.members
    driver.heartbeat("M5", 0, ["wide-4"])
    driver.heartbeat("M0", 0, ["wide-5"])  # it was the only subscriber of the first


def test_the_topic_names_of_all_members_are_limited() -> None:
    driver = Driver()
    for number in range(MAX_GROUP_NAMES // 1000):
        driver.heartbeat(f"M{number}", 0, [f"topic-{place}" for place in range(1000)])
    with pytest.raises(GroupMaxSizeReached) as raised:
        driver.heartbeat("last", 0, ["topic-0"])
    assert raised.value.limit == MAX_GROUP_NAMES
    driver.heartbeat("M0", 0, ["topic-0"])
    driver.heartbeat("last", 0, ["topic-0"])


def test_a_group_whose_topics_grew_past_the_limit_keeps_working() -> None:
    driver = Driver(topics={"wide": 10_000, "one": 1})
    epoch = driver.heartbeat("M1", 0, ["wide", "one"]).member_epoch
    driver.create("wide", 30_000)
    epoch = driver.heartbeat("M1", epoch).member_epoch
    driver.heartbeat("M1", epoch, ["wide"])

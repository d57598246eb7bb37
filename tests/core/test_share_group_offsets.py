"""Altering and deleting a group's offsets, and deleting the group: scenarios GI."""

import pytest
from sharequeue_coordinator.share_group import offsets as share_group_offsets
from sharequeue_coordinator.share_group.changes import Changes
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization

from sharequeue.protocol.errors import GroupIdNotFound, NonEmptyGroup, UnknownTopicOrPartition
from tests.core.share_group_driver import Driver


def some(*numbers: int) -> frozenset[int]:
    return frozenset(numbers)


def texts(*these: str) -> frozenset[str]:
    return frozenset(these)


def alter(driver: Driver, asked: dict[str, dict[int, int]]) -> None:
    driver.apply(share_group_offsets.alter(driver.group, asked, driver.topics))


def test_gi_011_altering_offsets_initialises_the_partitions() -> None:
    driver = Driver(topics={"t1": 2})
    driver.apply(Changes(epochs=driver.group.epochs._replace(group_epoch=5)))
    alter(driver, {"id-t1": {0: 10}})
    assert driver.group.epochs.group_epoch == 6
    assert driver.asked == [(Initialization("id-t1", some(0), 10, 6),)]
    assert driver.group.topics == {"id-t1": GroupTopic(initialized=some(0), first_partitions=2)}


def test_gi_013_altering_a_missing_topic_still_creates_the_group() -> None:
    driver = Driver()
    alter(driver, {"id-t1": {0: 10}})
    assert (driver.group.exists, driver.group.epochs.group_epoch, driver.asked) == (True, 2, [])


def test_gi_015_a_missing_partition_does_not_stop_the_others() -> None:
    driver = Driver(topics={"t1": 2})
    alter(driver, {"id-t1": {0: 5, 7: 5, -1: 5}})
    assert driver.asked == [(Initialization("id-t1", some(0), 5, 2),)]


def test_partitions_of_one_topic_may_be_altered_to_different_offsets() -> None:
    driver = Driver(topics={"t1": 4})
    driver.initialize({"id-t1": [0, 1]})
    driver.share_coordinator = "silent"
    alter(driver, {"id-t1": {0: 5, 1: 6, 2: 5, 3: 6}})
    assert driver.asked[-1] == (
        Initialization("id-t1", some(0, 2), 5, 3),
        Initialization("id-t1", some(1, 3), 6, 3),
    )
    assert driver.group.topics == {"id-t1": GroupTopic({2: 0, 3: 0}, some(0, 1), 4)}, (
        "initialised partitions stay initialised"
    )
    driver.apply(driver.group.initialized(driver.asked[-1]))
    assert driver.group.topics == {"id-t1": GroupTopic(initialized=some(0, 1, 2, 3), first_partitions=4)}


def test_what_follows_an_unanswered_alteration_fences_it() -> None:
    """It may still arrive, and would skip what was delivered since."""
    driver = Driver(topics={"t1": 1})
    driver.share_coordinator = "silent"
    alter(driver, {"id-t1": {0: 10}})
    driver.turn(30_000)
    driver.heartbeat("M1", 0, ["t1"])
    assert driver.asked == [(Initialization("id-t1", some(0), 10, 2),), (Initialization("id-t1", some(0), -1, 3),)]


def test_altering_a_topic_ends_its_deletion() -> None:
    driver = Driver(topics={"t1": 1})
    driver.apply(Changes(epochs=driver.group.epochs, deleting=texts("id-t1")))
    alter(driver, {"id-t1": {0: 10}})
    assert driver.group.deleting == texts()


def test_gi_021_deleting_offsets_forgets_the_initialised_topics() -> None:
    driver = Driver(topics={"topic1": 2, "topic2": 1})
    driver.initialize({"id-topic1": [0, 1]})
    driver.share_coordinator = "silent"
    driver.initialize({"id-topic2": [0]})
    with pytest.raises(UnknownTopicOrPartition, match=r"There is no offset information to delete\."):
        share_group_offsets.delete_offsets(driver.group, driver.topics["topic2"])
    deletion = share_group_offsets.delete_offsets(driver.group, driver.topics["topic1"])
    assert deletion.partitions == {"id-topic1": some(0, 1)}
    driver.apply(deletion)
    assert driver.group.deleting == texts("id-topic1")
    assert driver.group.topics == {"id-topic2": GroupTopic({0: 3}, first_partitions=1)}
    driver.apply(share_group_offsets.deleted(driver.group, ["id-topic1"]))
    assert driver.group.deleting == texts()


def test_gi_023_a_repeated_deletion_names_all_partitions() -> None:
    driver = Driver(topics={"topic1": 3})
    driver.initialize({"id-topic1": [0, 1]})
    driver.apply(share_group_offsets.delete_offsets(driver.group, driver.topics["topic1"]))
    driver.restart()
    again = share_group_offsets.delete_offsets(driver.group, driver.topics["topic1"])
    assert again.partitions == {"id-topic1": some(0, 1, 2)}
    assert not again.durable
    assert driver.group.deleting == texts("id-topic1")


def test_partitions_still_being_initialised_are_not_deleted() -> None:
    driver = Driver(topics={"t1": 2})
    driver.initialize({"id-t1": [0]})
    driver.share_coordinator = "silent"
    driver.initialize({"id-t1": [1]})
    deletion = share_group_offsets.delete_offsets(driver.group, driver.topics["t1"])
    assert deletion.partitions == {"id-t1": some(0)}
    assert deletion.topics == {"id-t1": GroupTopic({1: 3})}


def test_gi_025_deleting_a_group_forgets_everything_but_its_epochs() -> None:
    driver = Driver(topics={"t1": 2, "t2": 1, "t3": 3, "gone": 1})
    driver.initialize({"id-t1": [0, 1], "id-t3": [0], "id-gone": [0]})
    driver.apply(share_group_offsets.delete_offsets(driver.group, driver.topics["t3"]))
    driver.share_coordinator = "silent"
    driver.initialize({"id-t2": [0]})
    del driver.topics["gone"]
    deletion = share_group_offsets.delete_group(driver.group, driver.topics)
    assert deletion.partitions == {"id-t1": some(0, 1), "id-t2": some(0), "id-t3": some(0, 1, 2)}
    driver.apply(deletion)
    assert (driver.group.topics, driver.group.deleting) == ({}, texts("id-t1", "id-t2", "id-t3"))
    assert share_group_offsets.delete_group(driver.group, driver.topics).partitions.keys() == driver.group.deleting
    epochs = driver.group.epochs
    driver.apply(share_group_offsets.group_deleted(driver.group))
    assert (driver.group.exists, driver.group.deleting) == (False, texts())
    with pytest.raises(GroupIdNotFound):
        share_group_offsets.delete_group(driver.group, driver.topics)
    assert driver.heartbeat("M1", 0, ["t1"]).member_epoch == epochs.group_epoch + 1


def test_gi_027_a_group_with_members_cannot_be_deleted_or_altered() -> None:
    driver = Driver(topics={"t1": 1})
    driver.heartbeat("M1", 0, ["t1"])
    group, topics = driver.group, driver.topics
    with pytest.raises(NonEmptyGroup):
        share_group_offsets.delete_group(group, topics)
    with pytest.raises(NonEmptyGroup):
        share_group_offsets.delete_offsets(group, topics["t1"])
    with pytest.raises(NonEmptyGroup):
        share_group_offsets.alter(group, {"id-t1": {0: 5}}, topics)
    with pytest.raises(NonEmptyGroup):
        share_group_offsets.group_deleted(group)

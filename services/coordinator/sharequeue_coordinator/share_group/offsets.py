"""Altering and deleting the offsets of a group without members, and deleting the group. Pure. Source: KIP-932.

Each has two stages: the intent is persisted, the share coordinator is asked, the outcome is persisted. A group has one
request to the share coordinator at a time, here as in every initialisation.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sharequeue.protocol.errors import NonEmptyGroup, UnknownTopicOrPartition
from sharequeue.protocol.types import UNINITIALIZED_START_OFFSET
from sharequeue_coordinator.share_group import initialization
from sharequeue_coordinator.share_group.changes import Changes, ExistingTopic, TopicsByName, partition_counts
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization
from sharequeue_coordinator.share_group.machine import ShareGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion(Changes):
    """partitions: those whose state the share coordinator is to delete, by topic id."""

    partitions: Mapping[str, frozenset[int]]


def alter(group: ShareGroup, asked: Mapping[str, Mapping[int, int]], topics: TopicsByName) -> Changes:
    """Set the start offsets of share-partitions. The group is created if it does not exist.

    The new group epoch is the state epoch, so it fences gateways that hold the old state. As in Kafka it rises even if
    none of the partitions exists. The initializations are to be sent. After success call `ShareGroup.initialized`.
    After a failure call nothing: a later heartbeat begins again.
    Args:
        asked: the new start offset by topic id and partition. Those that do not exist are passed over.
    Raises: NonEmptyGroup.
    """
    _check_empty(group)
    counts = partition_counts(topics.values())
    by_offset: dict[tuple[str, int], set[int]] = {}
    for topic_id, partitions in asked.items():
        for partition, offset in partitions.items():
            if 0 <= partition < counts.get(topic_id, 0):
                by_offset.setdefault((topic_id, offset), set()).add(partition)
    epochs = group.epochs._replace(group_epoch=group.epochs.group_epoch + 1)
    initializations = tuple(
        Initialization(id_, frozenset(some), offset, epochs.group_epoch) for (id_, offset), some in by_offset.items()
    )
    new = [
        Initialization(id_, some - group.topics.get(id_, GroupTopic()).initialized, UNINITIALIZED_START_OFFSET, 0)
        for id_, some in initialization.by_topic(initializations).items()
    ]
    begun = initialization.begin(group.topics, new, counts)
    return Changes(
        epochs=epochs,
        topics=begun,
        deleting=group.deleting - begun.keys() if group.deleting & begun.keys() else None,
        initializations=initializations,
    )


def delete_offsets(group: ShareGroup, topic: ExistingTopic) -> Deletion:
    """Begin to delete the offsets of a topic; `deleted` ends it. A deletion that failed before begins again.

    Raises: GroupIdNotFound, NonEmptyGroup. UnknownTopicOrPartition: it has none.
    """
    group.check_exists()
    _check_empty(group)
    topic_id = topic.topic_id
    known = group.topics.get(topic_id, GroupTopic())
    if known.initialized:
        left = GroupTopic(known.initializing) if known.initializing else None
        return Deletion(
            partitions={topic_id: known.initialized}, topics={topic_id: left}, deleting=group.deleting | {topic_id}
        )
    if topic_id in group.deleting:
        return Deletion(partitions={topic_id: frozenset(range(topic.partitions))})
    raise UnknownTopicOrPartition("There is no offset information to delete.")


def delete_group(group: ShareGroup, topics: TopicsByName) -> Deletion:
    """Begin to delete a group with its state; `group_deleted` ends it. A deletion that failed before begins again.

    Raises: GroupIdNotFound, NonEmptyGroup.
    """
    group.check_exists()
    _check_empty(group)
    there = {topic.topic_id: topic.partitions for topic in topics.values()}
    partitions = {topic_id: frozenset(range(there[topic_id])) for topic_id in group.deleting if topic_id in there}
    for topic_id, known in group.topics.items():
        if topic_id in there and (known.initialized or known.initializing):
            begun = known.initialized.union(known.initializing)
            partitions[topic_id] = partitions.get(topic_id, frozenset()) | begun
    deleting = frozenset(partitions)
    return Deletion(
        partitions=partitions,
        topics=dict.fromkeys(group.topics),
        deleting=None if deleting == group.deleting else deleting,
    )


def deleted(group: ShareGroup, topic_ids: Collection[str]) -> Changes:
    """The share coordinator has deleted the state of these topics."""
    gone = group.deleting.intersection(topic_ids)
    return Changes(deleting=group.deleting - gone) if gone else Changes()


def group_deleted(group: ShareGroup, unused_ms: int | None = None) -> Changes:
    """The share coordinator has deleted all state of the group. Its epochs stay;
    a new group of its name continues them.

    Raises: NonEmptyGroup: a member has joined since.
    """
    _check_empty(group)
    return Changes(topics=dict.fromkeys(group.topics), deleting=frozenset(), deleted=True, settings_unused_ms=unused_ms)


def _check_empty(group: ShareGroup) -> None:
    if group.members:
        raise NonEmptyGroup(f"group {group.group_id!r} has {len(group.members)} members: they must leave first")

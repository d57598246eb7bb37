"""The topics that the members of a group subscribe to, as they are in the cluster and in the group. Pure.
Source: KIP-932."""

import hashlib
from collections.abc import Collection, Iterable, Mapping

from sharequeue_coordinator.share_group import initialization
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import ExistingTopic, TopicsByName
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization

View = tuple[tuple[str, ExistingTopic | None, frozenset[int]], ...]
"""For each name, in their order: the topic if it exists, and its partitions that the group has initialised.

Comparing two views of the same objects costs a step per topic, not per partition."""

NONE: frozenset[int] = frozenset()


def look(names: Collection[str], topics: TopicsByName, known: Mapping[str, GroupTopic]) -> View:
    """The view of these topics. `known`: the group's share-partitions by topic id."""
    return tuple(
        (name, topic, known[topic.topic_id].initialized if topic and topic.topic_id in known else NONE)
        for name in sorted(names)
        for topic in (topics.get(name),)
    )


def partition_count(names: Iterable[str], topics: TopicsByName) -> int:
    return sum(topics[name].partitions for name in names if name in topics)


def metadata_hash(view: View) -> int:
    """A hash of the ids and partition counts of the topics that exist: 0 if none does, else an int64."""
    lines = [f"{name}\0{topic.topic_id}\0{topic.partitions}\n" for name, topic, _ in view if topic is not None]
    if not lines:
        return 0
    digest = hashlib.blake2b("".join(lines).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def all_initialized(view: View) -> bool:
    return all(topic is None or len(initialized) >= topic.partitions for _, topic, initialized in view)


def all_assigned(view: View, assigned: Mapping[str, Collection[int]]) -> bool:
    """Return whether the partitions that members have are exactly the initialised ones, topic by topic."""
    return all(topic is None or assigned.get(topic.topic_id, NONE) == initialized for _, topic, initialized in view)


def missing(
    view: View,
    known: Mapping[str, GroupTopic],
    asked_at: Mapping[str, Mapping[int, int]],
    retry_interval_ms: int,
    now_ms: int,
    *,
    state_epoch: int,
) -> tuple[Initialization, ...]:
    """The partitions to initialise. One that was asked for less than the retry interval ago may still be answered.

    Args:
        asked_at: by topic id and partition, when the share coordinator was asked to initialise it.
        state_epoch: of those that are not being initialised already.
    """
    asked = {}
    for _, topic, _ in view:
        if topic is not None:
            recently = {
                partition
                for partition, at in asked_at.get(topic.topic_id, {}).items()
                if 0 <= now_ms - at < retry_interval_ms
            }
            asked[topic.topic_id] = frozenset(range(topic.partitions)) - recently
    return tuple(initialization.missing(known, asked, state_epoch))


def of_topics(assignment: Assignment, names: Iterable[str], topics: TopicsByName) -> Assignment:
    """The part of an assignment that belongs to these topics."""
    wanted = {topics[name].topic_id for name in names if name in topics}
    return {topic_id: partitions for topic_id, partitions in assignment.items() if topic_id in wanted}

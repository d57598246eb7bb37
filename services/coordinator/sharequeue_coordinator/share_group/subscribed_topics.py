"""What there is of the topics that a share group's members want. Pure. Source: KIP-932."""

import hashlib
from collections.abc import Collection, Iterable, Mapping

from sharequeue_coordinator.share_group import initialization as share_group
from sharequeue_coordinator.share_group.assignor import Assignment
from sharequeue_coordinator.share_group.changes import Topic
from sharequeue_coordinator.share_group.initialization import GroupTopic, Initialization

Topics = Mapping[str, Topic]
"""Every topic of the cluster by name; those that are being deleted are not there."""

View = tuple[tuple[str, Topic | None, frozenset[int]], ...]
"""Name, topic if there is one, and the partitions of it that are initialised for the group; by name.

Two views of the same objects compare in the time of the topics, not of the partitions."""

NONE: frozenset[int] = frozenset()


def look(names: Collection[str], topics: Topics, known: Mapping[str, GroupTopic]) -> View:
    return tuple(
        (name, topic, known[topic.topic_id].initialized if topic and topic.topic_id in known else NONE)
        for name in sorted(names)
        for topic in (topics.get(name),)
    )


def partition_count(names: Iterable[str], topics: Topics) -> int:
    """How many partitions there are of the topics of these names."""
    return sum(topics[name].partitions for name in names if name in topics)


def metadata_hash(view: View) -> int:
    """Of the ids and partition counts of the topics that are there: 0 without any, else an int64."""
    lines = [f"{name}\0{topic.topic_id}\0{topic.partitions}\n" for name, topic, _ in view if topic is not None]
    if not lines:
        return 0
    digest = hashlib.blake2b("".join(lines).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def all_initialized(view: View) -> bool:
    return all(topic is None or len(initialized) >= topic.partitions for _, topic, initialized in view)


def all_assigned(view: View, assigned: Mapping[str, Collection[int]]) -> bool:
    """Whether of each topic just those partitions are assigned to anybody that may be: the initialised ones."""
    return all(topic is None or assigned.get(topic.topic_id, NONE) == initialized for _, topic, initialized in view)


def missing(
    view: View,
    known: Mapping[str, GroupTopic],
    asked_at: Mapping[str, Mapping[int, int]],
    retry_interval_ms: int,
    now_ms: int,
) -> tuple[Initialization, ...]:
    """Partitions to initialise. Those asked for less than the retry interval ago may still be answered.

    Args:
        asked_at: when the partitions that are being initialised were asked for, by topic id.
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
    return tuple(share_group.missing(known, asked))


def of_topics(assignment: Assignment, names: Iterable[str], topics: Topics) -> Assignment:
    """The part of an assignment that is of these topics."""
    wanted = {topics[name].topic_id for name in names if name in topics}
    return {topic_id: partitions for topic_id, partitions in assignment.items() if topic_id in wanted}

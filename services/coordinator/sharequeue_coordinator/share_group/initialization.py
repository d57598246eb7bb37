"""Decides which share-partitions of a group must be initialised, and how. Pure. Source: KIP-932, initialising
share-partitions.

    not initialised ─begin─▶ initializing ─succeed─▶ initialized
                                  └─fail──▶ not initialised

Both states are persisted. The share coordinator is asked after `begin`. Where the group begins in a topic is decided
once, for all partitions that the topic has when the group first sees it: they start at −1, which the group's reset
strategy resolves, whenever and by whichever gateway each of them is initialised. Partitions that the topic gets later
start at 0: records that are produced before the group learns of them are not skipped.

An initialisation that was never answered repeats itself, under the same state epoch. The share coordinator may have
done it, and a gateway may have used the state since: then the repeat changes nothing.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from sharequeue.protocol.types import UNINITIALIZED_START_OFFSET
from sharequeue_coordinator.share_group.shared_sets import shared, with_all


class GroupTopic(NamedTuple):
    """A group's share-partitions of one topic.

    initializing: the state epoch of each initialisation that has no answer, by partition. 0: an alteration; it is not
    repeated, but fenced by a higher epoch. first_partitions: how many partitions the topic had when the group first saw
    it; 0: the group has begun nothing there since its offsets were deleted.
    """

    initializing: Mapping[int, int] = MappingProxyType({})
    initialized: frozenset[int] = frozenset()
    first_partitions: int = 0


class Initialization(NamedTuple):
    """Partitions of one topic to initialise, all at one start offset under one state epoch."""

    topic_id: str
    partitions: frozenset[int]
    start_offset: int
    state_epoch: int


def by_topic(initializations: Iterable[Initialization]) -> dict[str, frozenset[int]]:
    """All of their partitions by topic id."""
    found: dict[str, set[int]] = {}
    for topic_id, partitions, *_ in initializations:
        found.setdefault(topic_id, set()).update(partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def missing(
    known: Mapping[str, GroupTopic], asked: Mapping[str, Iterable[int]], state_epoch: int
) -> list[Initialization]:
    """Return the given share-partitions that are not initialised yet.
    `state_epoch`: of those that are not being initialised either."""
    wanted: dict[tuple[str, int, int], list[int]] = {}
    for topic_id, partitions in asked.items():
        topic = known.get(topic_id, GroupTopic())
        for partition in sorted(frozenset(partitions) - topic.initialized):
            grown = 0 < topic.first_partitions <= partition
            start_offset = 0 if grown else UNINITIALIZED_START_OFFSET
            epoch = topic.initializing.get(partition) or state_epoch
            wanted.setdefault((topic_id, start_offset, epoch), []).append(partition)
    return [Initialization(id_, shared(frozenset(some)), start, epoch) for (id_, start, epoch), some in wanted.items()]


def begin(
    known: Mapping[str, GroupTopic], initializations: Iterable[Initialization], partition_counts: Mapping[str, int]
) -> dict[str, GroupTopic]:
    """The first stage. `partition_counts`: how many partitions these topics have now.

    Returns: the topics that change, to persist before the share coordinator is asked.
    """
    begun: dict[str, GroupTopic] = {}
    for topic_id, partitions, _, state_epoch in initializations:
        topic = begun.get(topic_id) or known.get(topic_id, GroupTopic())
        begun[topic_id] = topic._replace(
            initializing=with_all(topic.initializing, partitions, state_epoch),
            first_partitions=topic.first_partitions or partition_counts[topic_id],
        )
    return {topic_id: topic for topic_id, topic in begun.items() if topic != known.get(topic_id)}


def succeed(known: Mapping[str, GroupTopic], partitions: Mapping[str, frozenset[int]]) -> dict[str, GroupTopic]:
    """The second stage: the share coordinator has initialised every partition. Returns: the topics that change."""
    left = fail(known, partitions)
    return {id_: topic._replace(initialized=topic.initialized | partitions[id_]) for id_, topic in left.items()}


def fail(known: Mapping[str, GroupTopic], partitions: Mapping[str, frozenset[int]]) -> dict[str, GroupTopic]:
    """Undo the first stage after a refusal. The next request begins again. Returns: the topics that change."""
    changed = {}
    for topic_id, undone in partitions.items():
        topic = known[topic_id]
        left = {partition: epoch for partition, epoch in topic.initializing.items() if partition not in undone}
        changed[topic_id] = topic._replace(initializing=left)
    return changed

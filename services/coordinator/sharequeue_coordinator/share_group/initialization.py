"""Which share-partitions of a group must be initialised, and how. Pure. Source: KIP-932, initialising share-partitions.

    never seen ─begin─▶ initializing ─succeed─▶ initialized
                             └─fail──▶ as before

Both states are persisted. The share coordinator is asked after `begin`. The partitions of a topic that the group has
never seen start at −1, which the group's reset strategy resolves. Partitions that a known topic grew by, and those
whose earlier initialisation was never answered, start at 0: records that were produced in between are not skipped.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class GroupTopic(NamedTuple):
    """A group's share-partitions of one topic."""

    initializing: frozenset[int] = frozenset()
    initialized: frozenset[int] = frozenset()


class Initialization(NamedTuple):
    """Partitions of one topic to initialise, all at one start offset."""

    topic_id: str
    partitions: frozenset[int]
    start_offset: int


def missing(known: Mapping[str, GroupTopic], asked: Mapping[str, Iterable[int]]) -> list[Initialization]:
    """Those of the share-partitions asked for that are not initialised yet."""
    wanted = []
    for topic_id, partitions in asked.items():
        topic = known.get(topic_id)
        absent = frozenset(partitions) - (topic.initialized if topic else frozenset())
        if absent:
            wanted.append(Initialization(topic_id, absent, -1 if topic is None else 0))
    return wanted


def begin(known: Mapping[str, GroupTopic], initializations: Iterable[Initialization]) -> dict[str, GroupTopic]:
    """The first stage. Returns: the topics that change, to persist before the share coordinator is asked."""
    changed = {}
    for topic_id, partitions, _ in initializations:
        topic = known.get(topic_id, GroupTopic())
        changed[topic_id] = GroupTopic(topic.initializing | partitions, topic.initialized)
    return changed


def succeed(known: Mapping[str, GroupTopic], initializations: Iterable[Initialization]) -> dict[str, GroupTopic]:
    """The second stage: the share coordinator has initialised every partition. Returns: the topics that change."""
    changed = {}
    for topic_id, partitions, _ in initializations:
        topic = known.get(topic_id, GroupTopic())
        changed[topic_id] = GroupTopic(topic.initializing - partitions, topic.initialized | partitions)
    return changed


def fail(
    known: Mapping[str, GroupTopic], initializations: Iterable[Initialization]
) -> tuple[dict[str, GroupTopic], list[str]]:
    """Undo the first stage after a refusal. The next request begins again.

    Returns: the topics to persist, and the ids of topics without any share-partition left.
    """
    changed, forgotten = {}, []
    for topic_id, partitions, _ in initializations:
        topic = known.get(topic_id, GroupTopic())
        left = GroupTopic(topic.initializing - partitions, topic.initialized)
        if left == GroupTopic():
            forgotten.append(topic_id)
        else:
            changed[topic_id] = left
    return changed, forgotten

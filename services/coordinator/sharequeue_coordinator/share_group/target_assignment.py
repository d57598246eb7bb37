"""The target assignment of a group: which partitions each member shall have. Pure. Source: KIP-932."""

from collections.abc import Collection, Mapping

from sharequeue_coordinator.share_group.assignor import Assignment, assign
from sharequeue_coordinator.share_group.changes import Member, TopicsByName
from sharequeue_coordinator.share_group.initialization import GroupTopic
from sharequeue_coordinator.share_group.shared_sets import shared


def changed_targets(
    members: Mapping[str, Member],
    target: Mapping[str, Assignment],
    known: Mapping[str, GroupTopic],
    topics: TopicsByName,
) -> dict[str, Assignment]:
    """Assign the initialised partitions of the topics that members subscribe to.

    Args:
        target: the present one. known: the group's share-partitions by topic id.
    Returns: the assignments that change, by member id; empty where a member has none any more.
    """
    ids: dict[frozenset[str], frozenset[str]] = {}
    assignable: dict[str, frozenset[int]] = {}
    subscriptions = {}
    for member_id, member in members.items():
        names = member.subscribed_topic_names
        if names not in ids:
            ids[names] = frozenset(topics[name].topic_id for name in names if name in topics)
            for topic_id in ids[names]:
                assignable[topic_id] = known.get(topic_id, GroupTopic()).initialized
        subscriptions[member_id] = ids[names]
    wanted = assign(subscriptions, assignable, target)
    changed: dict[str, Assignment] = {}
    for member_id in {**target, **members}:
        assignment = wanted.get(member_id, {})
        if assignment != target.get(member_id, {}):
            changed[member_id] = assignment
    return changed


def assigned_to_anybody(target: Mapping[str, Assignment]) -> Mapping[str, Collection[int]]:
    """The partitions that some member shall have, by topic id."""
    assigned: dict[str, set[int]] = {}
    for assignment in target.values():
        for topic_id, partitions in assignment.items():
            assigned.setdefault(topic_id, set()).update(partitions)
    return {topic_id: shared(frozenset(partitions)) for topic_id, partitions in assigned.items()}

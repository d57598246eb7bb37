"""The topics that the members of a group subscribe to together, and their limits. Pure."""

from collections import Counter
from collections.abc import Collection

from sharequeue.protocol.errors import GroupMaxSizeReached
from sharequeue.protocol.types import MAX_GROUP_NAMES, MAX_GROUP_PARTITIONS, MAX_PARTITIONS_NAMED
from sharequeue_coordinator.share_group.changes import Member, TopicsByName
from sharequeue_coordinator.share_group.subscribed_topics import partition_count
from sharequeue_http.forms.errors import InvalidRequest


def names_with(subscribed: Counter[str], member: Member, updated: Member) -> Collection[str]:
    """The names that the group subscribes to once `member` is `updated`."""
    only_here = {name for name in member.subscribed_topic_names if subscribed[name] == 1}
    return (subscribed.keys() - only_here) | updated.subscribed_topic_names


def check(group_id: str, subscribed: Counter[str], member: Member, updated: Member, topics: TopicsByName) -> None:
    """Bound the work of one heartbeat and of one assignment.

    Raises: InvalidRequest: the member's topics have too many partitions. GroupMaxSizeReached: the topics of the whole
        group have too many, or its members name too many topics.
    """
    own = partition_count(updated.subscribed_topic_names, topics)
    if own > MAX_PARTITIONS_NAMED:
        raise InvalidRequest(
            f"the topics of this heartbeat have {own} partitions, but a member may subscribe to {MAX_PARTITIONS_NAMED} "
            "at most: spread the topics over several groups",
            limit=MAX_PARTITIONS_NAMED,
        )
    names = subscribed.total() - len(member.subscribed_topic_names) + len(updated.subscribed_topic_names)
    if names > MAX_GROUP_NAMES:
        raise GroupMaxSizeReached(
            f"the subscriptions of all members of group {group_id!r} together would have {names} names, more than "
            f"{MAX_GROUP_NAMES}: subscribe to fewer topics, or spread them over several groups",
            limit=MAX_GROUP_NAMES,
        )
    every = partition_count(names_with(subscribed, member, updated), topics)
    if every > MAX_GROUP_PARTITIONS:
        raise GroupMaxSizeReached(
            f"the topics of group {group_id!r} would have {every} partitions, more than {MAX_GROUP_PARTITIONS}: "
            "spread the topics over several groups",
            limit=MAX_GROUP_PARTITIONS,
        )

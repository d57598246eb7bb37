"""Start offset, leader epoch and count of a group's share-partitions, as the share coordinator has them."""

from dataclasses import dataclass

from sharequeue.protocol.errors import GroupIdNotFound
from sharequeue.protocol.messages.cluster import GroupSummaryQuery, GroupSummaryResponse, GroupTopicSummary
from sharequeue_coordinator.groups.registry import GroupRegistry
from sharequeue_coordinator.groups.share_states import ShareStates
from sharequeue_coordinator.metadata.metadata import Metadata
from sharequeue_coordinator.share_group.machine import ShareGroup


@dataclass(eq=False)
class Summaries:
    """Reads summaries, in pages by topic name and partition."""

    _metadata: Metadata
    _groups: GroupRegistry
    _states: ShareStates

    async def summary(self, group_id: str, query: GroupSummaryQuery) -> GroupSummaryResponse:
        """One page of a group's initialised share-partitions. Raises: GroupIdNotFound."""
        group = await self._groups.find(group_id)
        if not group.machine.exists:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        wanted, more = self._page(group.machine, query)
        summaries = []
        for topic_id, partitions in (await self._states.summaries(group_id, wanted)).items():
            row = self._metadata.by_id.get(topic_id)
            if row is not None:
                summaries.append(GroupTopicSummary(topic=row.name, topic_id=topic_id, partitions=partitions))
        return GroupSummaryResponse(topics=sorted(summaries, key=lambda summary: summary.topic), more=more)

    def _page(self, machine: ShareGroup, query: GroupSummaryQuery) -> tuple[dict[str, list[int]], bool]:
        """The partitions of the page by topic id, and whether more follow."""
        by_name = {
            row.name: (topic_id, topic.initialized)
            for topic_id, topic in machine.topics.items()
            if topic.initialized
            and (row := self._metadata.by_id.get(topic_id)) is not None
            and query.topic in (None, row.name)
        }
        wanted: dict[str, list[int]] = {}
        more = False
        room = query.limit
        for name in sorted(name for name in by_name if name >= query.after_topic):
            topic_id, initialized = by_name[name]
            after = query.after_partition if name == query.after_topic else -1
            following = sorted(partition for partition in initialized if partition > after)
            taken = following if room is None else following[:room]
            if taken:
                wanted[topic_id] = taken
            more = more or len(taken) < len(following)
            if room is not None:
                room -= len(taken)
        return wanted, more

"""Gives each initialised share-partition its row among the log's readers, once, when every gateway keeps the rows.

A gateway of an earlier version adds no row when a group begins. So `keep` and `cleanup.settled` wait until every
gateway of the generation keeps rows, and until one of them has read all groups once:

    generation 7: old, new      readers_since 0     nothing is trimmed where groups are spared
    generation 9: new, new      readers_since 9     one gateway fills, then notes 9 in the log
    generation 12: new, new     readers_since 9     9 is noted: trims go on
"""

import msgspec

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import hold_ms
from sharequeue.protocol.errors import GroupIdNotFound
from sharequeue.protocol.messages.cluster import GroupSummaryQuery, GroupSummaryResponse
from sharequeue.protocol.messages.groups import ListShareGroupsQuery, ShareGroupList
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor

_config = msgspec.json.Decoder(dict[str, str])
_groups = msgspec.json.Decoder(ShareGroupList)
_summary = msgspec.json.Decoder(GroupSummaryResponse)


class BackFill:
    """Reads every group from the group coordinators. Its methods raise ApiError."""

    def __init__(self, coordinator: CoordinatorClient, readers: Readers) -> None:
        self._coordinator = coordinator
        self._readers = readers

    async def fill(self) -> int:
        """Add the rows that are missing. Returns: how many groups there are."""
        groups = 0
        page_token = None
        while True:
            query = ListShareGroupsQuery(page_token=page_token)
            page = _groups.decode(await self._coordinator.exchange(apis.LIST_SHARE_GROUPS, query, key=CLUSTER))
            for listed in page.groups:
                await self._fill_group(listed.group_id)
            groups += len(page.groups)
            page_token = page.next_page_token
            if page_token is None:
                return groups

    async def _fill_group(self, group_id: str) -> None:
        path = {"group": group_id}
        try:
            body = await self._coordinator.exchange(apis.GROUP_SUMMARY, GroupSummaryQuery(), key=group_id, path=path)
        except GroupIdNotFound:
            return
        floors = [
            Floor(SharePartitionKey(group_id, topic.topic_id, state.partition), -1, state.start_offset)
            for topic in _summary.decode(body).topics
            for state in topic.partitions
        ]
        if floors:
            config = _config.decode(
                await self._coordinator.exchange(apis.GET_SHARE_GROUP_CONFIG, key=group_id, path=path)
            )
            await self._readers.fill(floors, hold_ms(config))

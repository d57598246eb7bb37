"""Asks the group coordinator about groups that do not use the log: do they still have members, and do they exist?

A group with members holds the topics that they subscribe to, although nobody fetches: heartbeats go to the group
coordinator, which does not know the log's readers. So the sweeper of a topic asks it, before the sweep, about groups
that have used half of the time for which they hold the topic. A group without members is asked about again after a
pause.

A row of a group that does not exist any more, which a load that was too late has left, holds the log until the group
counts as idle. It is removed when the coordinator was asked twice, an hour apart. If a group begins in that time, its
row becomes active, and an active row stays.
"""

import logging
from collections.abc import Sequence
from typing import Final

from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import GroupIdNotFound
from sharequeue.protocol.messages.groups import DescribeShareGroupQuery
from sharequeue_gateway.cluster.metadata import KnownTopic
from sharequeue_gateway.record_log.removing.readers import STALE_MS, Readers
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

PAUSE_MS: Final = 600_000
ASKED_AT_ONCE: Final = 100


class IdleGroups:
    """Renews the holds of groups with members, and removes the rows of groups that do not exist. At most ASKED_AT_ONCE
    groups are asked about for each."""

    def __init__(self, coordinator: CoordinatorClient, readers: Readers, clock: Clock) -> None:
        self._coordinator = coordinator
        self._readers = readers
        self._clock = clock
        self._asked_at_ms: dict[tuple[str, str], int] = {}
        """By group and topic id: when the group had no member that subscribes to the topic."""
        self._next_at_ms = 0
        self._behind = ""
        self._unknown_since_ms: dict[str, int] = {}

    async def renew(self, topics: Sequence[KnownTopic]) -> None:
        """Renew the holds of these topics. What cannot be asked now is asked at the next sweep."""
        now_ms = self._clock.now_ms()
        self._asked_at_ms = {pair: at_ms for pair, at_ms in self._asked_at_ms.items() if now_ms - at_ms < PAUSE_MS}
        subscribed: dict[str, set[str]] = {}
        for topic in topics:
            try:
                for group_id in await self._readers.half_idle_groups(topic.topic_id):
                    if (group_id, topic.topic_id) in self._asked_at_ms:
                        continue
                    if group_id not in subscribed:
                        if len(subscribed) == ASKED_AT_ONCE:
                            return
                        subscribed[group_id] = await self._subscribed(group_id) or set()
                    if topic.name in subscribed[group_id]:
                        await self._readers.renew(group_id, topic.topic_id)
                    else:
                        self._asked_at_ms[group_id, topic.topic_id] = now_ms
            except ApiError as error:
                log.info(
                    "cannot renew the holds of idle groups with members",
                    extra=fields(topic=topic.name, cause=error.detail),
                )

    async def remove(self) -> None:
        """Look at the next groups in the order of their ids, if PAUSE_MS have passed. Raises: ApiError."""
        now_ms = self._clock.now_ms()
        if now_ms < self._next_at_ms:
            return
        self._next_at_ms = now_ms + PAUSE_MS
        idle = await self._readers.idle_groups(self._behind, ASKED_AT_ONCE)
        self._behind = idle[-1] if len(idle) == ASKED_AT_ONCE else ""
        for group_id in idle:
            if await self._subscribed(group_id) is not None:
                self._unknown_since_ms.pop(group_id, None)
            elif now_ms - self._unknown_since_ms.setdefault(group_id, now_ms) >= STALE_MS:
                await self._readers.remove_idle(group_id)
                del self._unknown_since_ms[group_id]

    async def _subscribed(self, group_id: str) -> set[str] | None:
        """The names of the topics that members of a group subscribe to; None: there is no such group."""
        names: set[str] = set()
        query: DescribeShareGroupQuery | None = DescribeShareGroupQuery()
        while query is not None:
            try:
                page = await self._coordinator.of_group(apis.DESCRIBE_SHARE_GROUP, group_id, query)
            except GroupIdNotFound:
                return None
            for member in page.members:
                names.update(member.subscribed_topic_names)
            token = page.next_page_token
            query = DescribeShareGroupQuery(page_token=token) if token else None
        return names

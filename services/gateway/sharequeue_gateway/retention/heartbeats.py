"""Heartbeats keep a group's hold: a group with members holds the topics that they subscribe to,
although nobody fetches.

Heartbeats go to the group coordinator, which does not know the log's readers. So the sweeper of a topic asks it, before
the sweep, about groups that have used half of the time for which they hold the topic. A group without members is asked
about again after a pause.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import GroupIdNotFound
from sharequeue.protocol.messages.groups import DescribeShareGroupQuery, ShareGroupDescription
from sharequeue_gateway.cluster.metadata import KnownTopic
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

PAUSE_MS: Final = 600_000
ASKED_AT_ONCE: Final = 100
_description: Final = msgspec.json.Decoder(ShareGroupDescription)


class Heartbeats:
    """Renews the holds of groups with members. At most ASKED_AT_ONCE groups are asked about in a sweep."""

    def __init__(self, coordinator: CoordinatorClient, readers: Readers, clock: Clock) -> None:
        self._coordinator = coordinator
        self._readers = readers
        self._clock = clock
        self._asked_at_ms: dict[tuple[str, str], int] = {}
        """By group and topic id: when the group had no member that subscribes to the topic."""

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
                        subscribed[group_id] = await self._subscribed(group_id)
                    if topic.name in subscribed[group_id]:
                        await self._readers.renew(group_id, topic.topic_id)
                    else:
                        self._asked_at_ms[group_id, topic.topic_id] = now_ms
            except ApiError as error:
                log.info(
                    "cannot renew the holds of idle groups with members",
                    extra=fields(topic=topic.name, cause=error.detail),
                )

    async def _subscribed(self, group_id: str) -> set[str]:
        """The names of the topics that members of a group subscribe to."""
        names: set[str] = set()
        query: DescribeShareGroupQuery | None = DescribeShareGroupQuery()
        try:
            while query is not None:
                page = _description.decode(
                    await self._coordinator.exchange(
                        apis.DESCRIBE_SHARE_GROUP, query, key=group_id, path={"group": group_id}
                    )
                )
                for member in page.members:
                    names.update(member.subscribed_topic_names)
                token = page.next_page_token
                query = DescribeShareGroupQuery(page_token=token) if token else None
        except GroupIdNotFound:
            pass
        return names

"""The numbers of partitions of topics, as the group coordinator says.
A state request may only name partitions that exist."""

import time
from collections.abc import Sequence
from typing import Final

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue.protocol.messages.cluster import DescribeTopicsRequest, DescribeTopicsResponse
from sharequeue.protocol.messages.share_state import SharePartitionState
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.shard import Decision

GROWTH_PAUSE_S: Final = 1.0
"""How long a topic that turned out not to have grown is not asked about again."""
ASK_S: Final = 5.0
DELETED: Final = 0


class PartitionCounts:
    """The counts by topic id. The group coordinator is asked once per topic, and again where a topic may have grown."""

    def __init__(self, group_coordinators: CoordinatorClient) -> None:
        self._group_coordinators = group_coordinators
        self._counts: dict[str, int] = {}
        self._ask_again: dict[str, float] = {}

    def topic_deleted(self, topic_id: str) -> None:
        self._counts[topic_id] = DELETED

    def forget(self) -> None:
        """Shards came from another owner. It may have heard of deletions that this instance has not heard of."""
        self._counts.clear()

    async def learn(self, states: Sequence[SharePartitionState]) -> str | None:
        """Ask for the counts of topics that are unknown. Returns: why they could not be asked for, or None."""
        unknown: dict[str, int] = {}
        for _, topic_id, state in states:
            known, partition = self._counts.get(topic_id), state.partition
            if known is None or (DELETED < known <= partition and time.monotonic() >= self._ask_again.get(topic_id, 0)):
                unknown[topic_id] = max(partition, unknown.get(topic_id, 0))
        if not unknown:
            return None
        asked_at = time.monotonic()
        try:
            response: DescribeTopicsResponse = await self._group_coordinators.call(
                apis.DESCRIBE_TOPICS, DescribeTopicsRequest(topic_ids=list(unknown)), deadline_s=ASK_S
            )
        except ApiError as error:
            return f"the group coordinator did not say which topics exist: {error.detail}"
        found = {topic.topic_id: topic.partitions for topic in response.topics}
        for topic_id, highest in unknown.items():
            if topic_id in found and self._counts.get(topic_id) != DELETED:  # it may have been deleted since
                self._counts[topic_id] = found[topic_id]
                if found[topic_id] <= highest:
                    self._ask_again[topic_id] = asked_at + GROWTH_PAUSE_S
        return None

    def fault(self, topic_id: str, partition: int, unreachable: str | None) -> Decision | None:
        """The refusal of a partition that does not exist, or about which nothing could be learned; else None.
        `unreachable`: what `learn` returned."""
        known = self._counts.get(topic_id)
        if known is not None and partition < known:
            return None
        if known is None and unreachable is not None:
            return shard.fault(partition, CoordinatorNotAvailable, unreachable)
        return shard.fault(
            partition, UnknownTopicOrPartition, f"there is no partition {partition} of topic id {topic_id}"
        )

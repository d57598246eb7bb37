"""Resolves where a group begins in a partition that it has never read, once, and persists it before any delivery.

Otherwise a group that fetches rarely would resolve `latest` with each fetch, and never receive a record. Source:
KIP-932, share.auto.offset.reset.
"""

from collections.abc import Mapping, Sequence

from sharequeue.clock import Clock
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig, duration_ms
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.leader.persister import persist_error
from sharequeue_gateway.record_log.log import Offsets, RecordLog


class StartOffsets:
    """Resolves and persists the first start offsets of share-partitions."""

    def __init__(self, record_log: RecordLog, share_coordinators: ShareStateClient, clock: Clock) -> None:
        self._record_log = record_log
        self._share_coordinators = share_coordinators
        self._clock = clock

    async def resolve(
        self, group_id: str, state_epochs: Mapping[SharePartitionKey, int], leader_epoch: int, config: ShareGroupConfig
    ) -> dict[SharePartitionKey, int | ApiError]:
        """The start offset of each share-partition of a group, or the error for it.

        Args:
            state_epochs: the share-partitions to start, with their state epochs.
        """
        if not state_epochs:
            return {}
        by_topic: dict[str, list[SharePartitionKey]] = {}
        for key in state_epochs:
            by_topic.setdefault(key.topic_id, []).append(key)
        try:
            starts = {
                key: start_offset
                for topic_id, keys in by_topic.items()
                for key, start_offset in (await self._chosen(topic_id, keys, config)).items()
            }
            states = {
                topic_id: [
                    PartitionState(
                        partition=key.partition,
                        state_epoch=state_epochs[key],
                        leader_epoch=leader_epoch,
                        start_offset=starts[key],
                        delivery_complete_count=0,
                    )
                    for key in keys
                ]
                for topic_id, keys in by_topic.items()
            }
            results = await self._share_coordinators.state(apis.WRITE_STATE, group_id, states)
        except ApiError as error:
            return dict.fromkeys(state_epochs, error)
        outcomes: dict[SharePartitionKey, int | ApiError] = dict(starts)
        for key, result in results.items():
            if result.error_code:
                outcomes[key] = persist_error(result.error_code, result.error_message)
        return outcomes

    async def _chosen(
        self, topic_id: str, keys: Sequence[SharePartitionKey], config: ShareGroupConfig
    ) -> dict[SharePartitionKey, int]:
        """The start offsets that the group's reset strategy chooses."""
        ends = await self._record_log.offsets(topic_id, [key.partition for key in keys])
        return {key: await self._choose(key, ends[key.partition], config.auto_offset_reset) for key in keys}

    async def _choose(self, key: SharePartitionKey, ends: Offsets, reset: str) -> int:
        if reset == "latest":
            return ends.log_end_offset
        if reset == "earliest":
            return ends.log_start_offset
        since_ms = self._clock.now_ms() - (duration_ms(reset.removeprefix("by_duration:")) or 0)
        found = await self._record_log.offset_for_timestamp(key.topic_id, key.partition, since_ms)
        return ends.log_end_offset if found is None else found

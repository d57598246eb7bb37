"""Decides where a group begins to read a partition: once, and durable before any delivery.

A load gives the group its row among the readers of the log (`record_log/removing/readers.py`), so that retention knows
it. If the share-partition has no start offset yet, the group's reset strategy chooses one. First the row is durable,
then the start is stored at the share coordinator, then records are handed out. Without a stored start a group that
fetches rarely would resolve `latest` with each fetch, and never receive a record. Source: KIP-932,
share.auto.offset.reset.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sharequeue.clock import Clock
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig, duration_ms
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.types import UNINITIALIZED_START_OFFSET, SharePartitionKey
from sharequeue_gateway.leader.persister import persist_error
from sharequeue_gateway.record_log.log import Offsets, RecordLog
from sharequeue_gateway.record_log.removing.readers import Beginning, Begun, Readers
from sharequeue_http.forms.errors import ApiError


def stored_start(state: PartitionStateResult) -> int | None:
    """The start offset that was stored for this state epoch. Without one, no record was handed out."""
    return None if state.start_offset == UNINITIALIZED_START_OFFSET else state.start_offset


@dataclass(eq=False)
class StartOffsets:
    """Resolves and persists the first start offsets of share-partitions, and adds their rows to the readers."""

    _record_log: RecordLog
    _readers: Readers
    _share_coordinators: ShareStateClient
    _clock: Clock

    async def begin(
        self,
        group_id: str,
        states: Mapping[SharePartitionKey, PartitionStateResult],
        leader_epoch: int,
        config: ShareGroupConfig,
    ) -> dict[SharePartitionKey, Begun | ApiError]:
        """Make sure that share-partitions of a group have their rows and a start offset. A later load only reads.

        Args:
            states: as the share coordinator answered.
        Returns: where each one begins, or the error for it.
        """
        if not states:
            return {}
        try:
            rows = await self._readers.find(group_id, [(key.topic_id, key.partition) for key in states])
            begun: dict[SharePartitionKey, Begun | ApiError] = {}
            beginnings: list[Beginning] = []
            unresolved: list[SharePartitionKey] = []
            for key, state in states.items():
                row = rows.get((key.topic_id, key.partition))
                start, epoch = stored_start(state), state.state_epoch or 0
                if start is None:
                    unresolved.append(key)
                elif row is None or row.stale or row.state_epoch < epoch or row.hold_ms != config.hold_ms:
                    beginnings.append(Beginning(key, epoch, start, chosen=False))
                else:
                    begun[key] = Begun(start, row.floor, row.log_end_offset, row.ready, row.delayed)
            for key, start_offset in (await self._chosen(unresolved, config)).items():
                beginnings.append(Beginning(key, states[key].state_epoch or 0, start_offset, chosen=True))
            new = await self._readers.begin(beginnings, config.hold_ms)
            begun.update(new)
            if unresolved:
                starts = {key: new[key].start_offset for key in unresolved}
                begun.update(await self._store(group_id, starts, states, leader_epoch))
        except ApiError as error:
            return dict.fromkeys(states, error)
        return begun

    async def _store(
        self,
        group_id: str,
        starts: Mapping[SharePartitionKey, int],
        read: Mapping[SharePartitionKey, PartitionStateResult],
        leader_epoch: int,
    ) -> dict[SharePartitionKey, ApiError]:
        """Write resolved starts to the share coordinator. Returns: those that it refused."""
        states: dict[str, list[PartitionState]] = {}
        for key, start_offset in starts.items():
            states.setdefault(key.topic_id, []).append(
                PartitionState(
                    partition=key.partition,
                    state_epoch=read[key].state_epoch or 0,
                    leader_epoch=leader_epoch,
                    start_offset=start_offset,
                    delivery_complete_count=0,
                )
            )
        results = await self._share_coordinators.state(apis.WRITE_STATE, group_id, states)
        return {
            key: persist_error(result.error_code, result.error_message)
            for key, result in results.items()
            if result.error_code
        }

    async def _chosen(
        self, keys: Sequence[SharePartitionKey], config: ShareGroupConfig
    ) -> dict[SharePartitionKey, int]:
        """The start offsets that the group's reset strategy chooses."""
        by_topic: dict[str, list[SharePartitionKey]] = {}
        for key in keys:
            by_topic.setdefault(key.topic_id, []).append(key)
        chosen = {}
        for topic_id, of_topic in by_topic.items():
            ends = await self._record_log.offsets(topic_id, [key.partition for key in of_topic])
            for key in of_topic:
                chosen[key] = await self._choose(key, ends[key.partition], config.auto_offset_reset)
        return chosen

    async def _choose(self, key: SharePartitionKey, ends: Offsets, reset: str) -> int:
        """The row is added later, under the partition's lock, and not below the log start of that moment."""
        if reset == "latest":
            return ends.log_end_offset
        if reset == "earliest":
            return ends.log_start_offset
        since_ms = self._clock.now_ms() - (duration_ms(reset.removeprefix("by_duration:")) or 0)
        found = await self._record_log.offset_for_timestamp(key.topic_id, key.partition, since_ms)
        return ends.log_end_offset if found is None else found

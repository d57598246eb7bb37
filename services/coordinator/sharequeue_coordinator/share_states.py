"""What the group coordinator asks of the share coordinators for a group: to set state, and for summaries of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError, CoordinatorNotAvailable, error_of
from sharequeue.protocol.internal import (
    GroupPartitionSummary,
    InitializedPartition,
    InitializedTopic,
    PartitionState,
    PartitionStateResult,
    ShareStateRequest,
    ShareStateResponse,
    TopicState,
)
from sharequeue.share_state_client import ShareStateClient

DEADLINE_S: Final = 8.0


class ShareStates:
    """The states of groups' share-partitions, wherever they are kept."""

    def __init__(self, share_coordinators: ShareStateClient) -> None:
        self._share_coordinators = share_coordinators

    async def initialize(
        self, group_id: str, state_epoch: int, wanted: Mapping[str, Mapping[int, int]]
    ) -> dict[tuple[str, int], ApiError]:
        """Initialise partitions at start offsets.

        Returns: those that were refused. Raises: ApiError: some may be done.
        """
        request = ShareStateRequest(
            group_id=group_id,
            topics=[
                TopicState(
                    topic_id=topic_id,
                    partitions=[
                        PartitionState(partition=partition, state_epoch=state_epoch, start_offset=start_offset)
                        for partition, start_offset in partitions.items()
                    ],
                )
                for topic_id, partitions in wanted.items()
            ],
        )
        return await self.change(apis.INITIALIZE_STATE, request)

    async def change(self, api: apis.Api, request: ShareStateRequest) -> dict[tuple[str, int], ApiError]:
        """Returns: what was refused. Raises: ApiError: some may be done."""
        response: ShareStateResponse = await self._share_coordinators.state(api, request, deadline_s=DEADLINE_S)
        faults = {
            (topic.topic_id or "", partition.partition): error_of(partition.error_code, partition.error_message)
            for topic in response.results
            for partition in topic.partitions
            if partition.error_code
        }
        for fault in faults.values():
            if fault.error.kafka_code in (14, 15, 16):
                raise CoordinatorNotAvailable(fault.detail, definite=False)
        return faults

    async def summaries(
        self, group_id: str, wanted: Mapping[str, Sequence[int]]
    ) -> dict[str, list[GroupPartitionSummary]]:
        """Start offset, leader epoch and count of partitions, by topic id; −1 where one has none."""
        request = ShareStateRequest(
            group_id=group_id,
            topics=[
                TopicState(topic_id=topic_id, partitions=[PartitionState(partition=p) for p in partitions])
                for topic_id, partitions in wanted.items()
            ],
        )
        response: ShareStateResponse = await self._share_coordinators.state(apis.READ_STATE_SUMMARY, request)
        return {topic.topic_id or "": list(map(_summary, topic.partitions)) for topic in response.results}


def outcomes(asked: Mapping[str, Iterable[int]], faults: Mapping[tuple[str, int], ApiError]) -> list[InitializedTopic]:
    """What became of each partition, as answers tell it."""
    return [
        InitializedTopic(
            topic_id=topic_id,
            partitions=[
                InitializedPartition(
                    partition=partition,
                    error_code=fault.error.kafka_code if fault else 0,
                    error_message=fault.detail if fault else None,
                )
                for partition in partitions
                for fault in (faults.get((topic_id, partition)),)
            ],
        )
        for topic_id, partitions in asked.items()
    ]


def _summary(result: PartitionStateResult) -> GroupPartitionSummary:
    start, count, unfinished = result.start_offset, result.delivery_complete_count, result.unfinished_offset
    if result.error_code or start is None or count is None or unfinished is None:
        start = count = unfinished = -1
    return GroupPartitionSummary(
        partition=result.partition,
        start_offset=unfinished,
        leader_epoch=0 if result.error_code else result.leader_epoch or 0,
        delivery_complete_count=count - (unfinished - start),
    )

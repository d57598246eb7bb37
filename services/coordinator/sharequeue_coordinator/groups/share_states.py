"""The calls of the share coordinators about a group: initialise state, delete it, read summaries of it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import KAFKA_CODES, CoordinatorLoadInProgress, NotCoordinator, error_of
from sharequeue.protocol.messages.cluster import FailedPartition, GroupPartitionSummary
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue_coordinator.share_group.initialization import Initialization
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable

DEADLINE_S: Final = 8.0
AT_ONCE: Final = 1000
"""The most share-partitions of one call. Calls of this size go one after another; smaller ones go between them."""
NOT_SERVED: Final = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


class ShareStates:
    """The states of groups' share-partitions, at whichever instances own them."""

    def __init__(self, share_coordinators: ShareStateClient) -> None:
        self._share_coordinators = share_coordinators
        self._turn = asyncio.Lock()

    async def initialize(
        self, group_id: str, initializations: Iterable[Initialization], current: Callable[[], bool]
    ) -> dict[tuple[str, int], ApiError]:
        """Initialise partitions, as long as the group is `current`: what another call has deleted meanwhile stays so.

        Returns: those that were refused, and why. Raises: ApiError: the outcome of some is unknown.
        """
        return await self._change(
            apis.INITIALIZE_STATE,
            group_id,
            (
                (topic_id, PartitionState(partition=partition, state_epoch=state_epoch, start_offset=start_offset))
                for topic_id, partitions, start_offset, state_epoch in initializations
                for partition in sorted(partitions)
            ),
            current,
        )

    async def delete(self, group_id: str, wanted: Mapping[str, Iterable[int]]) -> dict[tuple[str, int], ApiError]:
        """Delete the state of partitions. Returns, raises: as `initialize`."""
        return await self._change(
            apis.DELETE_STATE,
            group_id,
            ((topic_id, PartitionState(partition=p)) for topic_id, some in wanted.items() for p in sorted(some)),
        )

    async def _change(
        self,
        api: Api,
        group_id: str,
        states: Iterator[tuple[str, PartitionState]],
        current: Callable[[], bool] = lambda: True,
    ) -> dict[tuple[str, int], ApiError]:
        faults: dict[tuple[str, int], ApiError] = {}
        while some := list(islice(states, AT_ONCE)):
            by_topic: dict[str, list[PartitionState]] = {}
            for topic_id, state in some:
                by_topic.setdefault(topic_id, []).append(state)
            async with contextlib.nullcontext() if len(some) < AT_ONCE else self._turn:
                if not current():
                    raise CoordinatorNotAvailable("the group was loaded again meanwhile; try again", definite=False)
                results = await self._share_coordinators.state(api, group_id, by_topic, deadline_s=DEADLINE_S)
            for key, result in results.items():
                if result.error_code:
                    fault = error_of(result.error_code, result.error_message)
                    if isinstance(fault, NOT_SERVED):
                        raise CoordinatorNotAvailable(fault.detail, definite=False)
                    faults[key.topic_id, key.partition] = fault
        return faults

    async def summaries(
        self, group_id: str, wanted: Mapping[str, Sequence[int]]
    ) -> dict[str, list[GroupPartitionSummary]]:
        """Start offset, leader epoch and count of partitions, by topic id. −1: it has none."""
        named = {topic_id: [PartitionState(partition=p) for p in sorted(some)] for topic_id, some in wanted.items()}
        results = await self._share_coordinators.state(apis.READ_STATE_SUMMARY, group_id, named)
        found: dict[str, list[GroupPartitionSummary]] = {topic_id: [] for topic_id in wanted}
        for key, result in results.items():
            found[key.topic_id].append(_summary(result))
        return found


def failed_partitions(faults: Mapping[tuple[str, int], ApiError]) -> list[FailedPartition]:
    """Errors of partitions, as answers have them."""
    return [
        FailedPartition(
            topic_id=topic_id, partition=partition, error_code=KAFKA_CODES[fault.error], error_message=fault.detail
        )
        for (topic_id, partition), fault in faults.items()
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

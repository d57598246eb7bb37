"""The state calls: five about share-partitions of any groups, and deletion of a topic's state. Source: KIP-932."""

from functools import partial
from typing import NamedTuple, Protocol

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.messages.share_state import (
    PartitionState,
    PartitionStateResult,
    SharePartitionResult,
    ShareStateRequest,
    ShareStateResponse,
    TopicDeletedRequest,
    TopicDeletedResponse,
)
from sharequeue.service.postgres_faults import FAULTS
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import CoordinatorNotAvailable
from sharequeue_share_coordinator.coordinator.coordinator import ShareCoordinator
from sharequeue_share_coordinator.coordinator.housekeeping import Housekeeping
from sharequeue_share_coordinator.coordinator.operations import Operation
from sharequeue_share_coordinator.partition_counts import PartitionCounts
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import KeyState
from sharequeue_share_coordinator.share_state.shard import Decision


class DecideRequest(Protocol):
    """Decides a request about a share-partition, given its state and the refusal if the topic lacks the partition."""

    def __call__(self, state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision: ...


class Rule(NamedTuple):
    """The way in which a call is decided. The flags: which epochs it must have, and whether it may make a key."""

    decide: DecideRequest
    leader_epoch: bool = False
    state_epoch: bool = False
    creates: bool = False


class ShareStateApi:
    def __init__(
        self,
        coordinator: ShareCoordinator,
        housekeeping: Housekeeping,
        partition_counts: PartitionCounts,
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._housekeeping = housekeeping
        self._partition_counts = partition_counts
        self._clock = clock
        self._write = Rule(
            lambda state, request, topic: shard.write(
                state, request, topic, coordinator.updates_per_snapshot, clock.now_ms(), coordinator.time_line.started
            ),
            leader_epoch=True,
            state_epoch=True,
        )

    def calls(self) -> list[tuple[Api, Handler]]:
        initialize = Rule(
            lambda state, request, topic: shard.initialize(state, request, topic, self._clock.now_ms()),
            state_epoch=True,
            creates=True,
        )
        rules = [
            (apis.INITIALIZE_STATE, initialize),
            (apis.WRITE_STATE, self._write),
            (apis.DELETE_STATE, Rule(shard.delete)),
            (apis.READ_STATE_SUMMARY, Rule(shard.read_summary)),
        ]
        return [
            *((api, partial(self._answer, rule)) for api, rule in rules),
            (apis.READ_STATE, self.read),
            (apis.TOPIC_STATE_DELETED, self.topic_deleted),
        ]

    async def read(self, call: Call) -> ShareStateResponse:
        request: ShareStateRequest = call.request
        page_bytes = shard.READ_PAGE_BYTES // max(len(request.states), 1)

        def decide(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
            limit, started = self._coordinator.updates_per_snapshot, self._coordinator.time_line.started
            return shard.read(state, request, topic, limit, self._clock.now_ms(), page_bytes, started)

        return await self._answer(Rule(decide, leader_epoch=True), call)

    async def topic_deleted(self, call: Call) -> TopicDeletedResponse:
        request: TopicDeletedRequest = call.request
        self._partition_counts.topic_deleted(request.topic_id)
        try:
            return TopicDeletedResponse(shards=await self._housekeeping.delete_topic(request.topic_id))
        except FAULTS as fault:
            sentence = self._coordinator.health.note(fault).sentence
            raise CoordinatorNotAvailable(f"the state cannot be deleted: {sentence}") from fault

    # Requests

    async def _answer(self, rule: Rule, call: Call) -> ShareStateResponse:
        """Decide every share-partition of a request with one commit; each can fail on its own.

        Raises: ApiError: this instance owns none of them.
        """
        asked: ShareStateRequest = call.request
        unreachable = await self._partition_counts.learn(asked.states)
        operations: list[Operation] = []
        results: list[PartitionStateResult | None] = []  # None: comes from the commit, in order
        for each in asked.states:
            _, topic_id, request = each
            refused = shard.form_fault(request, leader_epoch=rule.leader_epoch, state_epoch=rule.state_epoch)
            results.append(None if refused is None else refused.result)
            if refused is None:
                topic_fault = self._partition_counts.fault(topic_id, request.partition, unreachable)
                decide = partial(rule.decide, request=request, topic=topic_fault)
                operations.append(Operation(each.key, decide, rule.creates and topic_fault is None))
        self._coordinator.check_served(operations)
        decided = iter(await self._coordinator.commit(operations) if operations else ())
        return ShareStateResponse(
            results=[
                SharePartitionResult(group_id, topic_id, next(decided) if result is None else result)
                for (group_id, topic_id, _), result in zip(asked.states, results, strict=True)
            ]
        )

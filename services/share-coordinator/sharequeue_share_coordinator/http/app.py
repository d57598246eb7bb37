"""The share coordinator's calls: the five state RPCs, batched writes, deletion of topics. Source: KIP-932."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from sharequeue.clock import Clock
from sharequeue.http.serving import App, Call, create_app, serve
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.endpoints import serve_ownership
from sharequeue.ownership.leases import Ownership
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError, CoordinatorNotAvailable
from sharequeue.protocol.internal import (
    DescribeTopicsRequest,
    DescribeTopicsResponse,
    GroupState,
    GroupStateResult,
    PartitionState,
    PartitionStateResult,
    ShareStateRequest,
    ShareStateResponse,
    TopicDeletedRequest,
    TopicDeletedResponse,
    TopicState,
    TopicStateResult,
    WriteBatchRequest,
    WriteBatchResponse,
)
from sharequeue.protocol.messages import Readiness
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service.postgres_faults import FAULTS
from sharequeue.service.readiness import CHECK_S, Check, faults
from sharequeue.service.service import serve_operations
from sharequeue_share_coordinator.coordinator.coordinator import Item, ShareCoordinator
from sharequeue_share_coordinator.http.export_api import Export
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.shard import Decision, KeyState

GROWTH_PAUSE_S = 1.0


class Rule(Protocol):
    """Decides a request about a share-partition, given its state and what is wrong with the topic."""

    def __call__(self, state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision: ...


class Topics:
    """Partition counts of topics, asked of the group coordinator once; 0 = deleted."""

    def __init__(self, coordinator: CoordinatorClient) -> None:
        self._coordinator = coordinator
        self._partitions: dict[str, int] = {}
        self._ask_again: dict[str, float] = {}

    def deleted(self, topic_id: str) -> None:
        self._partitions[topic_id] = 0

    def forget(self) -> None:
        """Shards came from another owner: it was told of deletions that this instance may have missed."""
        self._partitions.clear()

    async def learn(self, topics: Sequence[TopicState]) -> str | None:
        """Ask for what is not known of these topics. Returns: why that could not be, or None."""
        unknown: dict[str, int] = {}
        for topic in topics:
            if topic.topic_id is None or not topic.partitions:
                continue
            known = self._partitions.get(topic.topic_id)
            highest = max([partition.partition for partition in topic.partitions])
            if known is None or (0 < known <= highest and self._may_have_grown(topic.topic_id)):
                unknown[topic.topic_id] = highest
        if not unknown:
            return None
        asked_at = time.monotonic()
        try:
            response: DescribeTopicsResponse = await self._coordinator.call(
                apis.DESCRIBE_TOPICS, DescribeTopicsRequest(topic_ids=list(unknown)), deadline_s=5
            )
        except ApiError as error:
            return f"the group coordinator does not say what topics there are: {error.detail}"
        found = {topic.topic_id: topic.partitions for topic in response.topics}
        for topic_id, highest in unknown.items():
            if topic_id in found and self._partitions.get(topic_id) != 0:  # it may have been deleted meanwhile
                self._partitions[topic_id] = found[topic_id]
                if found[topic_id] <= highest:
                    self._ask_again[topic_id] = asked_at + GROWTH_PAUSE_S
        return None

    def _may_have_grown(self, topic_id: str) -> bool:
        return time.monotonic() >= self._ask_again.get(topic_id, 0)

    def fault(self, topic_id: str, partition: int, unreachable: str | None) -> Decision | None:
        known = self._partitions.get(topic_id)
        if known is not None and partition < known:
            return None
        if known is None and unreachable is not None:
            return shard.fault(partition, 15, unreachable)
        return shard.fault(partition, 3, f"there is no partition {partition} of topic id {topic_id}")


def create_share_coordinator_app(
    coordinator: ShareCoordinator,
    ownership: Ownership,
    group_coordinators: CoordinatorClient,
    topics: Topics,
    export: Export,
    clock: Clock,
    *,
    cluster_token: str,
    updates_per_snapshot: int,
) -> App:
    """The application of one share coordinator."""
    app = create_app("sharequeue share coordinator", "Keeps the state of share-partitions.")

    async def run(
        groups: Sequence[GroupState | ShareStateRequest],
        rule: Rule,
        *,
        leader_epoch: bool = False,
        state_epoch: bool = False,
        creates: bool = False,
    ) -> list[list[TopicStateResult]]:
        """Decide every share-partition of the groups with one commit; each can fail on its own."""
        unreachable = await topics.learn([topic for group in groups for topic in group.topics])
        items: list[Item] = []
        answers: list[list[tuple[str | None, list[PartitionStateResult | None]]]] = []
        for group in groups:
            answer = []
            for topic in group.topics:
                results: list[PartitionStateResult | None] = []
                for request in topic.partitions:
                    refused = shard.form_fault(
                        topic.topic_id, request, leader_epoch=leader_epoch, state_epoch=state_epoch
                    )
                    if refused is not None or topic.topic_id is None:
                        results.append(refused.result if refused else None)
                        continue
                    key = SharePartitionKey(group.group_id, topic.topic_id, request.partition)
                    topic_fault = topics.fault(topic.topic_id, request.partition, unreachable)
                    decide = partial(rule, request=request, topic=topic_fault)
                    items.append(Item(key, decide, creates and topic_fault is None))
                    results.append(None)
                answer.append((topic.topic_id, results))
            answers.append(answer)
        refusal = coordinator.refusal(items)
        if refusal is not None:
            raise refusal
        decided = iter(await coordinator.submit(items) if items else ())
        return [
            [
                TopicStateResult(
                    topic_id=topic_id,
                    partitions=[next(decided) if result is None else result for result in results],
                )
                for topic_id, results in answer
            ]
            for answer in answers
        ]

    async def of_group(call: Call, rule: Rule, **flags: bool) -> ShareStateResponse:
        request: ShareStateRequest = call.request
        empty_partitions = any(not topic.partitions for topic in request.topics) and not flags.get("creates", False)
        if not request.group_id or not request.topics or empty_partitions:
            return ShareStateResponse(results=[])
        (results,) = await run([request], rule, **flags)
        return ShareStateResponse(results=results)

    def write_rule(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
        return shard.write(state, request, topic, updates_per_snapshot, clock.now_ms())

    def read_rule(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
        return shard.read(state, request, topic, updates_per_snapshot, clock.now_ms())

    def initialize_rule(state: KeyState | None, request: PartitionState, topic: Decision | None) -> Decision:
        return shard.initialize(state, request, topic, clock.now_ms())

    async def initialize(call: Call) -> ShareStateResponse:
        return await of_group(call, initialize_rule, state_epoch=True, creates=True)

    async def read(call: Call) -> ShareStateResponse:
        return await of_group(call, read_rule, leader_epoch=True)

    async def write(call: Call) -> ShareStateResponse:
        return await of_group(call, write_rule, leader_epoch=True, state_epoch=True)

    async def write_batch(call: Call) -> WriteBatchResponse:
        request: WriteBatchRequest = call.request
        answers = await run(request.groups, write_rule, leader_epoch=True, state_epoch=True)
        return WriteBatchResponse(
            groups=[
                GroupStateResult(group_id=group.group_id, results=results)
                for group, results in zip(request.groups, answers, strict=True)
            ]
        )

    async def delete(call: Call) -> ShareStateResponse:
        return await of_group(call, shard.delete)

    async def read_summary(call: Call) -> ShareStateResponse:
        return await of_group(call, shard.read_summary)

    async def topic_deleted(call: Call) -> TopicDeletedResponse:
        request: TopicDeletedRequest = call.request
        topics.deleted(request.topic_id)
        try:
            return TopicDeletedResponse(shards=await coordinator.delete_topic(request.topic_id))
        except FAULTS as fault:
            sentence = coordinator.health.note(fault).sentence
            raise CoordinatorNotAvailable(f"the state cannot be deleted: {sentence}") from fault

    async def ask_group_coordinator() -> None:
        await group_coordinators.call(apis.LIVEZ, deadline_s=CHECK_S, retry=False)

    postgres_check = Check(coordinator.health.check)
    group_check = Check(ask_group_coordinator)

    async def ready() -> Readiness:
        found = await faults(**{"postgresql": postgres_check, "group coordinator": group_check})
        missing = ownership.missing()
        dependencies = {"postgresql": "ok", "group coordinator": "ok", "shards": missing or "ok", **found}
        status = "unavailable" if "postgresql" in found else "degraded" if found or missing else "ready"
        return Readiness(status=status, dependencies=dependencies)

    for api, handler in (
        (apis.INITIALIZE_STATE, initialize),
        (apis.READ_STATE, read),
        (apis.WRITE_STATE, write),
        (apis.WRITE_STATE_BATCH, write_batch),
        (apis.DELETE_STATE, delete),
        (apis.READ_STATE_SUMMARY, read_summary),
        (apis.TOPIC_STATE_DELETED, topic_deleted),
        (apis.EXPORT_STATE, export.export),
    ):
        serve(app, api, handler, cluster_token=cluster_token)
    serve_ownership(app, ownership, "share", group_coordinators, cluster_token=cluster_token)
    serve_operations(app, ready)
    return app

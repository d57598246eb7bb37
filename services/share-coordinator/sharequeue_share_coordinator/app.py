"""The share coordinator's calls: the five state RPCs, batched writes, deletion of topics. Source: KIP-932."""

import time
from collections.abc import Callable, Mapping, Sequence

import asyncpg

from sharequeue.coordinators import CoordinatorClient
from sharequeue.finding import serve_ownership
from sharequeue.ownership import Ownership
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError, CoordinatorNotAvailable
from sharequeue.protocol.internal import (
    DescribeTopicsRequest,
    DescribeTopicsResponse,
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
from sharequeue.service import Clock, serve_operations
from sharequeue.serving import App, Call, create_app, serve
from sharequeue_share_coordinator import shard
from sharequeue_share_coordinator.coordinator import LOST, Item, ShareCoordinator
from sharequeue_share_coordinator.export import Export
from sharequeue_share_coordinator.shard import Decision, KeyState

GROWTH_PAUSE_S = 1.0

Rule = Callable[[KeyState | None, PartitionState, Decision | None], Decision]


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
        now = time.monotonic()
        for topic in topics:
            if topic.topic_id is None or not topic.partitions:
                continue
            known = self._partitions.get(topic.topic_id)
            highest = max(partition.partition for partition in topic.partitions)
            grown = known is not None and 0 < known <= highest and now >= self._ask_again.get(topic.topic_id, 0)
            if known is None or grown:
                unknown[topic.topic_id] = highest
        if not unknown:
            return None
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
                    self._ask_again[topic_id] = now + GROWTH_PAUSE_S
        return None

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
        groups: Mapping[str, Sequence[TopicState]], rule: Rule, **epochs: bool
    ) -> list[list[TopicStateResult]]:
        """Decide every share-partition of the groups with one commit; each can fail on its own."""
        asked = [topic for states in groups.values() for topic in states]
        unreachable = await topics.learn(asked)
        items: list[Item] = []
        answers: list[list[tuple[str | None, list[PartitionStateResult | None]]]] = []
        creates = epochs.pop("creates", False)
        for group_id, states in groups.items():
            answer = []
            for topic in states:
                results: list[PartitionStateResult | None] = []
                for request in topic.partitions:
                    refused = shard.form_fault(
                        topic.topic_id,
                        request,
                        leader_epoch=epochs.get("leader_epoch", False),
                        state_epoch=epochs.get("state_epoch", False),
                    )
                    if refused is not None or topic.topic_id is None:
                        results.append(refused.result if refused else None)
                        continue
                    key = SharePartitionKey(group_id, topic.topic_id, request.partition)
                    topic_fault = topics.fault(topic.topic_id, request.partition, unreachable)
                    items.append(Item(key, _bind(rule, request, topic_fault), creates and topic_fault is None))
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
        (results,) = await run({request.group_id: request.topics}, rule, **flags)
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
        results: list[GroupStateResult] = []
        merged: dict[str, list[TopicState]] = {}
        for group in request.groups:
            merged.setdefault(group.group_id, []).extend(group.topics)
        answered = await run(merged, write_rule, leader_epoch=True, state_epoch=True)
        by_group = {group_id: iter(answer) for group_id, answer in zip(merged, answered, strict=True)}
        for group in request.groups:
            answer = [next(by_group[group.group_id]) for _ in group.topics]
            results.append(GroupStateResult(group_id=group.group_id, results=answer))
        return WriteBatchResponse(groups=results)

    async def delete(call: Call) -> ShareStateResponse:
        return await of_group(call, shard.delete)

    async def read_summary(call: Call) -> ShareStateResponse:
        return await of_group(call, shard.read_summary)

    async def topic_deleted(call: Call) -> TopicDeletedResponse:
        request: TopicDeletedRequest = call.request
        topics.deleted(request.topic_id)
        try:
            return TopicDeletedResponse(shards=await coordinator.delete_topic(request.topic_id))
        except (*LOST, asyncpg.PostgresError) as fault:
            raise CoordinatorNotAvailable(f"the state cannot be deleted now: {fault!r}") from fault

    async def ready() -> Readiness:
        dependencies = {"postgresql": "ok", "group coordinator": "ok", "shards": ownership.missing() or "ok"}
        status = "degraded" if ownership.missing() else "ready"
        try:
            await group_coordinators.call(apis.LIVEZ, deadline_s=1, retry=False)
        except ApiError as error:
            dependencies["group coordinator"] = error.detail
            status = "degraded"
        try:
            await coordinator.ping()
        except (*LOST, asyncpg.PostgresError) as fault:
            dependencies["postgresql"] = repr(fault)
            status = "unavailable"
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


def _bind(rule: Rule, request: PartitionState, topic: Decision | None) -> Callable[[KeyState | None], Decision]:
    return lambda state: rule(state, request, topic)

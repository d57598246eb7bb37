"""Sends appends to the gateway that should append to their partition, so that gateways do not collide there.

That is the gateway that leads the partition for most groups that read it now: what it appends, it has in memory, and
the fetches that wait for it are there. Without groups it is the one that sweeps the partition. It is a hint: it needs
no lease and no epoch, PostgreSQL decides about each append, and any gateway may append at any time. So a gateway
appends to a partition itself until it has read its groups. It reads those of partitions in use again every second. A
gateway that does not answer gets no append for a while.

Such an append always has a key: its own, or one that this gateway makes. If no answer comes, this gateway appends under
the same key. So the records are appended once, even if the other gateway was paused and continues later.
"""

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec import Raw

from sharequeue.protocol import apis
from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue.protocol.messages.leaders import AppendHereRequest, AppendHereResponse
from sharequeue.protocol.types import SharePartitionKey, TopicIdPartition
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.producing.producer import produced_body
from sharequeue_gateway.record_log.append_store import new_append_id
from sharequeue_gateway.record_log.log import AppendResult, Appends, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LOOK_PAUSE_S: Final = 1.0
MOST_LOOKED_AT: Final = 1000
"""The most partitions of one look. Appends to the others stay here."""
MOST_REMEMBERED: Final = 20_000
ANSWER_S: Final = 1.0
"""The time that another gateway has to append."""
AVOIDED_S: Final = 5.0
MOST_BYTES: Final = 256 * 1024
"""A larger append goes to no other gateway: the way there costs more than a collision."""
PATH: Final = "append"
"""The path in the key that a gateway makes for an append. No request has it."""


@dataclass(eq=False)
class RoutedAppends:
    """Appends at the gateways that should, and here what other gateways send. `run` must be running."""

    _cluster: Cluster
    _metadata: Metadata
    _readers: Readers
    _appender: Appends

    def __post_init__(self) -> None:
        self._used: set[TopicIdPartition] = set()
        """The partitions that were appended to since the last look."""
        self._looked_at: dict[TopicIdPartition, Node | None] = {}
        """The gateways that should append, by partition; None: this one."""
        self._generation = self._cluster.generation
        self._avoided_until: dict[Node, float] = {}

    async def append(
        self, appends: Sequence[PartitionAppend], idempotency_key: IdempotencyKey | None = None
    ) -> AppendResult:
        """As `Appends.append`."""
        node = self._node_of(appends, idempotency_key)
        if node is None:
            return await self._appender.append(appends, idempotency_key)
        (append,) = appends
        key = idempotency_key or IdempotencyKey("", PATH, append.topic_id, new_append_id(), b"", lambda _: b"")
        try:
            return await self._append_at(node, append, key)
        except ApiError as unanswered:
            if unanswered.definite:
                return await self._appender.append(appends, idempotency_key)
        try:
            result = await self._appender.append(appends, key)
        except ApiError as error:  # the appender knows nothing of the try at the other gateway
            error.definite = error.definite and isinstance(error, InvalidRequest)
            raise
        return AppendResult(result.base_offsets, None) if idempotency_key is None else result

    def _node_of(self, appends: Sequence[PartitionAppend], key: IdempotencyKey | None) -> Node | None:
        """The other gateway that should append; None: this one, or another one could not answer or would be held up."""
        append, *others = appends
        if others or (key is not None and not key.plain) or sum(map(len, append.tails)) > MOST_BYTES:
            return None
        place = append.topic_id, append.partition
        self._used.add(place)
        node = self._looked_at.get(place)
        return None if node is None or time.monotonic() < self._avoided_until.get(node, 0.0) else node

    async def _append_at(self, node: Node, append: PartitionAppend, key: IdempotencyKey) -> AppendResult:
        """Append at another gateway. The result has an `answer` if an earlier request had the key.

        Raises: ApiError: it did not append; or, not definite, it may have.
        """
        request = AppendHereRequest(
            topic_id=append.topic_id,
            partition=append.partition,
            records=[Raw(b"{" + tail[1:]) for tail in append.tails],
            max_timestamp_ms=append.max_timestamp_ms,
            key=key.key,
            path=key.path,
            caller=key.caller,
            fingerprint=key.fingerprint,
            lasting=key.lasting,
        )
        try:
            answer: AppendHereResponse = await self._cluster.client(node).call(
                apis.APPEND_HERE, request, deadline_s=ANSWER_S, retry=False
            )
        except ApiError as error:
            metrics.APPENDS_ELSEWHERE["refused" if error.definite else "unanswered"].inc()
            if error.error.retriable or not error.definite:
                self._avoid(node, error)
            raise
        metrics.APPENDS_ELSEWHERE["appended"].inc()
        return AppendResult([answer.base_offset], answer.first or None, bool(answer.first), node)

    def _avoid(self, node: Node, error: ApiError) -> None:
        if time.monotonic() >= self._avoided_until.get(node, 0.0):
            log.info(
                "another gateway appends nothing for this one", extra=fields(node_id=node.node_id, cause=error.detail)
            )
        self._avoided_until[node] = time.monotonic() + AVOIDED_S

    async def append_here(self, request: AppendHereRequest) -> AppendHereResponse:
        """Append for another gateway. Raises: as `Appender.append`."""
        if not await self._metadata.exist((request.topic_id,)):
            raise UnknownTopicOrPartition("the topic was deleted")
        tails = [b"," + bytes(record)[1:] for record in request.records]
        append = PartitionAppend(request.topic_id, request.partition, tails, request.max_timestamp_ms)
        body = partial(produced_body, [append], None) if request.fingerprint else lambda _: b""
        asked = request.caller, request.path, request.topic_id, request.key, request.fingerprint
        key = IdempotencyKey(*asked, body, request.lasting)
        result = await self._appender.append([append], key)
        first = result.answer if result.repeated and result.answer else b""
        return AppendHereResponse(base_offset=result.base_offsets[0], first=first)

    async def run(self) -> None:
        """Look at the readers of the partitions in use. Never returns."""
        async for _ in Every(LOOK_PAUSE_S):
            if self._used:
                await self._look()

    async def _look(self) -> None:
        used, self._used = list(self._used)[:MOST_LOOKED_AT], set()
        if self._generation is not self._cluster.generation or len(self._looked_at) > MOST_REMEMBERED:
            self._generation = self._cluster.generation
            self._looked_at.clear()
            self._avoided_until.clear()
        with looking("readers", "cannot read who reads partitions"):
            for place, group_ids in await self._readers.groups_of(used):
                node = self._choose(place, group_ids)
                self._looked_at[place] = None if node == self._cluster.me else node

    def _choose(self, place: TopicIdPartition, groups: list[str]) -> Node:
        """The gateway that leads a partition for most of these groups. Every gateway chooses the same one."""
        generation = self._generation
        counts = Counter(generation.leader_of(SharePartitionKey(group, *place)) for group in groups)
        counts[generation.sweeper_of(*place)] += 0
        return max(counts, key=lambda node: (counts[node], node))

"""Routes acknowledgements: each leader gets those of its share-partitions, and the results keep their order.

An acknowledgement that was refused because leadership moved is repeated at the new leader. If the outcome is unknown,
it is repeated only with `delivery_count`, because only then can the repeat find out the outcome.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.protocol import apis
from sharequeue.protocol.errors import KAFKA_CODES, NotLeaderOrFollower
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import MAX_ACKNOWLEDGEMENTS
from sharequeue.repeats import LEADER_MOVED, Tries
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import APPLIED, Acknowledger, ask_for_topics, failed, type_names
from sharequeue_gateway.routing.routing import MOVED, Routing
from sharequeue_gateway.share_partition.stream_window import SentRange
from sharequeue_http.forms.errors import ApiError, InvalidRequest

log = logging.getLogger(__name__)

NOT_LEADER: Final = KAFKA_CODES[NotLeaderOrFollower.error]


@dataclass(eq=False)
class RoutedAcknowledger:
    """Applies the acknowledgements of one call at their leaders."""

    _routing: Routing
    _local: Acknowledger
    _metadata: Metadata

    async def acknowledge(self, group_id: str, request: LeaderAcknowledgeRequest) -> list[AcknowledgementResult]:
        """As `Acknowledger.acknowledge`, over all leaders."""
        if self._routing.cluster.alone:
            return await self.repeat_moved(group_id, request, await self._local.acknowledge(group_id, request))
        results = [APPLIED] * len(request.acknowledgements)  # each is replaced
        await self._acknowledge_left(group_id, request, results, range(len(results)))
        return results

    async def repeat_moved(
        self, group_id: str, request: LeaderAcknowledgeRequest, results: list[AcknowledgementResult]
    ) -> list[AcknowledgementResult]:
        """Repeat the acknowledgements that this gateway refused because leadership moved; with others beside it, also
        those that it could not make. Returns: all results."""
        alone, acknowledgements = self._routing.cluster.alone, request.acknowledgements
        left = [
            index
            for index, result in enumerate(results)
            if result.kafka_code == NOT_LEADER or (not alone and _try_again(acknowledgements[index], result))
        ]
        await self._acknowledge_left(group_id, request, results, left)
        return results

    async def _acknowledge_left(
        self,
        group_id: str,
        request: LeaderAcknowledgeRequest,
        results: list[AcknowledgementResult],
        left: Sequence[int],
    ) -> None:
        """Acknowledge the indexes `left` at their leaders. Repeat those that moved, as LEADER_MOVED says.

        A repeat may find its records finished: by the try without an answer, or because their lock ended before that.
        Nobody knows which, so the outcome stays unknown.
        """
        tries = Tries(LEADER_MOVED)
        acknowledgements = request.acknowledgements
        doubted: dict[int, AcknowledgementResult] = {}
        while left:
            doubted.update((index, results[index]) for index in left if results[index].status == "unknown")
            nodes = await leaders_of(
                self._routing, self._metadata, [(group_id, acknowledgements[index]) for index in left]
            )
            split: dict[Node, list[int]] = {}
            for index, node in zip(left, nodes, strict=True):
                split.setdefault(node, []).append(index)
            await asyncio.gather(*(self._at(node, group_id, request, results, some) for node, some in split.items()))
            left = [index for index in left if _try_again(acknowledgements[index], results[index])]
            for index, unknown in doubted.items():
                if results[index].status == "ignored" and not _renews(acknowledgements[index]):
                    results[index] = unknown
            if not left:
                return
            self._routing.cluster.look_again()
            if not await tries.pause():
                return

    async def _at(
        self,
        node: Node,
        group_id: str,
        request: LeaderAcknowledgeRequest,
        results: list[AcknowledgementResult],
        indexes: Sequence[int],
    ) -> None:
        some = structs.replace(request, acknowledgements=[request.acknowledgements[index] for index in indexes])
        if node == self._routing.cluster.me:
            answered = await self._local.acknowledge(group_id, some)
        else:
            try:
                answer = await self._routing.gateways.call(node, apis.ACKNOWLEDGE_AT_LEADER, some, group=group_id)
                answered = answer.results
            except ApiError as error:
                answered = [failed(error)] * len(indexes)
        for index, result in zip(indexes, answered, strict=True):
            results[index] = result

    async def release(self, group_id: str, member_id: str, parts: Iterable[SentRange], *, seen: bool) -> None:
        """Release what a member that is gone holds. What it has not `seen` was not begun. Locks that cannot be released
        now end by time."""
        releases = [
            Acknowledgement(
                topic=name,
                topic_id=part.topic_id,
                partition=part.partition,
                first_offset=part.first_offset,
                last_offset=part.last_offset,
                delivery_count=part.delivery_count,
                type="release",
                begun=seen,
            )
            for part in parts
            if (name := self._metadata.name_of(part.topic_id)) is not None
        ]
        for begin in range(0, len(releases), MAX_ACKNOWLEDGEMENTS):
            some = releases[begin : begin + MAX_ACKNOWLEDGEMENTS]
            request = LeaderAcknowledgeRequest(member_id=member_id, acknowledgements=some, seen=seen)
            try:
                await self.acknowledge(group_id, request)
            except ApiError as error:
                log.info("the records of a client that is gone stay held: %s", error.detail)


async def leaders_of(routing: Routing, metadata: Metadata, items: Sequence[tuple[str, Acknowledgement]]) -> list[Node]:
    """The leader of each acknowledgement; of one with an unknown topic this gateway, whose check says why."""
    await ask_for_topics(metadata, (item for _, item in items))
    topics = ((group_id, metadata.by_name.get(item.topic), item.partition) for group_id, item in items)
    return [
        routing.cluster.me if topic is None else routing.leader_of(group_id, topic, n) for group_id, topic, n in topics
    ]


def _try_again(acknowledgement: Acknowledgement, result: AcknowledgementResult) -> bool:
    if result.kafka_code not in MOVED:
        return False
    return result.status == "failed" or acknowledgement.delivery_count is not None


def _renews(acknowledgement: Acknowledgement) -> bool:
    """Return whether it has a renewal. False if its types are invalid: its leader refuses them."""
    try:
        return acknowledgement.type == "renew" or "renew" in (type_names(acknowledgement) or ())
    except InvalidRequest:
        return False

"""Routes acknowledgements: each leader gets those of its share-partitions, and the results keep their order.

An acknowledgement that was refused because leadership moved is repeated at the new leader. If the outcome is unknown,
it is repeated only with `delivery_count`, because only then can the repeat find out the outcome.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.protocol.errors import KAFKA_CODES, NotLeaderOrFollower
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.repeats import LEADER_MOVED, Tries
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import APPLIED, Acknowledger, ask_for_topics, failed, type_names
from sharequeue_gateway.routing.routing import MOVED, Routing
from sharequeue_http.forms.errors import ApiError, InvalidRequest

NOT_LEADER: Final = KAFKA_CODES[NotLeaderOrFollower.error]


@dataclass(eq=False)
class RoutedAcknowledger:
    """Applies the acknowledgements of one call at their leaders."""

    _routing: Routing
    _local: Acknowledger
    _metadata: Metadata

    async def acknowledge(self, group_id: str, request: LeaderAcknowledgeRequest) -> list[AcknowledgementResult]:
        """As `Acknowledger.acknowledge`, over all leaders."""
        left: Sequence[int] = range(len(request.acknowledgements))
        results = [APPLIED] * len(left)  # each is replaced
        if self._routing.cluster.alone:
            results = await self._local.acknowledge(group_id, request)
            left = [index for index, result in enumerate(results) if result.kafka_code == NOT_LEADER]
        await self._acknowledge_left(group_id, request, results, left)
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
        """Acknowledge the `indexes` at one leader."""
        some = structs.replace(request, acknowledgements=[request.acknowledgements[index] for index in indexes])
        if node == self._routing.cluster.me:
            answered = await self._local.acknowledge(group_id, some)
        else:
            try:
                answered = await self._routing.gateways.acknowledge(node, group_id, some)
            except ApiError as error:
                answered = [failed(error)] * len(indexes)
        for index, result in zip(indexes, answered, strict=True):
            results[index] = result


async def leaders_of(routing: Routing, metadata: Metadata, items: Sequence[tuple[str, Acknowledgement]]) -> list[Node]:
    """The leader of each acknowledgement of a group. One with an unknown topic stays here: the check gives the
    reason."""
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

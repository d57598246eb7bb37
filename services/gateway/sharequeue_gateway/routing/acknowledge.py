"""Routes acknowledgements: each leader gets those of its share-partitions, and the results keep their order.

An acknowledgement that was refused because leadership moved is repeated at the new leader. If the outcome is unknown,
it is repeated only with `delivery_count`, because only then can the repeat find out the outcome.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.protocol.errors import KAFKA_CODES, NotLeaderOrFollower
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import Acknowledgement, AcknowledgeRequest
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

    async def acknowledge(
        self,
        group_id: str,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        *,
        atomic: bool,
        renew: bool = True,
        seen: bool = True,
    ) -> list[AcknowledgementResult]:
        """As `Acknowledger.acknowledge`, over all leaders."""
        left: Sequence[int] = range(len(acknowledgements))
        results = [APPLIED] * len(acknowledgements)  # each is replaced
        if self._routing.cluster.alone:
            results = await self._local.acknowledge(
                group_id, member_id, acknowledgements, atomic=atomic, renew=renew, seen=seen
            )
            left = [index for index, result in enumerate(results) if result.kafka_code == NOT_LEADER]
        await self._acknowledge_left(group_id, member_id, acknowledgements, results, left, atomic, renew, seen)
        return results

    async def repeat_moved(
        self, group_id: str, request: AcknowledgeRequest, results: list[AcknowledgementResult]
    ) -> list[AcknowledgementResult]:
        """Repeat the acknowledgements that this gateway refused because leadership moved; with others beside it, also
        those that it could not make. Returns: all results."""
        alone, acknowledgements = self._routing.cluster.alone, request.acknowledgements
        left = [
            index
            for index, result in enumerate(results)
            if result.kafka_code == NOT_LEADER or (not alone and _try_again(acknowledgements[index], result))
        ]
        await self._acknowledge_left(
            group_id, request.member_id, request.acknowledgements, results, left, request.atomic, True
        )
        return results

    async def _acknowledge_left(
        self,
        group_id: str,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        results: list[AcknowledgementResult],
        left: Sequence[int],
        atomic: bool,
        renew: bool,
        seen: bool = True,
    ) -> None:
        """Acknowledge the indexes `left` at their leaders. Repeat those that moved, as LEADER_MOVED says.

        A repeat may find its records finished: by the try without an answer, or because their lock ended before that.
        Nobody knows which, so the outcome stays unknown.
        """
        tries = Tries(LEADER_MOVED)
        doubted: dict[int, AcknowledgementResult] = {}
        while left:
            doubted.update((index, results[index]) for index in left if results[index].status == "unknown")
            split = await self._split(group_id, acknowledgements, left, renew)
            work = [
                self._at(node, group_id, member_id, acknowledgements, results, indexes, atomic, renew, seen)
                for node, indexes in split.items()
            ]
            if len(work) > 1:
                await asyncio.gather(*work)
            else:
                await work[0]
            left = [index for index in left if _try_again(acknowledgements[index], results[index])]
            for index, unknown in doubted.items():
                if results[index].status == "ignored" and not _renews(acknowledgements[index]):
                    results[index] = unknown
            if not left:
                return
            self._routing.cluster.look_again()
            if not await tries.pause():
                return

    async def _split(
        self, group_id: str, acknowledgements: Sequence[Acknowledgement], indexes: Sequence[int], renew: bool
    ) -> dict[Node, list[int]]:
        """Indexes by leader. An acknowledgement with an invalid form stays here, where the check gives the reason."""
        split: dict[Node, list[int]] = {}
        await ask_for_topics(self._metadata, (acknowledgements[index] for index in indexes))
        for index in indexes:
            acknowledgement = acknowledgements[index]
            if not renew and _renews(acknowledgement):
                split.setdefault(self._routing.cluster.me, []).append(index)
                continue
            topic = self._metadata.by_name.get(acknowledgement.topic)
            if topic is None:
                split.setdefault(self._routing.cluster.me, []).append(index)
                continue
            leader = self._routing.leader_of(group_id, topic, acknowledgement.partition)
            split.setdefault(leader, []).append(index)
        return split

    async def _at(
        self,
        node: Node,
        group_id: str,
        member_id: str,
        acknowledgements: Sequence[Acknowledgement],
        results: list[AcknowledgementResult],
        indexes: Sequence[int],
        atomic: bool,
        renew: bool,
        seen: bool,
    ) -> None:
        """Acknowledge the `indexes` at one leader."""
        some = [acknowledgements[index] for index in indexes]
        if node == self._routing.cluster.me:
            answered = await self._local.acknowledge(group_id, member_id, some, atomic=atomic, renew=renew, seen=seen)
        else:
            request = LeaderAcknowledgeRequest(member_id=member_id, acknowledgements=some, atomic=atomic, seen=seen)
            try:
                answered = await self._routing.gateways.acknowledge(node, group_id, request)
            except ApiError as error:
                answered = [failed(error)] * len(indexes)
        for index, result in zip(indexes, answered, strict=True):
            results[index] = result


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

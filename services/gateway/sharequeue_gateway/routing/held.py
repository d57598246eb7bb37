"""Asks all leaders what a member holds: see `delivery/held_records.py`."""

import asyncio
from dataclasses import dataclass

from msgspec import structs

from sharequeue.protocol.messages.leaders import HeldRequest
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import STREAM_HOLDS
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.delivery.held_records import HeldRecords
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.routing.fetched import Fetched, decoded
from sharequeue_gateway.routing.routing import Routing
from sharequeue_http.forms.errors import ApiError


@dataclass(eq=False)
class RoutedHeld:
    """Asks the leaders of ranges."""

    _routing: Routing
    _local: HeldRecords
    _metadata: Metadata

    async def look(self, group_id: str, request: HeldRequest) -> Fetched:
        """Return what the member holds of the ranges. A partition whose leader does not answer is a fault."""
        mine, others = self._split(group_id, request)
        found = Fetched(*await self._local.look(group_id, mine))
        asking = (self._routing.gateways.held(node, group_id, there) for node, there in others.items())
        answers = await asyncio.gather(*asking, return_exceptions=True)
        for (node, there), answer in zip(others.items(), answers, strict=True):
            if isinstance(answer, bytes):
                found = found.with_answer(node, decoded(answer))
            elif not isinstance(answer, ApiError):
                raise answer
            else:
                self._routing.cluster.look_again()
                places = dict.fromkeys(part[:2] for part in there.ranges)
                names = [(self._metadata.name_of(topic_id) or topic_id, partition) for topic_id, partition in places]
                faults = [PartitionFault(*name, answer) for name in names]
                found = structs.replace(found, faults=[*found.faults, *faults])
        return found

    async def until_less(self, waiting: WaitingFetch, group_id: str, request: HeldRequest) -> None:
        """Wait until a leader says that the member no longer holds all of the ranges, or until the time is over."""
        mine, others = self._split(group_id, request)

        async def wait_at(node: Node, there: HeldRequest) -> None:
            try:
                await self._routing.gateways.held(node, group_id, there)
            except ApiError:
                self._routing.cluster.look_again()
                await STREAM_HOLDS.pause(STREAM_HOLDS.most_s)  # the other leaders may wake it before
            waiting.wake()

        tasks = [asyncio.create_task(wait_at(node, there)) for node, there in others.items()]
        try:
            await self._local.wait(waiting, group_id, mine)
        finally:
            for task in tasks:
                task.cancel()

    def _split(self, group_id: str, request: HeldRequest) -> tuple[HeldRequest, dict[Node, HeldRequest]]:
        """The request for the ranges that this gateway leads, and those for each other gateway."""
        split: dict[Node, HeldRequest] = {}
        me = self._routing.cluster.me
        for part in request.ranges:
            node = self._routing.cluster.leader_of(SharePartitionKey(group_id, *part[:2]))
            split.setdefault(node, structs.replace(request, ranges=[])).ranges.append(part)
        return split.pop(me, structs.replace(request, ranges=[])), split

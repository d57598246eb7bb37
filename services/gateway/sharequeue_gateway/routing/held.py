"""Asks all leaders what a member holds: see `delivery/held_records.py`."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from sharequeue.protocol.messages.leaders import HeldOffsets, HeldRequest
from sharequeue.repeats import STREAM_HOLDS
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.delivery.held_records import HeldRecords, OffsetsOf
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.routing.fetched import Fetched, decoded
from sharequeue_gateway.routing.routing import Routing
from sharequeue_http.forms.errors import ApiError


class RoutedHeld:
    """Asks the leaders of ranges."""

    def __init__(self, routing: Routing, local: HeldRecords) -> None:
        self._routing = routing
        self._local = local

    async def look(
        self,
        group_id: str,
        member_id: str,
        ranges: Sequence[OffsetsOf],
        *,
        with_records: bool = False,
        settling: bool = False,
    ) -> Fetched:
        """Return what the member holds of `ranges`. A partition whose leader does not answer is a fault."""
        mine, others = self._split(group_id, ranges)
        acquired, faults = await self._local.look(
            group_id, member_id, mine, with_records=with_records, settling=settling
        )
        found = Fetched(acquired, faults)

        async def ask(node: Node, there: list[OffsetsOf]) -> bytes | ApiError:
            try:
                request = _request(member_id, there, with_records=with_records, settling=settling)
                return await self._routing.gateways.held(node, group_id, request)
            except ApiError as error:
                self._routing.cluster.look_again()
                return error

        answers = await asyncio.gather(*(ask(node, there) for node, there in others.items()))
        for (node, there), answer in zip(others.items(), answers, strict=True):
            if isinstance(answer, bytes):
                found = found.with_answer(node, decoded(answer))
            else:
                places = dict.fromkeys((topic.name, partition) for topic, partition, *_ in there)
                found = structs.replace(
                    found, faults=[*found.faults, *(PartitionFault(*place, answer) for place in places)]
                )
        return found

    async def until_less(
        self, waiting: WaitingFetch, group_id: str, member_id: str, ranges: Sequence[OffsetsOf], seconds: float
    ) -> None:
        """Wait until a leader says that the member no longer holds all of `ranges`, or until the time is over."""
        mine, others = self._split(group_id, ranges)

        async def wait_at(node: Node, there: list[OffsetsOf]) -> None:
            try:
                request = _request(member_id, there, max_wait_ms=int(seconds * 1000))
                await self._routing.gateways.held(node, group_id, request)
            except ApiError:
                self._routing.cluster.look_again()
                await STREAM_HOLDS.pause(STREAM_HOLDS.most_s)  # the other leaders may wake it before
            waiting.wake()

        tasks = [asyncio.create_task(wait_at(node, there)) for node, there in others.items()]
        try:
            await self._local.wait(waiting, group_id, member_id, mine, seconds)
        finally:
            for task in tasks:
                task.cancel()

    def _split(self, group_id: str, ranges: Sequence[OffsetsOf]) -> tuple[list[OffsetsOf], dict[Node, list[OffsetsOf]]]:
        """The ranges that this gateway leads, and those of each other gateway."""
        mine: list[OffsetsOf] = []
        others: dict[Node, list[OffsetsOf]] = {}
        for part in ranges:
            leader = self._routing.leader_of(group_id, part.topic, part.partition)
            if leader == self._routing.cluster.me:
                mine.append(part)
            else:
                others.setdefault(leader, []).append(part)
        return mine, others


def _request(
    member_id: str,
    ranges: Sequence[OffsetsOf],
    *,
    with_records: bool = False,
    settling: bool = True,
    max_wait_ms: int = 0,
) -> HeldRequest:
    return HeldRequest(
        member_id=member_id,
        ranges=[
            HeldOffsets(topic=topic.name, partition=partition, first_offset=first_offset, last_offset=last_offset)
            for topic, partition, first_offset, last_offset in ranges
        ],
        with_records=with_records,
        settling=settling,
        max_wait_ms=max_wait_ms,
    )

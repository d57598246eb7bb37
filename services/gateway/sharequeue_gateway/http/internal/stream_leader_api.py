"""The calls of a stream's gateway: at a leader, what a member holds; at a gateway that had the stream, to end it."""

from dataclasses import dataclass

from sharequeue.protocol.messages.leaders import HeldRequest, TakeStreamRequest, TakeStreamResponse
from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue.protocol.types import MAX_WAIT_MS
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.delivery.held_records import HeldRecords, OffsetsOf
from sharequeue_gateway.delivery.waiting import WaitingFetches
from sharequeue_gateway.http.answers.fetch_answer import fetch_answer, leaders_here
from sharequeue_gateway.http.named_partitions import led_here
from sharequeue_gateway.routing.streams import Streams
from sharequeue_http.answer import JSON, Answer
from sharequeue_http.application.endpoint import Call


@dataclass(eq=False)
class StreamLeaderApi:
    """The handlers of heldAtLeader and takeStream."""

    _metadata: Metadata
    _cluster: Cluster
    _held: HeldRecords
    _fetches: WaitingFetches
    _streams: Streams

    async def held(self, call: Call) -> Answer:
        request: HeldRequest = call.request
        group_id, member_id = call.path["group"], request.member_id
        ranges, faults = await self._led(group_id, request)
        if request.max_wait_ms and not faults:
            waiting = self._fetches.new(call.exchange)
            self._fetches.routed[waiting] = group_id
            try:
                await self._held.wait(
                    waiting, group_id, member_id, ranges, min(request.max_wait_ms, MAX_WAIT_MS) / 1000
                )
            finally:
                del self._fetches.routed[waiting]
                waiting.close()
        held, more_faults = await self._held.look(
            group_id, member_id, ranges, with_records=request.with_records, settling=request.settling
        )
        body = fetch_answer(
            member_id,
            self._metadata.lock_duration_ms(group_id),
            held,
            (),
            0,
            [*faults, *more_faults],
            with_records=request.with_records,
            leaders=leaders_here(held, self._cluster.me),
        )
        return Answer(body, headers=(JSON,))

    async def take_stream(self, call: Call) -> TakeStreamResponse:
        request: TakeStreamRequest = call.request
        return self._streams.take(call.path["group"], request.member_id)

    async def _led(self, group_id: str, request: HeldRequest) -> tuple[list[OffsetsOf], list[PartitionFault]]:
        """The ranges of share-partitions that this gateway leads; the others become faults, one for each partition."""
        named: dict[str, dict[int, None]] = {}
        for part in request.ranges:
            named.setdefault(part.topic, {})[part.partition] = None
        asked = [TopicPartitions(topic=topic, partitions=list(partitions)) for topic, partitions in named.items()]
        led, faults = await led_here(self._metadata, self._cluster, group_id, asked)
        topics = {(topic.name, partition): topic for topic, partition in led}
        return [
            OffsetsOf(topic, part.partition, part.first_offset, part.last_offset)
            for part in request.ranges
            if (topic := topics.get((part.topic, part.partition))) is not None
        ], faults

"""The calls of a stream's gateway: at a leader, what a member holds; at a gateway that had the stream, to end it."""

from dataclasses import dataclass

from sharequeue.protocol.messages.leaders import HeldRequest, TakeStreamRequest, TakeStreamResponse
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.held_records import HeldRecords
from sharequeue_gateway.delivery.waiting import WaitingFetches
from sharequeue_gateway.http.answers.fetch_answer import fetch_answer, leaders_here
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
        group_id = call.path["group"]
        if request.max_wait_ms:
            waiting = self._fetches.new(call.exchange)
            self._fetches.routed[waiting] = group_id
            try:
                await self._held.wait(waiting, group_id, request)
            finally:
                del self._fetches.routed[waiting]
                waiting.close()
        held, faults = await self._held.look(group_id, request)
        body = fetch_answer(
            request.member_id,
            self._metadata.lock_duration_ms(group_id),
            held,
            (),
            0,
            faults,
            with_records=request.with_records,
            leaders=leaders_here(held, self._cluster.me),
        )
        return Answer(body, headers=(JSON,))

    async def take_stream(self, call: Call) -> TakeStreamResponse:
        request: TakeStreamRequest = call.request
        return self._streams.take(call.path["group"], request.member_id)

"""The calls between gateways: one gateway calls the leader of share-partitions, or the one that had a stream."""

import contextlib
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.clock import Clock
from sharequeue.protocol.messages import leaders as messages
from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.records import AcknowledgeResponse
from sharequeue.protocol.types import MAX_WAIT_MS
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.acknowledging import Acknowledger, failed_of
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.held_records import HeldRecords
from sharequeue_gateway.delivery.holding import Holder
from sharequeue_gateway.delivery.waiting import Life
from sharequeue_gateway.http.answers.fetch_answer import fetch_answer, leaders_here
from sharequeue_gateway.http.named_partitions import led_here
from sharequeue_gateway.leader.loading.hand_over import HandOver
from sharequeue_gateway.leader.pending_transactions import PendingTransactions
from sharequeue_gateway.routing.sessions import Sessions
from sharequeue_gateway.routing.streams import Streams
from sharequeue_http.answer import JSON, Answer
from sharequeue_http.application.endpoint import Call

_ENDED: Final = (JSON, (messages.ENDED.encode(), b"1"))


@dataclass(eq=False)
class LeaderApi:
    """The handlers of these calls."""

    clock: Clock
    metadata: Metadata
    cluster: Cluster
    hand_over: HandOver
    fetcher: Fetcher
    acknowledger: Acknowledger
    holder: Holder
    pending: PendingTransactions
    sessions: Sessions
    records_held: HeldRecords
    streams: Streams

    async def fetch_from_leader(self, call: Call) -> Answer:
        request: messages.LeaderFetchRequest = call.request
        group_id, member_id = call.path["group"], request.asked.member_id
        partitions, faults = await led_here(self.metadata, self.cluster, group_id, request.topic_partitions)
        now_ms = self.clock.now_ms()
        wait_ms = 0 if any(fault.led_elsewhere for fault in faults) else request.asked.wait_ms
        limits = structs.replace(request.asked.limits, deadline_ms=now_ms + wait_ms)
        asked = structs.replace(request.asked, limits=limits, now_ms=now_ms)
        acquired: list[AcquiredRecords] = []
        with contextlib.closing(self.fetcher.fetches.new(call.exchange)) as waiting:
            if partitions:
                acquired, more_faults = await self.fetcher.fetch(waiting, asked, partitions)
                faults += more_faults
            if waiting.gone() and asked.fetch_id is None:  # with an id, a repeat may have got the same records by now
                self.fetcher.give_back(member_id, acquired)
        body = fetch_answer(
            member_id,
            self.metadata.lock_duration_ms(group_id),
            acquired,
            faults,
            with_records=asked.with_records,
            leaders=leaders_here(acquired, self.cluster.me),
            paused=not acquired and self.metadata.paused(group_id),
        )
        if waiting.life is Life.ENDED:
            return Answer(body, headers=_ENDED)
        if waiting.too_few and not acquired:
            return Answer(body, headers=(JSON, (messages.TOO_FEW.encode(), b"%d %d" % waiting.too_few)))
        return Answer(body, headers=(JSON,))

    async def acknowledge_at_leader(self, call: Call) -> AcknowledgeResponse:
        request: messages.LeaderAcknowledgeRequest = call.request
        group_id = call.path["group"]
        results = await self.acknowledger.acknowledge(group_id, request)
        return AcknowledgeResponse(
            results=results,
            failed_count=failed_of(results),
            acquisition_lock_timeout_ms=self.metadata.lock_duration_ms(group_id),
        )

    async def await_records(self, call: Call) -> Answer:
        request: messages.AwaitRecordsRequest = call.request
        group_id = call.path["group"]
        partitions, faults = await led_here(self.metadata, self.cluster, group_id, request.topic_partitions)
        if faults:
            raise faults[0].error
        with contextlib.closing(self.fetcher.fetches.new(call.exchange)) as waiting:
            leds = await self.fetcher.delayed.wait(
                waiting, group_id, partitions, min(request.max_wait_ms, MAX_WAIT_MS) / 1000
            )
        self.fetcher.delayed.pass_on_later(leds)
        return Answer(b"{}", headers=_ENDED if waiting.life is Life.ENDED else (JSON,))

    async def release_at_leader(self, call: Call) -> Empty:
        request: messages.ReleaseMemberRequest = call.request
        group_id = call.path["group"]
        partitions, _ = await led_here(self.metadata, self.cluster, group_id, request.topic_partitions)
        await self.sessions.release_here(group_id, request.member_id, partitions)
        return Empty()

    async def held_at_leader(self, call: Call) -> Answer:
        request: messages.HeldRequest = call.request
        group_id, fetches = call.path["group"], self.fetcher.fetches
        if request.max_wait_ms:
            with contextlib.closing(fetches.new(call.exchange)) as waiting:
                fetches.routed[waiting] = group_id
                try:
                    await self.records_held.wait(waiting, group_id, request)
                finally:
                    del fetches.routed[waiting]
        held, faults = await self.records_held.look(group_id, request)
        body = fetch_answer(
            request.member_id,
            self.metadata.lock_duration_ms(group_id),
            held,
            faults,
            with_records=request.with_records,
            leaders=leaders_here(held, self.cluster.me),
        )
        return Answer(body, headers=(JSON,))

    async def take_stream(self, call: Call) -> messages.TakeStreamResponse:
        request: messages.TakeStreamRequest = call.request
        return self.streams.take(call.path["group"], request.member_id)

    async def hold_at_leader(self, call: Call) -> messages.HoldResponse:
        return await self.holder.hold(call.path["group"], call.request)

    async def transaction_ended(self, call: Call) -> Empty:
        request: messages.SharePartitions = call.request
        await self.pending.ended(call.path["transaction"], request.share_partitions)
        return Empty()

    async def yield_share_partitions(self, call: Call) -> messages.YieldResponse:
        request: messages.SharePartitions = call.request
        led = await self.hand_over.yield_to_next(request.share_partitions)
        return messages.YieldResponse(held=[(each.key, each.machine.left_locks()) for each in led])

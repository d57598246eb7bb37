"""Fetch and acknowledge. Checks the request, keeps the session, builds the answer."""

import asyncio
import uuid
from collections.abc import Coroutine, Sequence
from typing import Final

import msgspec

from sharequeue.clock import Clock
from sharequeue.http.caller import encode
from sharequeue.http.serving import JSON, Answer, Call
from sharequeue.protocol import messages
from sharequeue.protocol.errors import (
    BY_CODE,
    ApiError,
    InvalidRequest,
    Throttled,
    UnknownTopicId,
)
from sharequeue.protocol.messages import Acknowledgement, AcknowledgementResult, AcknowledgeRequest, FetchRequest
from sharequeue.protocol.types import DEFAULT_MAX_WAIT_MS, MAX_ERRORS, MAX_WAIT_MS
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import Metadata, Partitions
from sharequeue_gateway.delivery.acknowledging import Acknowledger, ask_for_topics, failed_of
from sharequeue_gateway.delivery.fetcher import Fetcher, PartitionFault
from sharequeue_gateway.delivery.partition_reader import FetchLimits
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.http.fetch_answer import fetch_answer
from sharequeue_gateway.http.named_partitions import named_partitions
from sharequeue_gateway.http.paths import group_of
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.fetch import Asked, Found, RoutedFetch
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.sessions import OpenSession, Sessions

DEFAULT_MAX_RECORDS: Final = 500
DEFAULT_MAX_BYTES: Final = 52_428_800


class RecordsApi:
    """The handlers of fetchRecords and acknowledgeRecords."""

    def __init__(
        self,
        *,
        clock: Clock,
        metadata: Metadata,
        cluster: Cluster,
        fetcher: Fetcher,
        routing: Routing,
        routed: RoutedFetch,
        acknowledger: Acknowledger,
        routed_acknowledger: RoutedAcknowledger,
        sessions: Sessions,
        max_waiting_fetches: int,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._cluster = cluster
        self._fetcher = fetcher
        self._routing = routing
        self._routed = routed
        self._acknowledger = acknowledger
        self._routed_acknowledger = routed_acknowledger
        self._sessions = sessions
        self._max_waiting_fetches = max_waiting_fetches

    # Fetch

    async def fetch_records(self, call: Call) -> Answer:
        """A client's fetch. One in a share session goes to the gateway that keeps the session."""
        request: FetchRequest = call.request
        if request.is_renew_ack:
            _check_renew(request)
        if request.member_id is None:
            request.member_id = str(uuid.uuid4())
        if request.share_session_epoch is not None:
            group_id = group_of(call)
            home = self._routing.home_elsewhere(group_id, request.member_id)
            if home is not None:
                waiting = WaitingFetch(call.exchange.until_gone, call.exchange.gone)
                try:
                    answer = await waiting.unless_over(self._routing.fetch_in_session(home, group_id, request))
                finally:
                    waiting.close()
                return Answer(b"") if answer is None else answer
        return await self.fetch_here(call)

    async def fetch_here(self, call: Call) -> Answer:
        """As `fetch_records`; a share session is kept by this gateway."""
        request: FetchRequest = call.request
        group_id = group_of(call)
        member_id = request.member_id or str(uuid.uuid4())
        if self._fetcher.waiting >= self._max_waiting_fetches:
            raise Throttled(
                f"{self._max_waiting_fetches} fetches wait already; try again in a moment",
                limit=self._max_waiting_fetches,
            )
        named = await named_partitions(
            self._metadata,
            request.topics or (),
            request.topic_partitions or (),
            request.forgotten_topics,
            self._metadata.how_to_make_topics,
        )
        faults = list(named.faults)
        session = await self._session(group_id, member_id, request, named.partitions)
        partitions = named.partitions if session is None else self._session_partitions(session, faults)
        closing = session is not None and session.closing
        fetching = bool(partitions) and not closing and not request.is_renew_ack
        asked = self._asked(group_id, member_id, request, None if session is None else session.turn)
        if fetching and request.acknowledgements and not self._routing.cluster.alone:
            acknowledged = await self._acknowledged(request.acknowledgements)
            if acknowledged is not None and self._routed.passes_on(asked, partitions, acknowledged):
                asked = asked._replace(acknowledgements=request.acknowledgements)
        waiting = WaitingFetch(call.exchange.until_gone, call.exchange.gone)
        acknowledging = None
        if request.acknowledgements and not asked.acknowledgements:
            acknowledging = waiting.start_acknowledging(self._acknowledge(group_id, member_id, request))
            await asyncio.sleep(0)  # they are applied first, so that what they free can be acquired
        try:
            found = await self._routed.fetch(waiting, asked, partitions) if fetching else Found()
            if found.results is None and request.acknowledgements:
                found.results = await (acknowledging or self._acknowledge(group_id, member_id, request))
            if closing and session is not None:
                await self._sessions.release(session)
            if found.anything and waiting.gone():
                await self._routed.give_back(asked, found)
        finally:
            waiting.close()
        found.faults += faults
        return self._fetch_answer(asked, request, found, partitions, named.more_faults)

    async def _session(
        self, group_id: str, member_id: str, request: FetchRequest, asked: Partitions
    ) -> OpenSession | None:
        epoch = request.share_session_epoch
        if epoch is None:
            if request.topics is None and request.topic_partitions is None and not request.acknowledgements:
                raise InvalidRequest("name topics or topic_partitions, or go on in a session with share_session_epoch")
            return None
        if epoch == 0 and request.acknowledgements:
            raise InvalidRequest("a fetch that opens a session (share_session_epoch 0) cannot acknowledge")
        return await self._sessions.fetch(
            group_id,
            member_id,
            epoch,
            [(topic.topic_id, partition) for topic, partition in asked],
            [
                (topic.topic_id, partition)
                for entry in request.forgotten_topics
                if (topic := self._metadata.known_topic(entry.topic)) is not None
                for partition in entry.partitions
            ],
            request.fetch_id,
            held_back_ms=min(_or(request.max_wait_ms, DEFAULT_MAX_WAIT_MS), MAX_WAIT_MS),
        )

    def _session_partitions(self, session: OpenSession, faults: list[PartitionFault]) -> Partitions:
        """The partitions of a session; those whose topic is gone become faults, once, and leave the session."""
        partitions = []
        gone = []
        for topic_id, partition in session.partitions:
            topic = self._metadata.known_topic_id(topic_id)
            if topic is not None:
                partitions.append((topic, partition))
            else:
                gone.append((topic_id, partition))
                detail = f"the topic of id {topic_id} was deleted; its partition {partition} leaves the share session"
                faults.append(PartitionFault(topic_id, partition, UnknownTopicId(detail)))
        if gone and not session.closing:
            self._sessions.forget(session, gone)
        return partitions

    async def _acknowledged(self, acknowledgements: Sequence[Acknowledgement]) -> Partitions | None:
        """The partitions that acknowledgements name; None if one of them is not known."""
        await ask_for_topics(self._metadata, acknowledgements)
        partitions = []
        for entry in acknowledgements:
            topic = self._metadata.known_topic(entry.topic)
            if topic is None:
                return None
            partitions.append((topic, entry.partition))
        return partitions

    def _acknowledge(
        self, group_id: str, member_id: str, request: FetchRequest
    ) -> Coroutine[None, None, list[AcknowledgementResult]]:
        return self._routed_acknowledger.acknowledge(
            group_id, member_id, request.acknowledgements, atomic=request.atomic, renew=request.is_renew_ack
        )

    def _asked(self, group_id: str, member_id: str, request: FetchRequest, turn: int | None) -> Asked:
        max_records = _or(request.max_records, DEFAULT_MAX_RECORDS)
        min_bytes = _or(request.min_bytes, 1)
        max_wait_ms = min(_or(request.max_wait_ms, DEFAULT_MAX_WAIT_MS), MAX_WAIT_MS)
        limits = FetchLimits(
            max_records=max_records,
            max_bytes=_or(request.max_bytes, DEFAULT_MAX_BYTES),
            min_bytes=min_bytes if max_wait_ms else min(min_bytes, 1),  # without a wait what is there has to do
            batch_size=max(1, _or(request.batch_size, max_records)),
            acquire_mode=request.acquire_mode,
            deadline_ms=self._clock.now_ms() + max_wait_ms,
        )
        return Asked(group_id, member_id, limits, turn, request.fetch_id, request.with_records, (), request.atomic)

    def _fetch_answer(
        self, asked: Asked, request: FetchRequest, found: Found, partitions: Partitions, more_faults: int
    ) -> Answer:
        if found.whole is not None and not found.faults and (asked.acknowledgements or not request.acknowledgements):
            self._count(partitions, ())
            return Answer(found.whole[1])
        found.open()
        faults = found.faults
        self._count(partitions, faults)
        results = found.results or ()
        if faults and not found.anything and not results and request.share_session_epoch is None:
            failed = {(fault.topic, fault.partition) for fault in faults}
            if all((topic.name, partition) in failed for topic, partition in partitions):
                raise faults[0].error
        failed_count = failed_of(results)
        body = fetch_answer(
            asked.member_id,
            found.lock_duration_ms or self._metadata.lock_duration_ms(asked.group_id),
            found.acquired,
            results,
            failed_count,
            faults[:MAX_ERRORS],
            with_records=request.with_records,
            more_errors=max(len(faults) - MAX_ERRORS, 0) + more_faults,
            passed_on=[raw for _, raw in found.passed_on],
            leaders=found.leaders,
        )
        return Answer(body, headers=_headers(failed_count))

    def _count(self, partitions: Partitions, faults: Sequence[PartitionFault]) -> None:
        """Count a fetch for each of its topics. Names of none get no series: those would be there for ever."""
        failed = {fault.topic for fault in faults}
        for name in failed.union([topic.name for topic, _ in partitions]):
            if self._metadata.known_topic(name) is None:
                continue
            metrics.SHARE_FETCHES[name].inc()
            if name in failed:
                metrics.FAILED_SHARE_FETCHES[name].inc()

    # Acknowledge

    async def acknowledge_records(self, call: Call) -> Answer:
        """A client's acknowledgements. Those in a share session go to the gateway that keeps the session."""
        request: AcknowledgeRequest = call.request
        group_id = group_of(call)
        if request.share_session_epoch is not None:
            home = self._routing.home_elsewhere(group_id, request.member_id)
            if home is not None:
                return await self._routing.acknowledge_in_session(home, group_id, request)
            return await self.acknowledge_here(call)
        if not self._cluster.alone:
            return await self._acknowledge_routed(group_id, call)
        results = await self._acknowledger.acknowledge(
            group_id, request.member_id, request.acknowledgements, atomic=request.atomic
        )
        failed_count = failed_of(results)
        if failed_count:
            results = await self._routed_acknowledger.repeat_moved(group_id, request, results)
            return self._acknowledge_answer(group_id, results, failed_of(results))
        return self._acknowledge_answer(group_id, results, 0)

    async def acknowledge_here(self, call: Call) -> Answer:
        """As `acknowledge_records`; a share session is kept by this gateway."""
        request: AcknowledgeRequest = call.request
        if request.share_session_epoch is None:
            return await self.acknowledge_records(call)
        group_id = group_of(call)
        session = self._sessions.acknowledge(group_id, request.member_id, request.share_session_epoch)
        results = await self._routed_acknowledger.acknowledge(
            group_id, request.member_id, request.acknowledgements, atomic=request.atomic
        )
        if session.closing:
            await self._sessions.release(session)
        return self._acknowledge_answer(group_id, results, failed_of(results))

    async def _acknowledge_routed(self, group_id: str, call: Call) -> Answer:
        """With several gateways: the leaders' results, or the answer of the only leader as it is."""
        answered = await self._routed_acknowledger.answer(group_id, call.request, call.raw)
        if isinstance(answered, bytes):
            return Answer(answered)
        return self._acknowledge_answer(group_id, answered, failed_of(answered))

    def _acknowledge_answer(self, group_id: str, results: list[AcknowledgementResult], failed_count: int) -> Answer:
        """Raises: ApiError: nothing was applied."""
        if results and failed_count == len(results):
            raise _all_failed(results, failed_count)
        response = messages.AcknowledgeResponse(
            results=results,
            failed_count=failed_count,
            acquisition_lock_timeout_ms=self._metadata.lock_duration_ms(group_id),
        )
        return Answer(encode(response), headers=_headers(failed_count))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _check_renew(request: FetchRequest) -> None:
    """`is_renew_ack` forbids fetching: limits that are given must be 0. Checked before the session is touched."""
    names = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
    wrong = [name for name in names if getattr(request, name)]
    if wrong:
        raise InvalidRequest(f"with is_renew_ack nothing is fetched: {', '.join(wrong)} must be 0 or absent")


def _headers(failed_count: int) -> tuple[tuple[bytes, bytes], ...]:
    return (JSON,) if not failed_count else (JSON, (b"acknowledge-failed", b"%d" % failed_count))


def _all_failed(results: Sequence[AcknowledgementResult], failed_count: int) -> ApiError:
    """Nothing was applied: the answer has the status of the first result, so that it does not look like a success."""
    first = results[0]
    return ApiError(
        first.detail or "no acknowledgement was applied",
        error=BY_CODE[first.code or "UNKNOWN_SERVER_ERROR"],
        definite=all(result.status == "failed" for result in results),
        extra={"results": msgspec.to_builtins(results), "failed_count": failed_count},
    )

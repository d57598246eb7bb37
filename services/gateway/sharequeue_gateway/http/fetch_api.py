"""Fetch: checks the request, advances the session, fetches here or from the leaders, builds the answer.

fetch_records ──▶ topics known and led here, no session, no acknowledgements ──▶ Fetcher.fetch ──▶ answer
      ├─ a share session ──▶ the gateway that keeps it ──▶ fetch_here
      ╰─ anything else ──▶ fetch_here: looks names up, acknowledges, fetches from the leaders
"""

import asyncio
import contextlib
import uuid
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.configs import check_lock_duration
from sharequeue.protocol.errors import UnknownTopicId, checked_group_id
from sharequeue.protocol.messages.leaders import Asked, FetchLimits, LeaderAcknowledgeRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import FetchRequest
from sharequeue.protocol.types import DEFAULT_MAX_WAIT_MS, MAX_ERRORS, MAX_PARTITIONS_NAMED, MAX_WAIT_MS
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import Metadata, Partitions
from sharequeue_gateway.delivery.acknowledging import SMALL, check_count, failed_of
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.http.access.refused import acknowledge_others
from sharequeue_gateway.http.access.watch import KeyWatch
from sharequeue_gateway.http.answers.fetch_answer import fetch_answer
from sharequeue_gateway.http.named_partitions import named_partitions
from sharequeue_gateway.http.records_api import headers_with
from sharequeue_gateway.leader.led_index import all_of, topics_of
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.fetch import RoutedFetch
from sharequeue_gateway.routing.fetched import Fetched
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.sessions import Sessions
from sharequeue_gateway.share_partition.session import CLOSE, ShareSession
from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Call
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.errors import ApiError, InvalidRequest

DEFAULT_MAX_RECORDS: Final = 500
DEFAULT_MAX_BYTES: Final = 52_428_800


@dataclass(eq=False)
class FetchApi:
    """The handlers of fetchRecords and fetchInSession."""

    clock: Clock
    metadata: Metadata
    fetcher: Fetcher
    routing: Routing
    routed: RoutedFetch
    acknowledger: RoutedAcknowledger
    sessions: Sessions
    members: FetchingMembers
    ceiling: Ceiling
    watch: KeyWatch | None

    async def fetch_records(self, call: Call) -> Answer:
        """A client's fetch."""
        request: FetchRequest = call.request
        if len(call.raw) > SMALL:
            check_count(request.acknowledgements)
        if request.is_renew_ack or request.priority:
            _check_flags(request)
        if request.lock_duration_ms is not None:
            check_lock_duration(request.lock_duration_ms, self.metadata.lock_bounds)
        if request.member_id is None:
            request.member_id = str(uuid.uuid4())
        else:
            members, group_id = self.members, call.path["group"]
            members.seen[group_id][request.member_id] = members.now_s
            members.hosts[group_id, request.member_id] = call.exchange.connection.peer
        if request.share_session_epoch is not None:
            return await self._fetch_in_session(call, request, request.member_id)
        group_id = call.path["group"]
        config = self.metadata.configs.get(group_id)
        partitions = self._known_partitions(request)
        beside = request.acknowledgements or request.is_renew_ack or request.priority or call.refused
        if (
            config is None
            or not partitions
            or beside
            or not (
                self.routing.cluster.alone
                or (request.fetch_id is None and self.routing.leads_these(group_id, partitions))
            )
        ):
            return await self.fetch_here(call)
        used = len(self.fetcher.fetches.waiting)
        if call.caller.principal or used >= self.ceiling.most:
            self.ceiling.check(call.caller.principal, used)
        asked = self._asked(group_id, request.member_id, request)
        waiting = self._new(call)
        waiting.topics = dict.fromkeys(request.topics or ())
        found: Fetched
        with contextlib.closing(waiting):
            acquired, faults = await self.fetcher.fetch(waiting, asked, partitions)
            config = self.metadata.configs.get(group_id, config)
            found = Fetched(acquired, faults, lock_duration_ms=config.record_lock_duration_ms)
            if faults:
                found = await self.routed.after_join(waiting, asked, partitions, found)
                if found.has_records and waiting.gone():
                    await self.routed.give_back(asked, found)
        if waiting.refusal is not None:
            raise waiting.refusal
        return self._answer(asked, request, found, partitions, ())

    def _new(self, call: Call, topics: Collection[str] = ()) -> WaitingFetch:
        """A fetch, which ends when its caller loses access. `topics`: of its share session."""
        waiting = self.fetcher.fetches.new(call.exchange)
        if self.watch is not None:
            self.watch.add(waiting, apis.FETCH_RECORDS, call, topics)
        return waiting

    def _known_partitions(self, request: FetchRequest) -> Partitions | None:
        """The partitions of the named topics; None if the request names single partitions or an unknown topic."""
        if request.topics is None or request.topic_partitions or request.forgotten_topics:
            return None
        known, topics = self.metadata.by_name, []
        for name in dict.fromkeys(request.topics):
            if name not in known:
                return None
            topics.append(known[name])
        partitions = all_of(topics)
        return None if len(partitions) > MAX_PARTITIONS_NAMED else partitions

    async def _fetch_in_session(self, call: Call, request: FetchRequest, member_id: str) -> Answer:
        """Send a fetch in a share session to the gateway that keeps the session."""
        group_id = checked_group_id(call.path["group"])
        home = self.routing.home_elsewhere(group_id, member_id)
        if home is None:
            return await self.fetch_here(call)
        with contextlib.closing(self._new(call)) as waiting:
            answer = await waiting.while_open(
                self.routing.gateways.in_session(
                    home, apis.FETCH_IN_SESSION, group_id, request, call.caller.principal, _wait_ms(request) / 1000
                )
            )
        if waiting.refusal is not None:
            waiting.refusal.definite = not request.acknowledgements
            raise waiting.refusal
        return Answer(b"") if answer is None else answer

    async def fetch_here(self, call: Call) -> Answer:
        """A fetch of any form. If it has a share session, this gateway keeps it."""
        request: FetchRequest = call.request
        group_id = checked_group_id(call.path["group"])
        member_id = request.member_id or str(uuid.uuid4())
        self.ceiling.check(call.caller.principal, len(self.fetcher.fetches.waiting))
        named = await named_partitions(
            self.metadata,
            request.topics or (),
            request.topic_partitions or (),
            request.forgotten_topics,
            self.metadata.how_to_make_topics,
            call.refused,
        )
        faults = list(named.faults)
        session = await self._session(group_id, member_id, call, named.partitions)
        closing = request.share_session_epoch == CLOSE
        partitions = named.partitions
        if session is not None:
            partitions = self._session_partitions(session, faults, call.refused, closing=closing)
        asked = self._asked(group_id, member_id, request)
        if request.priority and partitions:
            order = request.topics or () if session is None else session.followed
            asked, partitions = self.routed.by_priority(asked, partitions, order)
        fetches = bool(partitions) and not closing and not request.is_renew_ack
        idle = session is not None and not (partitions or closing or faults or request.is_renew_ack)
        waiting = self._new(call, () if session is None else {topic.name for topic in topics_of(partitions)})
        waiting.topics = dict.fromkeys(request.topics or ()) if session is None else session.followed
        results = None
        outcomes = None
        with contextlib.closing(waiting):
            if request.acknowledgements:
                outcomes = waiting.start_acknowledging(self._acknowledge(group_id, member_id, call))
                await asyncio.sleep(0)  # applied first: the fetch can acquire the records that they free
            elif idle:
                await self.routed.wait_for_topics(waiting, asked)
            found = await self.routed.fetch(waiting, asked, partitions) if fetches else Fetched()
            results = None if outcomes is None else await outcomes
            if waiting.gone() and found.has_records:
                await self.routed.give_back(asked, found)
        if session is not None and closing:
            await self.sessions.release(session)
        if waiting.refusal is not None:
            if not results:
                raise waiting.refusal
            found = Fetched()  # they are told; the next fetch is refused
        if faults:
            found = structs.replace(found, faults=[*found.faults, *faults])
        return self._answer(asked, request, found, partitions, results or (), named.more_faults)

    fetch_in_session = fetch_here

    async def _session(self, group_id: str, member_id: str, call: Call, asked: Partitions) -> ShareSession | None:
        request: FetchRequest = call.request
        epoch = request.share_session_epoch
        if epoch is None:
            if request.topics is None and request.topic_partitions is None and not request.acknowledgements:
                raise InvalidRequest("name topics or topic_partitions, or continue a session with share_session_epoch")
            return None
        if epoch == 0 and request.acknowledgements:
            raise InvalidRequest("a fetch that opens a session (share_session_epoch 0) cannot acknowledge")
        return await self.sessions.fetch(
            group_id,
            member_id,
            epoch,
            [(topic.topic_id, partition) for topic, partition in asked],
            [
                (topic.topic_id, partition)
                for entry in request.forgotten_topics
                if (topic := self.metadata.by_name.get(entry.topic)) is not None
                for partition in entry.partitions
            ],
            request.fetch_id,
            followed=[name for name in request.topics or () if name not in call.refused],
            left=[entry.topic for entry in request.forgotten_topics],
            held_back_ms=_wait_ms(request),
            principal=call.caller.principal,
        )

    def _session_partitions(
        self, session: ShareSession, faults: list[PartitionFault], refused: Mapping[str, ApiError], *, closing: bool
    ) -> Partitions:
        """The partitions of a session. A partition of a deleted topic becomes a fault, once, and leaves the session.
        One that the caller may not read any more becomes a fault each time."""
        followed, named = [*session.followed.values()], session.partitions
        topics = [topic for topic_id, _ in followed if (topic := self.metadata.known_topic_id(topic_id)) is not None]
        sizes = [(topic.topic_id, topic.partitions) for topic in topics]
        whole = sizes == followed and sum(count for _, count in sizes) == len(named)
        if whole and not any(topic.name in refused for topic in topics):
            return all_of(topics)
        partitions = []
        gone = []
        of_topic: dict[str, ApiError | None] = {}
        for topic_id, partition in named:
            topic = self.metadata.known_topic_id(topic_id)
            if topic is not None:
                if topic_id not in of_topic:
                    of_topic[topic_id] = refused.get(topic.name)
                if (error := of_topic[topic_id]) is None or closing:
                    partitions.append((topic, partition))
                else:
                    faults.append(PartitionFault(topic.name, partition, error))
            else:
                gone.append((topic_id, partition))
                detail = f"the topic of id {topic_id} was deleted; its partition {partition} leaves the share session"
                faults.append(PartitionFault(topic_id, partition, UnknownTopicId(detail)))
        if gone and not closing:
            self.sessions.forget(session, gone)
        return partitions

    def _acknowledge(
        self, group_id: str, member_id: str, call: Call
    ) -> Coroutine[None, None, list[AcknowledgementResult]]:
        fetch: FetchRequest = call.request
        request = LeaderAcknowledgeRequest(
            member_id=member_id,
            acknowledgements=fetch.acknowledgements,
            atomic=fetch.atomic,
            renew=fetch.is_renew_ack,
        )
        return acknowledge_others(group_id, request, call.refused, self.acknowledger.acknowledge)

    def _asked(self, group_id: str, member_id: str, request: FetchRequest) -> Asked:
        now_ms = self.clock.now_ms()
        max_records = DEFAULT_MAX_RECORDS if request.max_records is None else request.max_records
        min_bytes = 1 if request.min_bytes is None else request.min_bytes
        max_wait_ms = DEFAULT_MAX_WAIT_MS if request.max_wait_ms is None else min(request.max_wait_ms, MAX_WAIT_MS)
        limits = FetchLimits(
            max_records=max_records,
            max_bytes=DEFAULT_MAX_BYTES if request.max_bytes is None else request.max_bytes,
            min_bytes=min_bytes if max_wait_ms else min(min_bytes, 1),  # without a wait any bytes suffice
            batch_size=max(1, max_records if request.batch_size is None else request.batch_size),
            acquire_mode=request.acquire_mode,
            deadline_ms=now_ms + max_wait_ms,
            lock_duration_ms=request.lock_duration_ms,
        )
        epoch = request.share_session_epoch
        return Asked(group_id, member_id, limits, now_ms, epoch, request.fetch_id, request.with_records)

    # The answer

    def _answer(
        self,
        asked: Asked,
        request: FetchRequest,
        found: Fetched,
        partitions: Partitions,
        results: Sequence[AcknowledgementResult],
        more_faults: int = 0,
    ) -> Answer:
        faults = found.faults
        self._count(partitions, faults)
        if faults and not results and request.share_session_epoch is None:
            failed = {(fault.topic, fault.partition) for fault in faults}
            if not found.has_records and all((topic.name, partition) in failed for topic, partition in partitions):
                raise faults[0].error
        failed_count = failed_of(results) if results else 0
        body = fetch_answer(
            asked.member_id,
            found.lock_duration_ms or self.metadata.lock_duration_ms(asked.group_id),
            found.acquired,
            faults[:MAX_ERRORS],
            with_records=request.with_records,
            results=results,
            failed_count=failed_count,
            more_errors=max(len(faults) - MAX_ERRORS, 0) + more_faults,
            passed_on=[raw for _, raw in found.passed_on],
            leaders=found.leaders,
            paused=not (found.acquired or found.passed_on) and (found.paused or self.metadata.paused(asked.group_id)),
        )
        return Answer(body, headers=headers_with(failed_count)) if failed_count else Answer(body)

    def _count(self, partitions: Partitions, faults: Sequence[PartitionFault]) -> None:
        """Count a fetch for each of its topics. An unknown name gets no series, because nothing would drop that
        series."""
        failed = {fault.topic for fault in faults}
        for name in failed.union([topic.name for topic in topics_of(partitions)]):
            if name in self.metadata.by_name:
                metrics.SHARE_FETCHES[name].value += 1
                if name in failed:
                    metrics.FAILED_SHARE_FETCHES[name].value += 1


def _wait_ms(request: FetchRequest) -> int:
    return DEFAULT_MAX_WAIT_MS if request.max_wait_ms is None else min(request.max_wait_ms, MAX_WAIT_MS)


def _check_flags(request: FetchRequest) -> None:
    """With `is_renew_ack` nothing is fetched: limits must be 0 or absent. With `priority`, `min_bytes` would have to be
    counted over all topics. Checked before the session advances."""
    names = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
    wrong = [name for name in names if getattr(request, name)]
    if request.priority and (request.min_bytes or 0) > 1:
        detail = "with priority, min_bytes must be 0, 1 or absent: the fetch takes records of one topic"
        raise InvalidRequest(detail, pointers=[("/min_bytes", "above 1, with priority")])
    if request.is_renew_ack and wrong:
        raise InvalidRequest(f"with is_renew_ack nothing is fetched: {', '.join(wrong)} must be 0 or absent")

"""The calls that move records: produce, fetch, acknowledge. Checks the request, keeps the session, builds the answer."""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue.protocol import messages
from sharequeue.protocol.errors import (
    BY_CODE,
    ApiError,
    InvalidGroupId,
    InvalidRequest,
    Throttled,
    UnknownTopicOrPartition,
)
from sharequeue.protocol.messages import AcknowledgementResult, AcknowledgeRequest, FetchRequest, ProduceRequest
from sharequeue.protocol.types import MAX_INT32, MAX_WAIT_MS, group_id_fault
from sharequeue.service import Clock
from sharequeue.serving import JSON, Answer, Call
from sharequeue.wire import encode
from sharequeue_gateway import metrics
from sharequeue_gateway.acknowledging import Acknowledger
from sharequeue_gateway.fetch import Acquisition, Fetcher, FetchLimits, PartitionFault, WaitingFetch
from sharequeue_gateway.fetch_answer import fetch_answer
from sharequeue_gateway.leader import Leader
from sharequeue_gateway.metadata import Metadata, Topic
from sharequeue_gateway.producing import Producer, raw_record
from sharequeue_gateway.repeated_fetches import RepeatedFetches
from sharequeue_gateway.sessions import OpenSession, Sessions

DEFAULT_MAX_RECORDS: Final = 500
DEFAULT_MAX_BYTES: Final = 52_428_800
DEFAULT_MAX_WAIT_MS: Final = 10_000
RECORD_HEADER_PREFIX: Final = "record-header-"

Partitions = list[tuple[Topic, int]]


def group_of(call: Call) -> str:
    """The group id in the path. Raises: InvalidGroupId."""
    group_id = call.path["group"]
    fault = group_id_fault(group_id)
    if fault:
        raise InvalidGroupId(fault)
    return group_id


class RecordsApi:
    """The handlers of produceRecords, produceRawRecord, fetchRecords and acknowledgeRecords."""

    def __init__(
        self,
        *,
        clock: Clock,
        metadata: Metadata,
        leader: Leader,
        producer: Producer,
        fetcher: Fetcher,
        acknowledger: Acknowledger,
        sessions: Sessions,
        repeated: RepeatedFetches,
        max_waiting_fetches: int,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._leader = leader
        self._producer = producer
        self._fetcher = fetcher
        self._acknowledger = acknowledger
        self._sessions = sessions
        self._repeated = repeated
        self._max_waiting_fetches = max_waiting_fetches

    # Produce

    async def produce_records(self, call: Call) -> Answer:
        request: ProduceRequest = call.request
        return await self._producer.produce(
            call.path["topic"], request.records, call.raw, call.scope["path"], call.header("idempotency-key")
        )

    async def produce_raw_record(self, call: Call) -> Answer:
        headers = {}
        for name, value in call.scope["headers"]:
            text = name.decode("latin-1")
            if text.startswith(RECORD_HEADER_PREFIX):
                headers[text.removeprefix(RECORD_HEADER_PREFIX)] = _utf8(text, value)
        content_type = call.header("content-type")
        if content_type:
            headers["content-type"] = content_type
        partition = call.header("record-partition")
        if partition is not None and not (partition.isascii() and partition.isdigit() and int(partition) <= MAX_INT32):
            raise InvalidRequest(f"Record-Partition must be a partition's number, not {partition!r}")
        key = call.header("record-key")
        key = None if key is None else _utf8("record-key", key.encode("latin-1"))
        record = raw_record(call.raw, key, None if partition is None else int(partition), headers)
        return await self._producer.produce(
            call.path["topic"],
            [record],
            b"\0".join((call.raw, msgspec.json.encode([record.key, partition, headers]))),
            call.scope["path"],
            call.header("idempotency-key"),
        )

    # Fetch

    async def fetch_records(self, call: Call) -> Answer:
        request: FetchRequest = call.request
        group_id = group_of(call)
        if request.is_renew_ack:
            _check_renew(request)
        if self._fetcher.waiting >= self._max_waiting_fetches:
            raise Throttled(
                f"{self._max_waiting_fetches} fetches wait already; try again in a moment",
                limit=self._max_waiting_fetches,
            )
        member_id = request.member_id or str(uuid.uuid4())
        faults: list[PartitionFault] = []
        asked = await self._partitions(request, faults)
        session = await self._session(group_id, member_id, request, asked)
        partitions = asked if session is None else await self._session_partitions(session)
        waiting = WaitingFetch(call.disconnected)
        acknowledging = self._start_acknowledging(group_id, member_id, request, waiting)
        await asyncio.sleep(0)  # acknowledgements are applied first, so that what they free can be acquired
        try:
            acquired: list[Acquisition] = []
            closing = session is not None and session.closing
            if not closing and not request.is_renew_ack:
                acquired, fetch_faults = await self._fetch(
                    group_id, member_id, request, partitions, waiting, session, call
                )
                faults += fetch_faults
            results = await acknowledging if acknowledging else []
            if closing and session is not None:
                self._sessions.release(session)
        finally:
            waiting.close()
        return self._fetch_answer(group_id, member_id, request, acquired, results, faults, partitions)

    async def _partitions(self, request: FetchRequest, faults: list[PartitionFault]) -> Partitions:
        """The partitions a request names; those that do not exist become faults."""
        partitions: dict[tuple[str, int], tuple[Topic, int]] = {}
        wanted: list[tuple[str, Sequence[int] | None]] = [(name, None) for name in request.topics or ()]
        wanted += [(entry.topic, entry.partitions) for entry in request.topic_partitions or ()]
        for name, indexes in wanted:
            try:
                topic = self._metadata.known_topic(name) or await self._metadata.topic(name)
                if indexes is not None and max(indexes, default=-1) >= topic.partitions:
                    await self._metadata.refresh(name)
                    topic = await self._metadata.topic(name)
            except ApiError as error:
                faults += [PartitionFault(name, index, error) for index in (indexes if indexes is not None else [-1])]
                continue
            for index in range(topic.partitions) if indexes is None else indexes:
                if index < topic.partitions:
                    partitions[topic.topic_id, index] = (topic, index)
                else:
                    detail = f"topic {name!r} has no partition {index}; it has {topic.partitions}"
                    faults.append(PartitionFault(name, index, UnknownTopicOrPartition(detail)))
        return list(partitions.values())

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

    async def _session_partitions(self, session: OpenSession) -> Partitions:
        partitions = []
        for topic_id, partition in session.partitions:
            topic = self._metadata.known_topic_id(topic_id)
            if topic is not None:
                partitions.append((topic, partition))
        return partitions

    def _start_acknowledging(
        self, group_id: str, member_id: str, request: FetchRequest, waiting: WaitingFetch
    ) -> asyncio.Task[list[AcknowledgementResult]] | None:
        if not request.acknowledgements:
            return None

        async def acknowledge() -> list[AcknowledgementResult]:
            results = await self._acknowledger.acknowledge(
                group_id, member_id, request.acknowledgements, atomic=request.atomic, renew=request.is_renew_ack
            )
            if _failed_count(results):
                waiting.failed_acknowledgement = True
                waiting.wake()
            return results

        return asyncio.get_running_loop().create_task(acknowledge())

    async def _fetch(
        self,
        group_id: str,
        member_id: str,
        request: FetchRequest,
        partitions: Partitions,
        waiting: WaitingFetch,
        session: OpenSession | None,
        call: Call,
    ) -> tuple[list[Acquisition], list[PartitionFault]]:
        if not partitions:
            return [], []
        if request.fetch_id is None:
            return await self._acquire(group_id, member_id, request, partitions, waiting, session, call, None)
        async with self._repeated.under_way(group_id, member_id, request.fetch_id, waiting) as name:
            again = await self._repeated.still_held(name, group_id, member_id)
            if again:
                return again, []
            return await self._acquire(group_id, member_id, request, partitions, waiting, session, call, name)

    async def _acquire(
        self,
        group_id: str,
        member_id: str,
        request: FetchRequest,
        partitions: Partitions,
        waiting: WaitingFetch,
        session: OpenSession | None,
        call: Call,
        fetch_name: str | None,
    ) -> tuple[list[Acquisition], list[PartitionFault]]:
        started_ms = self._clock.now_ms()
        max_records = _or(request.max_records, DEFAULT_MAX_RECORDS)
        limits = FetchLimits(
            max_records=max_records,
            max_bytes=_or(request.max_bytes, DEFAULT_MAX_BYTES),
            min_bytes=_or(request.min_bytes, 1),
            batch_size=max(1, _or(request.batch_size, max_records)),
            acquire_mode=request.acquire_mode,
            deadline_ms=started_ms + min(_or(request.max_wait_ms, DEFAULT_MAX_WAIT_MS), MAX_WAIT_MS),
        )
        turn = None if session is None else session.turn
        acquired, faults = await self._fetcher.fetch(waiting, group_id, member_id, partitions, limits, turn)
        if acquired:
            fetch = None if fetch_name is None else self._repeated.remember(fetch_name, acquired)
            kept = (
                await asyncio.gather(
                    *(
                        self._leader.record_locks(acquisition.led, member_id, acquisition.ranges, fetch)
                        for acquisition in acquired
                    )
                )
                if len(acquired) > 1
                else [await self._leader.record_locks(acquired[0].led, member_id, acquired[0].ranges, fetch)]
            )
            acquired = [acquisition for acquisition, leads in zip(acquired, kept, strict=True) if leads]
            if waiting.client_gone or (not waiting.waited and call.gone()):
                self._fetcher.give_back(member_id, acquired)
                acquired = []
        seconds = (self._clock.now_ms() - started_ms) / 1000
        metrics.ACQUIRE_SECONDS.labels(group_id).observe(seconds)
        metrics.FETCH_RATIO.labels(group_id).observe(100 * len(acquired) / len(partitions))
        return acquired, faults

    def _fetch_answer(
        self,
        group_id: str,
        member_id: str,
        request: FetchRequest,
        acquired: list[Acquisition],
        results: list[AcknowledgementResult],
        faults: list[PartitionFault],
        partitions: Partitions,
    ) -> Answer:
        failed_topics = {fault.topic for fault in faults if self._metadata.known_topic(fault.topic) is not None}
        for topic_name in {topic.name for topic, _ in partitions} | failed_topics:
            metrics.SHARE_FETCHES.labels(topic_name).inc()
        for topic_name in failed_topics:
            metrics.FAILED_SHARE_FETCHES.labels(topic_name).inc()
        failed_partitions = {(fault.topic, fault.partition) for fault in faults}
        working = any((topic.name, partition) not in failed_partitions for topic, partition in partitions)
        if faults and not acquired and not results and not working and request.share_session_epoch is None:
            raise faults[0].error
        failed_count = _failed_count(results)
        body = fetch_answer(
            member_id,
            self._lock_duration_ms(group_id),
            acquired,
            results,
            failed_count,
            faults,
            with_records=request.with_records,
        )
        return Answer(body, headers=_headers(failed_count))

    def _lock_duration_ms(self, group_id: str) -> int:
        config = self._metadata.config(group_id)
        return 30_000 if config is None else config.record_lock_duration_ms

    # Acknowledge

    async def acknowledge_records(self, call: Call) -> Answer:
        request: AcknowledgeRequest = call.request
        group_id = group_of(call)
        session = None
        if request.share_session_epoch is not None:
            session = self._sessions.acknowledge(group_id, request.member_id, request.share_session_epoch)
        results = await self._acknowledger.acknowledge(
            group_id, request.member_id, request.acknowledgements, atomic=request.atomic
        )
        if session is not None and session.closing:
            self._sessions.release(session)
        failed_count = _failed_count(results)
        if results and failed_count == len(results):
            raise _all_failed(results, failed_count)
        response = messages.AcknowledgeResponse(
            results=results,
            failed_count=failed_count,
            acquisition_lock_timeout_ms=self._lock_duration_ms(group_id),
        )
        return Answer(encode(response), headers=_headers(failed_count))


def _utf8(name: str, value: bytes) -> str:
    """The text of a header that goes into a record. Raises: InvalidRequest: it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"the header {name} must be UTF-8") from None


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _check_renew(request: FetchRequest) -> None:
    """`is_renew_ack` forbids fetching: limits that are given must be 0. Checked before the session is touched."""
    names = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
    wrong = [name for name in names if getattr(request, name)]
    if wrong:
        raise InvalidRequest(f"with is_renew_ack nothing is fetched: {', '.join(wrong)} must be 0 or absent")


def _failed_count(results: Sequence[AcknowledgementResult]) -> int:
    return sum(result.status in ("failed", "unknown") for result in results)


def _headers(failed_count: int) -> tuple[tuple[bytes, bytes], ...]:
    return (JSON,) if not failed_count else (JSON, (b"acknowledge-failed", b"%d" % failed_count))


def _all_failed(results: Sequence[AcknowledgementResult], failed_count: int) -> ApiError:
    """Nothing was applied: the answer's status is the first one's, so that nobody takes it for success."""
    first = results[0]
    return ApiError(
        first.detail or "no acknowledgement was applied",
        error=BY_CODE[first.code or "UNKNOWN_SERVER_ERROR"],
        definite=first.status == "failed",
        extra={"results": msgspec.to_builtins(results), "failed_count": failed_count},
    )

"""The producer: a sender with a client of its own, and the transactions that it begins."""

import asyncio
import contextlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack, overload

from sharequeue.client import tracing
from sharequeue.client.errors import Closing
from sharequeue.client.following import FollowingClient
from sharequeue.client.new_record import NewRecord, RecordOptions, encode_record
from sharequeue.client.scheduling import Scheduled, When, timed
from sharequeue.client.sending import Options, Produced, Sender, Terms, terms_of, traced
from sharequeue.client.transaction import Owner, Transaction
from sharequeue.protocol import apis
from sharequeue.protocol.messages.scheduled import CancelledRecords, CancelScheduledRequest, ScheduleResponse
from sharequeue.protocol.types import MAX_RECORDS
from sharequeue_http.calling.caller import Client, decoded
from sharequeue_http.calling.login import Login, Token
from sharequeue_http.forms.errors import ApiError

SCHEDULE: Final = replace(apis.SCHEDULE_RECORDS, idempotent=True)
"""Each request carries an Idempotency-Key, so it is safe to repeat one whose answer was lost."""


class SendOptions(RecordOptions, total=False):
    """The arguments of `Producer.send` that a record of now and one of later have."""

    idempotency_key: str | None
    unique: Mapping[str, int | str] | None


class Producer(Sender, Closing):
    """Produces records to topics.

    A record alone goes at once. Records that are sent at the same moment, or while a request of their topic is under
    way, share a request. Each topic has one request under way at a time, so its records keep their order. A request is
    retried until `deadline_ms` with the same idempotency key, so no retry appends a record twice.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080". Of several, the next is called when one gives no answer.
        max_batch_records, max_batch_bytes: a request holds no more; a larger record has a request of its own.
        max_buffer_bytes: `send` waits while more than this is buffered.
        deadline_ms: for all tries of a request.
        transactional_id: a name that the producer keeps over its restarts. Its first transaction aborts an open one of
            an earlier producer with the same name, and the earlier producer is refused from then on.
        follow_leaders: call the gateway that appends to most of the partitions, once answers name it. That saves a hop.
            The producer must reach every gateway at its setting `url`.
        token: the key that every request carries, or a function that returns it; the function is called for each
            request, so that a new key counts at once. headers: further headers of every request, for a proxy before the
            gateway. ca: a file of the authorities that a URL of https is checked by; None: those of the system.

    Example:
        async with Producer("http://127.0.0.1:8080") as producer:
            place = await producer.send("orders", {"id": 1}, key="cust-9")   # Produced("orders", 0, 17)
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        max_batch_records: int = 1000,
        max_batch_bytes: int = 1024 * 1024,
        max_buffer_bytes: int = 32 * 1024 * 1024,
        deadline_ms: float = 30_000,
        transactional_id: str | None = None,
        follow_leaders: bool = False,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        if not 1 <= max_batch_records <= MAX_RECORDS:
            raise ValueError(f"max_batch_records must be in the range 1 to {MAX_RECORDS}")
        options = Options(max_batch_records, max_batch_bytes, max_buffer_bytes)
        client = (FollowingClient if follow_leaders else Client)(
            url, login=Login(token, headers), ca=ca, deadline_s=deadline_ms / 1000
        )
        super().__init__(client, options)
        self._owner = Owner(transactional_id)

    def transaction(self, *, timeout_ms: int = 60_000, note: str | None = None) -> Transaction:
        """A transaction: `async with producer.transaction() as t`. Its records become visible together, or never.

        What is sent with the transaction is part of it; what is sent with the producer is not.

        Args:
            timeout_ms: the service aborts it if it is open for longer.
            note: kept by the commit for the next transaction of the same `transactional_id`, as `committed_note`.
        """
        self._check_open()
        return Transaction(self._client, self._options, self._owner, timeout_ms, note)

    @overload
    async def send(self, topic: str, value: Any, *, delay_ms: int, **options: Unpack[SendOptions]) -> Scheduled: ...
    @overload
    async def send(
        self, topic: str, value: Any, *, deliver_at_ms: int, **options: Unpack[SendOptions]
    ) -> Scheduled: ...
    @overload
    async def send(
        self, topic: str, value: Any, *, timestamp_ms: int | None = None, **options: Unpack[SendOptions]
    ) -> Produced: ...
    async def send(
        self,
        topic: str,
        value: Any,
        *,
        timestamp_ms: int | None = None,
        idempotency_key: str | None = None,
        unique: Mapping[str, int | str] | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        **options: Unpack[RecordOptions],
    ) -> Produced | Scheduled:
        """Append one record and return its place when it is durable.

        Args:
            value: any JSON, bytes, msgspec.Raw (JSON as it stands) or None (a tombstone).
            idempotency_key: a repeat with this key and the same record, within 24 hours and by any program, gets the
                first answer. Such a record has a request of its own. unique: as in produceRecords: {"within_ms": …}
                or {"until_group": …} appends the record only if its key is new in the topic for so long; else the place
                is that of the first.
            delay_ms, deliver_at_ms: in how many milliseconds, or when since the epoch, the record enters its topic,
                exactly once. Both reach up to ten years ahead. It waits at the service, and needs no program that runs.
        Returns: its place in the topic, or among the scheduled records.
        Raises: ApiError: the service's problem; if `definite`, the record was certainly not appended. ValueError: an
            argument that the service does not take, or that does not go with another.
        """
        record = NewRecord(value, timestamp_ms=timestamp_ms, **options)
        terms = terms_of(record, unique, idempotency_key)
        if delay_ms is None and deliver_at_ms is None:
            return await (await self._hand_over(topic, record, terms))
        if timestamp_ms is not None:
            raise ValueError("a record of later takes no timestamp_ms")
        return await self._schedule(topic, record, When(deliver_at_ms, delay_ms), terms)

    async def _schedule(self, topic: str, new: NewRecord, when: When, terms: Terms) -> Scheduled:
        self._check_open()
        span = tracing.start("send", topic, "PRODUCER")
        record = timed(encode_record(traced(new, span, terms)), when)
        try:
            body, _ = await self._client.relay(
                SCHEDULE,
                b'{"records":[%b]%b}' % (record, terms.unique),
                path={"topic": topic},
                headers={"Idempotency-Key": terms.key or uuid.uuid4().hex},
            )
        except ApiError as error:
            tracing.end(span, error.error.code, error.detail)
            raise
        tracing.end(span)
        answer: ScheduleResponse = decoded(SCHEDULE, body, self._client.base_url)
        (found,) = answer.scheduled
        place = found.partition, found.schedule_id or "", found.deliver_at_ms or 0
        return Scheduled(topic, *place, found.duplicate)

    async def cancel_scheduled(
        self, topic: str, *, schedule_ids: Sequence[str] = (), key: str | None = None
    ) -> list[str]:
        """Cancel scheduled records, at most 1,000 in one call.

        Args: exactly one of both: their ids, or the key of the records.
        Returns: the ids of those that will not enter the topic. The others have entered it, or were cancelled before.
        Raises: ApiError.
        """
        self._check_open()
        request = CancelScheduledRequest(schedule_ids=list(schedule_ids), key=key)
        body, _ = await self._client.relay(apis.CANCEL_SCHEDULED_RECORDS, request, path={"topic": topic})
        answer: CancelledRecords = decoded(apis.CANCEL_SCHEDULED_RECORDS, body, self._client.base_url)
        return answer.cancelled

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Flush, then close the connections. End transactions before: one that is open then is aborted by its time-out.

        Args:
            timeout_ms: give up requests that have no answer by then. Their records fail, with a `definite` error if
                they were not sent.
        Raises: as `flush`.
        """
        self._check_loop()
        self._closed = True
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self.flush()
        finally:
            await self._give_up()
            await self._client.close()
        self._raise_unraised()

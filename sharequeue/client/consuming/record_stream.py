"""Records of a share group as they come, on one connection: see docs/streams.md for what the service promises.

open ──▶ events ──▶ records, handed out one by one ──▶ `acknowledge`, in calls beside the stream
  ▲         │
  ╰─────────╯ the connection is lost, or the gateway stops: opened again with the id of the last event
"""

import asyncio
import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from types import UnionType
from typing import Final, Generic, Literal, Self
from urllib.parse import urlencode

import msgspec

from sharequeue.client.consuming.acknowledging import Acknowledging, Settled
from sharequeue.client.consuming.deliveries import Delivery, OutcomeRun, Record, V, releases
from sharequeue.client.consuming.outcomes import NEVER_BEGUN, outcome_of
from sharequeue.client.consuming.values import decoder_of
from sharequeue.client.errors import Closing, IllegalState
from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE
from sharequeue.protocol.messages.records import FetchResponse
from sharequeue.protocol.types import MAX_STREAM_WINDOW
from sharequeue.repeats import CALL, Tries, heard
from sharequeue_http.calling.caller import Client
from sharequeue_http.calling.connections import CannotConnect, ConnectionLost
from sharequeue_http.calling.event_reader import EventReader, ServerEvent
from sharequeue_http.calling.login import Login, Token
from sharequeue_http.forms.api import path_of
from sharequeue_http.forms.errors import ApiError, Unreachable, exception_type

log = logging.getLogger(__name__)

SILENCE_S: Final = 60.0
"""A connection that brings nothing for so long, not even a heartbeat, is lost."""
OPEN_S: Final = 10.0
CLOSE_S: Final = 5.0
PATIENCE_S: Final = 30.0
"""The longest time that an outcome may stay unknown."""
_decoder: Final = msgspec.json.Decoder(FetchResponse)


class RecordStream(Closing, Generic[V]):
    """Receives the records of topics as a member of a share group. One task uses it at a time.

    A lost connection is opened again, and no record comes twice in one delivery. Nothing renews the locks: a record
    that is held beyond its lock comes again; one that waits goes back before. `close` releases what has no outcome.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080". topics: names of topics that exist.
        member_id: 1 to 36 characters; made when None. Two streams must not share one.
        window: the most records that are held at a time. resume_ms: how long the service keeps them for a lost
            connection.
        request_timeout_ms: how long the service may be out of reach before that is an error. None: the loop waits.
        value_type: as of ShareConsumer. token, headers, ca: as of Producer.

    Example:
        async with RecordStream("http://127.0.0.1:8080", "billing", ["orders"]) as stream:
            async for record in stream:
                print(record.value)
                await stream.acknowledge(record)
    """

    member_id: str
    """The id of this member, given or made."""
    group: str
    """The share group."""

    def __init__(
        self,
        url: str,
        group: str,
        topics: Iterable[str],
        *,
        member_id: str | None = None,
        window: int = 100,
        resume_ms: int = 5000,
        value_type: type[V] | UnionType | None = None,
        request_timeout_ms: float | None = None,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        if not 1 <= window <= MAX_STREAM_WINDOW:
            raise ValueError(f"window must be from 1 to {MAX_STREAM_WINDOW}")
        self.member_id = member_id or str(uuid.uuid4())
        self.group = group
        names = [topics] if isinstance(topics, str) else list(topics)
        query = {"topic": ",".join(names), "member_id": self.member_id, "window": window, "resume_ms": resume_ms}
        self._target = f"{path_of(apis.STREAM_RECORDS, group=group)}?{urlencode(query)}"
        self._patience_s = math.inf if request_timeout_ms is None else request_timeout_ms / 1000
        self._client = Client(url, login=Login(token, headers), ca=ca)
        self._acknowledging = Acknowledging(self._client, group, self.member_id, min(self._patience_s, PATIENCE_S))
        self._decode = None if value_type is None else decoder_of(value_type)
        self._events: EventReader | None = None
        self._last_id = ""
        self._ready: deque[Record] = deque()
        """Received, not handed out yet."""
        self._held: dict[Delivery, None] = {}
        """Deliveries with records that have no outcome."""
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._giving_back: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        self._replaced = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[V]:
        """The next record; there is always another.

        Raises: ApiError: the service refused, ended the stream for good, or was out of reach for request_timeout_ms.
            IllegalState: the stream is closed, or another connection of this member has replaced it.
        """
        self._check_loop()
        if self._closed.is_set():
            raise IllegalState("the stream is closed")
        while not self._ready:
            if self._replaced:
                raise IllegalState(f"another connection of the member {self.member_id!r} has replaced this stream")
            reading = self._reading = self._reading or asyncio.create_task(self._read())
            if reading.done():
                self._reading = None
                await reading
            self._news.clear()
            await self._news.wait()
        record = self._ready.popleft()
        record.begin()
        return record

    async def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject", "renew"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Settle a record, or renew its lock; durable when this returns. The arguments are ShareConsumer.acknowledge's.

        Raises: AcknowledgementError: it was not applied, for example because the lock had ended. ApiError: the outcome
            is not known.
        """
        self._check_loop()
        if self._closed.is_set():
            raise IllegalState("the stream is closed")
        delivery = record.delivery
        delivery.choose(record.offset, outcome_of(type, reason, delay_ms, begun))
        settled = Settled()
        try:
            await self._acknowledging.send(delivery.take_chosen(), settled)
        finally:
            if delivery.settled:
                self._held.pop(delivery, None)
        settled.take().raise_failures()

    async def close(self) -> None:
        """End the stream, and release what has no outcome. What the loop has not reached is no attempt.

        A stream that was replaced releases nothing: the other connection holds the records.
        """
        self._check_loop()
        if self._closed.is_set():
            return
        self._closed.set()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._events is not None:
            await self._events.close()
        try:
            await self._release([] if self._replaced else releases(self._held))
            if self._giving_back is not None:
                await self._giving_back
        finally:
            await self._client.close()

    async def _release(self, runs: list[OutcomeRun]) -> None:
        try:
            await self._acknowledging.send(runs, Settled(), CLOSE_S)
        except ApiError as error:
            log.warning("the records that %s holds are released by the service: %s", self.member_id, error)
            for run in runs:
                run.delivery.in_flight -= 1

    async def _give_back(self) -> None:
        """Release what waits for the loop before its lock ends, as no attempt, for as long as anything waits."""
        while self._ready and not self._closed.is_set():
            due_at = min(record.delivery.renew_at for record in self._ready)
            await heard(self._closed, due_at - time.monotonic())
            if self._replaced:
                return
            due = [record for record in self._ready if record.delivery.renew_at <= time.monotonic()]
            for record in due:
                self._ready.remove(record)
                record.delivery.choose(record.offset, NEVER_BEGUN)
            await self._release([run for each in {record.delivery for record in due} for run in each.take_chosen()])

    # Events

    async def _read(self) -> None:
        """Take in events, also while the program works on a record: none waits in the connection with its lock."""
        try:
            while not self._replaced:
                self._receive(await self._next_event())
                self._news.set()
        finally:
            self._news.set()

    async def _next_event(self) -> ServerEvent | None:
        """The next event, on a connection that is opened again as often as it is lost."""
        tries = None
        while True:
            try:
                if self._events is None:
                    client = self._client
                    headers = {**client.login.headers(), **({"Last-Event-ID": self._last_id} if self._last_id else {})}
                    self._events = await EventReader.open(
                        apis.STREAM_RECORDS, client.base_url, self._target, headers, OPEN_S, client.ca
                    )
                return await self._events.next(SILENCE_S)
            except (CannotConnect, ConnectionLost) as fault:
                error: ApiError = Unreachable(f"cannot reach {self._client.base_url}: {fault}")
            except ApiError as refusal:
                if not refusal.error.retriable:
                    raise
                error = refusal
            if self._events is not None:
                await self._events.close()
                self._events = None
                continue
            tries = tries or Tries(CALL, self._patience_s)
            if not await tries.pause(error.retry_after_s):
                raise error

    def _receive(self, event: ServerEvent | None) -> None:
        """Take in an event. Raises: ApiError: the stream has ended for good."""
        if event is None:
            return
        self._last_id = event.id
        if not event.data:
            return
        if event.kind == "message":
            received_at = time.monotonic()
            for settled in [held for held in self._held if held.settled]:  # by transactions
                del self._held[settled]
            for batch in _decoder.decode(event.data).batches:
                delivery = Delivery(batch, self.group, self.member_id, self._decode)
                delivery.deadline = received_at + delivery.lock_duration_s
                delivery.renew_at = received_at + delivery.lock_duration_s * 0.75
                self._held[delivery] = None
                self._ready.extend(delivery.records.values())
            if self._giving_back is None or self._giving_back.done():
                self._giving_back = asyncio.create_task(self._give_back())
        elif event.kind == "replaced":
            self._replaced = True
        elif event.kind == "closed":
            problem = msgspec.json.decode(event.data)
            if not problem["retriable"]:
                error = BY_CODE.get(problem["code"], ApiError.error)
                raise exception_type(error)(problem["detail"], error=error)
        elif event.kind == "problem":
            log.info("nothing can be acquired now: %s", msgspec.json.decode(event.data)["detail"])

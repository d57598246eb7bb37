"""The share consumer: polls records of a share group, keeps their locks alive, acknowledges them. Source: KIP-932.

This file has the methods that a program calls, and the three modes of acknowledging. `polling.py` fetches and
`settling.py` settles.
"""

import asyncio
import contextlib
import logging
import math
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType, UnionType
from typing import Final, Generic, Literal, Self

from sharequeue.client.consuming.acknowledging import Acknowledging, Committed, Settled
from sharequeue.client.consuming.dealing import FIRST_OF_LOOP, FIRST_OF_POLL, MOST, Dealing
from sharequeue.client.consuming.deliveries import Delivery, OutcomeRun, Polled, Record, V, give_back
from sharequeue.client.consuming.fetching import Fetching
from sharequeue.client.consuming.membership import IDLE_S, Membership
from sharequeue.client.consuming.outcomes import outcome_of
from sharequeue.client.consuming.polling import Polling
from sharequeue.client.consuming.renewing import Renewing
from sharequeue.client.consuming.settling import CommitCallback, Settling
from sharequeue.client.consuming.values import decoder_of
from sharequeue.client.errors import Closing, IllegalState
from sharequeue.client.following import FollowingClient
from sharequeue.protocol.messages.records import FetchRequest
from sharequeue.protocol.types import MAX_INT32, AcquireMode
from sharequeue.repeats import CALL, Tries
from sharequeue_http.calling.caller import Client
from sharequeue_http.calling.login import Login, Token
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger(__name__)

ITERATION_WAIT_MS: Final = 30_000
PATIENCE_S: Final = 30.0
"""How long one call tries to send outcomes, and how long one may stay unknown, if the program names no time."""
CLOSE_DEADLINE_S: Final = 5.0
FAILING_CLOSE_DEADLINE_S: Final = 1.0
"""The deadline of each call that `close` makes, if the service did not answer the last poll."""


class ShareConsumer(Closing, Generic[V]):
    """Consumes topics as a member of a share group. One task uses it at a time.

    `acknowledgement="implicit"`: the next poll or commit accepts what the last poll returned. `"explicit"`:
    `acknowledge` chooses the outcome of every record before the next poll. `"deferred"`: as explicit, but a record may
    stay without an outcome over many polls, as in a pool of workers. Outcomes travel with the next poll, or with
    `commit`. `close` releases the records that have none.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080". Of several, the next is called when one gives no answer.
        topics: names. Fetches from all their partitions without joining the group, and waits for topics that do not
            exist yet. `subscribe` joins the group instead.
        member_id: 1 to 36 characters; made when None. Two consumers must not share one.
        max_records: how many records a fetch returns at most. None: as many as the program handles within 0.2 seconds,
            by the time that those before took, at most 500; first 10 for `poll`, and 1 for a loop over the consumer. A
            deferred consumer fetches 500.
        max_bytes, min_bytes, batch_size, acquire_mode: as in fetchRecords, for each poll.
        priority: the topics are in the order of priority, as in fetchRecords: each fetch takes records of the first
            topic that has some. With a small max_records an urgent record waits for few others.
        lock_duration_ms: how long a record stays locked without a renewal; None: as long as the group's setting says.
        renew: renew the locks of held records in the background, where the group allows it.
        value_type: what `Record.value` is: a dataclass, a TypedDict, a msgspec.Struct, a model of pydantic, `bytes` or
            another type that msgspec decodes. None: any JSON, or bytes.
        follow_leaders: call the gateway that leads most of what is fetched, once answers name it. That saves a hop, and
            needs no share session. For consumers that reach every gateway by its own URL. Leaders get the token, too,
            but not `headers`; from a URL of https no leader of http is followed.
        request_timeout_ms: how long the service may be out of reach before that is an error. None: polls and commits
            wait until it is back.
        max_poll_interval_ms: a consumer that was not used for so long renews no locks, gives back the records that it
            has not begun, and leaves the group. None: it renews as long as its process lives; a member that does not
            poll leaves the group after five minutes, and joins again with its next poll.
        on_acknowledged: gets (committed, error), as the callback of `commit_async`, for the outcomes that a poll,
            `stop` or `close` sent. Without it failures are logged.
        token, headers, ca: as of Producer.

    Example:
        async with ShareConsumer("http://127.0.0.1:8080", "billing", ["orders"]) as consumer:
            async for record in consumer:      # asking for the next record accepts this one
                print(record.value)
    """

    member_id: str
    """The id of this member, given or made."""
    group: str
    """The share group."""

    def __init__(
        self,
        url: str | Sequence[str],
        group: str,
        topics: Iterable[str] = (),
        *,
        member_id: str | None = None,
        acknowledgement: Literal["implicit", "explicit", "deferred"] = "implicit",
        max_records: int | None = None,
        max_bytes: int = 52_428_800,
        min_bytes: int = 1,
        batch_size: int | None = None,
        acquire_mode: AcquireMode | Literal["record_limit", "batch_optimized"] = AcquireMode.RECORD_LIMIT,
        lock_duration_ms: int | None = None,
        priority: bool = False,
        renew: bool = True,
        value_type: type[V] | UnionType | None = None,
        follow_leaders: bool = False,
        request_timeout_ms: float | None = None,
        max_poll_interval_ms: float | None = None,
        on_acknowledged: CommitCallback | None = None,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        if acknowledgement not in ("implicit", "explicit", "deferred"):
            raise ValueError(f"acknowledgement is implicit, explicit or deferred, not {acknowledgement!r}")
        if max_records is not None and not 1 <= max_records <= MAX_INT32:
            raise ValueError("max_records must be at least 1")
        self.member_id = member_id or str(uuid.uuid4())
        self.group = group
        self._implicit = acknowledgement == "implicit"
        self._explicit = acknowledgement == "explicit"
        self._patience_s = math.inf if request_timeout_ms is None else request_timeout_ms / 1000
        answer_s = PATIENCE_S if request_timeout_ms is None else self._patience_s
        idle_s = math.inf if max_poll_interval_ms is None else max_poll_interval_ms / 1000
        self._member_idle_s = IDLE_S if max_poll_interval_ms is None else idle_s
        self._client = (FollowingClient if follow_leaders else Client)(url, login=Login(token, headers), ca=ca)
        self._dealing = Dealing() if max_records is None and acknowledgement != "deferred" else None
        self._ready: deque[Record] = deque()
        """Acquired, not handed out yet."""
        self._returned: list[Delivery] = []
        """Deliveries of which the last poll returned records."""
        self._current: Record | None = None
        """The record that the iteration handed out last."""
        decode = None if value_type is None else decoder_of(value_type)
        asked = FetchRequest(
            topics=list(dict.fromkeys([topics] if isinstance(topics, str) else topics)),
            member_id=self.member_id,
            max_records=max_records or MOST,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            batch_size=batch_size,
            acquire_mode=AcquireMode(acquire_mode),
            lock_duration_ms=lock_duration_ms,
            priority=priority,
        )
        self._fetching = Fetching(self._client, group, asked, decode)
        acknowledging = Acknowledging(self._client, group, self.member_id, answer_s)
        self._settling = Settling(acknowledging, self._fetching, self._ready, answer_s, on_acknowledged)
        self._renewing = Renewing(acknowledging, self._settling.held, idle_s, self._give_back, renew)
        self._polling = Polling(self._fetching, self._settling, self._renewing, self._ready, self._patience_s)
        self._under_way: asyncio.Timeout | None = None
        """Of the poll that is under way; `stop` ends it."""
        self._stopped = False
        self._closed = False

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except ApiError as error:
            if fault is None and not self._stopped:
                raise
            log.warning("while the consumer was closed: %s", error)

    @property
    def subscription(self) -> list[str]:
        """The names of the topics that polls fetch from."""
        membership = self._polling.membership
        return self._fetching.topics if membership is None else list(membership.topics)

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that the group assigned to this member, by topic; empty without `subscribe`."""
        membership = self._polling.membership
        return {} if membership is None else dict(membership.assignment)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group for these topics, in place of the earlier ones. Polls then fetch what the group assigns.

        A background task sends heartbeats. A member that the group evicted joins again. A member that was not used for
        max_poll_interval_ms (None: five minutes) leaves, and joins again with the next poll. Without topics the member
        leaves. Held records stay held. Call it inside the event loop.
        """
        membership = self._polling.membership
        if membership is None:
            membership = Membership(self._client, self.group, self.member_id, self._member_idle_s)
            self._polling.membership = membership
            self._fetching.assign({})
        membership.subscribe([topics] if isinstance(topics, str) else topics)

    # Polling

    async def poll(self, timeout_ms: float = 10_000, *, max_records: int | None = None) -> list[Record[V]]:
        """Return records as soon as there are any; an empty list when there are none within `timeout_ms`.

        Records that the user renewed come before others. A cancelled poll loses nothing: the next one returns its
        records.

        Args:
            max_records: fetch no more this time; None: as many as the consumer's own `max_records`.

        Raises: IllegalState: in explicit mode, a record of an earlier poll is not acknowledged.
            ApiError: the service refused, or was out of reach for request_timeout_ms.
        """
        await self._fill(timeout_ms / 1000, FIRST_OF_POLL, max_records)
        records = Polled(self._ready)
        self._returned = list(dict.fromkeys(record.delivery for record in self._ready))
        self._ready.clear()
        return records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record[V]:
        """The next record; there is always another, until `stop`. In implicit mode this accepts the one before.

        Raises: as `poll`.
        """
        self._check_open()
        self._accept_returned()
        while self._stopped or not self._ready:
            if self._stopped:
                raise StopAsyncIteration
            await self._fill(ITERATION_WAIT_MS / 1000, FIRST_OF_LOOP)
        self._current = self._ready.popleft()
        self._current.begin()
        self._used()
        return self._current

    async def _fill(self, timeout_s: float, first: int, max_records: int | None = None) -> None:
        """Send the outcomes that were chosen, and wait until records are ready or the time is over.

        `first`: how many to fetch if no time of records is known yet.
        """
        self._check_loop()
        self._check_open()
        if self._under_way:
            raise IllegalState("a poll is under way already")
        if not self.subscription:
            raise IllegalState("subscribe to topics first")
        if self._stopped:
            return
        if self._explicit:
            self._check_acknowledged()
        self._accept_returned()
        self._used()
        if self._dealing is not None:
            dealt = self._dealing.asked(time.monotonic(), first)
            max_records = max_records or dealt
        self._fetching.max_records = max_records
        try:
            async with asyncio.timeout(None) as self._under_way:
                await self._polling.fetch(time.monotonic() + timeout_s, renews=self._settling.collect())
        except TimeoutError:
            if not self._stopped:
                raise
        finally:
            self._under_way = None
        if self._stopped:
            self._ready.clear()  # `close` gives them back
        if self._dealing is not None:
            self._dealing.handed_out(len(self._ready), time.monotonic())

    def _check_acknowledged(self) -> None:
        left = sum(len(delivery.undecided) for delivery in self._settling.held) - len(self._ready)
        if left > 0:
            raise IllegalState(f"{left} records are not acknowledged; in explicit mode acknowledge each before a poll")

    def _accept_returned(self) -> None:
        """In implicit mode, accept what was handed out."""
        if not self._implicit:
            return
        for delivery in self._returned:
            delivery.accept_all()
        self._returned = []
        current, self._current = self._current, None
        if current is not None:
            current.delivery.accept(current.offset)

    # Settling

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject", "renew"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Choose the outcome of a record; the next poll or commit sends it. The last choice before that counts.

        Args:
            type: accept: done. release: deliver it again, to any member. reject: write it to the dead-letter queue.
                renew: start the lock again; the next poll returns the record again.
            reason: why, on release and reject; up to 1024 characters. delay_ms: on release, not before that time;
                None: after the group's backoff (`share.retry.backoff.ms`), 0: at once.
            begun: False on release: the program did not begin to work on the record, so its delivery is no attempt.
        Raises: IllegalState: implicit mode, or the outcome was sent already. ValueError: no such type, or an option
            that it does not allow.
        """
        self._check_open()
        if self._implicit:
            raise IllegalState("this consumer acknowledges implicitly; make it with acknowledgement='explicit'")
        record.delivery.choose(record.offset, outcome_of(type, reason, delay_ms, begun))
        if begun:
            record.begin()
        self._used()

    async def commit(self) -> Committed:
        """Settle every chosen outcome; in implicit mode, accept what was handed out. Returns when it is durable.

        Returns: how many offsets were settled, by (topic, partition). Its `failures` are those that were refused,
            because the lock had ended, for example.
        Raises: ApiError: the outcome is not known yet; commit again, which is safe.
        """
        self._check_open()
        settled, tries = Settled(), Tries(CALL, self._patience_s)
        while True:
            try:
                await self._settling.send(self._take_to_commit(), settled)
                return settled.take()
            except ApiError as error:
                if self._stopped or not error.error.retriable or not await tries.pause():
                    raise
                log.warning("cannot commit yet: %s", error.detail)

    def commit_async(self, callback: CommitCallback | None = None) -> None:
        """As `commit`, in the background. The event loop calls `callback(committed, error)` at the end.

        Without a callback `on_acknowledged` gets the result; without that, too, failures are logged.
        """
        self._check_open()
        self._settling.commit_in_background(self._take_to_commit(), callback)

    def _take_to_commit(self) -> list[OutcomeRun]:
        self._check_loop()
        self._accept_returned()
        self._used()
        return self._take_chosen()

    def _take_chosen(self) -> list[OutcomeRun]:
        self._settling.collect()
        if self._under_way is not None:  # the poll itself sends the unanswered ones again
            return self._settling.take_unsent()
        return self._settling.take_all()

    # The end

    @property
    def stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """End the loops over the consumer and over what its last poll returned; a poll under way returns nothing.

        What the program has not begun goes back at once, as no attempt. It may finish the record in hand, settle it and
        `close`. If the service is away then, records come again when their locks end. Any thread and any signal handler
        may call this, at any time.
        """
        self._stopped = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._end_loops)

    def _end_loops(self) -> None:
        if self._closed:
            return
        if self._under_way is not None and not self._under_way.expired():
            self._under_way.reschedule(0)
        self._give_back()
        if taken := self._take_chosen():
            self._settling.commit_in_background(taken, None, CLOSE_DEADLINE_S)

    def _give_back(self) -> None:
        """Release what the program has not begun. What it has chosen otherwise waits for its next poll or commit."""
        give_back(self._settling.held)
        kept = [record for record in self._ready if record.offset not in record.delivery.given_back]
        self._ready.clear()
        self._ready.extend(kept)
        if taken := [run for delivery in self._settling.held for run in delivery.take_given_back()]:
            self._settling.commit_in_background(taken, None, CLOSE_DEADLINE_S)

    async def close(self) -> None:
        """Settle what has an outcome, release everything else, close the session and the connections.

        What lies behind the last record that the program began goes back as no attempt. A record is begun when a loop
        reaches it, or when its key or value is read. `close` also releases the records that a cancelled poll or a poll
        with a lost answer has acquired.

        Raises: ApiError: the outcomes are not known; the consumer is closed all the same.
        """
        self._check_loop()
        if self._closed:
            return
        self._closed = True
        membership = self._polling.membership
        try:
            await self._renewing.close()
            await self._settling.wait_for_commits()
            self._ready.clear()
            try:
                await self._settling.send_chosen(CLOSE_DEADLINE_S if self._stopped else None)
            finally:
                await self._settling.release_held(self._closing_deadline_s())
                if membership is not None:
                    await membership.close(self._closing_deadline_s())
        finally:
            await self._client.close()

    def _closing_deadline_s(self) -> float:
        return FAILING_CLOSE_DEADLINE_S if self._polling.failing else CLOSE_DEADLINE_S

    def _used(self) -> None:
        self._renewing.used()
        if self._polling.membership is not None:
            self._polling.membership.used()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalState("the consumer is closed")

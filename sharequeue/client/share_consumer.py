"""The share consumer: polls records of a share group, keeps their locks alive, acknowledges them. Source: KIP-932."""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Final, Literal, Self

from sharequeue.client.acknowledging import Acknowledging, Settled
from sharequeue.client.deliveries import (
    ACCEPT,
    AcknowledgementError,
    Delivery,
    IllegalState,
    Pending,
    Record,
    outcome_of,
    releases,
)
from sharequeue.client.fetching import SESSION_LOST, Fetched, Fetching, FetchLimits
from sharequeue.client.following import FollowingClient
from sharequeue.client.membership import Membership
from sharequeue.client.renewing import Renewing
from sharequeue.http.caller import Client
from sharequeue.protocol.errors import ApiError, UnknownTopicId, UnknownTopicOrPartition
from sharequeue.protocol.types import MAX_INT32, AcquireMode

log = logging.getLogger(__name__)

MAX_CARRIED: Final = 1000
"""A fetch carries no more acknowledgements; more go in calls of their own."""
ITERATION_WAIT_MS: Final = 30_000
FIRST_PAUSE_S: Final = 0.05
LAST_PAUSE_S: Final = 1.0
MISSING_TOPIC: Final = frozenset({UnknownTopicOrPartition.error, UnknownTopicId.error})
EARLY_S: Final = 0.02
CLOSE_DEADLINE_S: Final = 5.0
FAILING_CLOSE_DEADLINE_S: Final = 1.0

Committed = dict[tuple[str, int], int]
CommitCallback = Callable[[Committed, Exception | None], None]


class ShareConsumer:
    """Consumes topics as a member of a share group. One task uses it at a time.

    `acknowledgement="implicit"`: the next poll or commit accepts what the last poll returned. `"explicit"`: every
    record is given a word by `acknowledge` before the next poll. `"deferred"`: as explicit, but records may wait for
    their word over many polls, as those of a pool of workers do. Words travel with the next poll, or with `commit`.
    Whatever has no word when the consumer is closed is released.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080".
        topics: names, to fetch from all their partitions without being a member of the group; a topic that does not
            exist yet is waited for. `subscribe` joins the group instead.
        member_id: 1 to 36 characters; made when None. Two consumers must not share one.
        max_records, max_bytes, min_bytes, batch_size, acquire_mode: as fetchRecords has them, for each poll.
        renew: keep the locks of held records alive in the background, where the group allows it, for as long as the
            consumer is used at least every `max_poll_interval_ms`.
        follow_leaders: ask the gateway that leads most of what is fetched, once it is told: a hop less, and no session.
            For consumers that can reach every gateway by its own URL.
        request_timeout_ms: how long the service may be out of reach, or an outcome unknown, before that is an error.

    Example:
        async with ShareConsumer("http://127.0.0.1:8080", "billing", ["orders"]) as consumer:
            async for record in consumer:      # asking for the next record accepts this one
                print(record.value)
    """

    def __init__(
        self,
        url: str,
        group: str,
        topics: Iterable[str] = (),
        *,
        member_id: str | None = None,
        acknowledgement: Literal["implicit", "explicit", "deferred"] = "implicit",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        min_bytes: int = 1,
        batch_size: int | None = None,
        acquire_mode: AcquireMode | Literal["record_limit", "batch_optimized"] = AcquireMode.RECORD_LIMIT,
        renew: bool = True,
        follow_leaders: bool = False,
        request_timeout_ms: float = 30_000,
        max_poll_interval_ms: float = 300_000,
    ) -> None:
        if acknowledgement not in ("implicit", "explicit", "deferred"):
            raise ValueError(f"acknowledgement is implicit, explicit or deferred, not {acknowledgement!r}")
        if not 1 <= max_records <= MAX_INT32:
            raise ValueError("max_records must be at least 1")
        self.member_id = member_id or str(uuid.uuid4())
        self.group = group
        self._implicit = acknowledgement == "implicit"
        self._explicit = acknowledgement == "explicit"
        self._request_timeout_s = request_timeout_ms / 1000
        self._client = FollowingClient(url) if follow_leaders else Client(url)
        limits = FetchLimits(max_records, max_bytes, min_bytes, batch_size, AcquireMode(acquire_mode))
        self._fetching = Fetching(self._client, group, self.member_id, limits)
        self._acknowledging = Acknowledging(self._client, group, self.member_id, self._request_timeout_s)
        self._held: dict[Delivery, None] = {}
        self._renewing = Renewing(
            self._client, group, self.member_id, self._held, max_poll_interval_ms / 1000, enabled=renew
        )
        self._pending: list[Pending] = []
        """Acknowledgements that no request carries."""
        self._ready: deque[Record] = deque()
        """Acquired, not handed out yet."""
        self._returned: list[Delivery] = []
        """What the last poll returned."""
        self._current: Record | None = None
        """What the iteration handed out last."""
        self._settled = Settled()
        """Of acknowledgements whose failure the next poll raises."""
        self._membership: Membership | None = None
        self._max_poll_interval_s = max_poll_interval_ms / 1000
        self._commits: set[asyncio.Task[None]] = set()
        self._polling = False
        self._closed = False
        self._failing_since: float | None = None
        self._fetching.subscribe([topics] if isinstance(topics, str) else list(topics))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except (ApiError, AcknowledgementError) as error:
            if fault is None:
                raise
            log.warning("while the consumer was closed: %s", error)

    @property
    def subscription(self) -> list[str]:
        return self._fetching.topics if self._membership is None else list(self._membership.topics)

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that polls fetch from, by topic, as a member that subscribed."""
        return {} if self._membership is None else dict(self._membership.assignment)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group for these topics, instead of the earlier ones: from now on polls fetch what is assigned.

        Heartbeats are sent in the background. A member that was put out joins again; one that was not used for
        max_poll_interval_ms leaves, and joins again with the next poll. Without topics it leaves. What is held stays
        held. Called inside the event loop.
        """
        if self._membership is None:
            self._membership = Membership(self._client, self.group, self.member_id, self._max_poll_interval_s)
            self._fetching.assign({})
        self._membership.subscribe([topics] if isinstance(topics, str) else topics)

    # Polling

    async def poll(self, timeout_ms: float = 10_000) -> list[Record]:
        """Return records as soon as there are any; an empty list when there are none within `timeout_ms`.

        Records renewed by the user come again before others. A poll that is cancelled loses nothing: the next one
        returns what it would have.

        Raises: IllegalState: in explicit mode, something returned earlier was not acknowledged.
            AcknowledgementError: earlier acknowledgements were not applied; the next poll returns what this one fetched.
            ApiError: the service refused, or was out of reach for request_timeout_ms.
        """
        await self._fill(timeout_ms / 1000)
        records = list(self._ready)
        self._ready.clear()
        self._returned = list(dict.fromkeys(record.delivery for record in records))
        return records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        """The next record, for ever. In implicit mode asking for it accepts the one before. Raises: as `poll`."""
        self._check_open()
        self._accept_returned()
        while not self._ready:
            await self._fill(ITERATION_WAIT_MS / 1000)
        self._current = self._ready.popleft()
        self._used()
        return self._current

    async def _fill(self, timeout_s: float) -> None:
        """Acknowledge what there is to acknowledge and wait until records are ready, or the time is over."""
        self._check_open()
        if self._polling:
            raise IllegalState("a poll is under way already")
        if not self.subscription:
            raise IllegalState("subscribe to topics first")
        if self._explicit:
            self._check_acknowledged()
        self._accept_returned()
        self._used()
        self._polling = True
        try:
            await self._fetch(time.monotonic() + timeout_s, renews=self._collect())
        finally:
            self._polling = False
        self._settled.raise_failures()

    def _check_acknowledged(self) -> None:
        unsaid = sum(len(delivery.unsaid) for delivery in self._held) - len(self._ready)
        if unsaid > 0:
            raise IllegalState(f"{unsaid} records are not acknowledged; explicit mode wants each to be before a poll")

    def _accept_returned(self) -> None:
        """Implicit mode: what was handed out is accepted."""
        if not self._implicit:
            return
        for delivery in self._returned:
            delivery.choose_all(ACCEPT)
        self._returned = []
        current, self._current = self._current, None
        if current is not None:
            current.delivery.choose(current.offset, ACCEPT)

    def _collect(self) -> bool:
        """Turn what was said into acknowledgements to send. Returns: whether records are to be renewed."""
        for delivery in self._held:
            if delivery.chosen:
                self._pending += delivery.take_chosen()
        return any(pending.outcome.type == "renew" for pending in self._pending)

    def _take_pending(self) -> list[Pending]:
        taken, self._pending = self._pending, []
        return self._fetching.take_unanswered_acknowledgements() + taken

    async def _send(self, acknowledgements: list[Pending], settled: Settled, deadline_s: float | None = None) -> None:
        """Settle acknowledgements by a call of their own. Raises: ApiError: not settled; they are sent again later."""
        try:
            await self._acknowledging.send(acknowledgements, settled, deadline_s)
        finally:
            self._pending += acknowledgements  # what is not settled yet; all that is was taken out
            self._after_settling(settled)

    def _after_settling(self, settled: Settled) -> None:
        for delivery in [delivery for delivery in settled.touched if delivery.settled]:
            self._held.pop(delivery, None)
        settled.touched.clear()
        for record in settled.renewed:
            record.renewed_until = time.monotonic() + self._acknowledging.lock_timeout_ms / 1000
            self._ready.append(record)
        settled.renewed.clear()

    async def _fetch(self, deadline: float, *, renews: bool) -> None:
        """Fetch until something is ready or failed, or the deadline passes. Failures that may pass are waited out.

        Args:
            renews: whether records are to be renewed; they are ready then, and nothing is fetched.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            asked_at = time.monotonic()
            max_wait_s = max(0.0, deadline - asked_at)
            fetched = fault = None
            self._take_assignment()
            try:
                if renews or self._ready or self._fetching.opening or len(self._pending) > MAX_CARRIED:
                    await self._send(self._take_pending(), self._settled, max(1.0, max_wait_s))
                if not self._ready and not self._settled.failures:
                    fetched = await self._fetch_once(max_wait_s)
                    if fetched is None and time.monotonic() < deadline:
                        continue
                    fault = None if fetched is None else self._receive(fetched)
                self._failing_since = None
            except ApiError as error:
                if error.error in SESSION_LOST:
                    self._fetching.reopen()
                elif not error.error.retriable and error.error not in MISSING_TOPIC:
                    raise
                fault = error
            now = time.monotonic()
            if self._ready or self._settled.failures:
                return
            if fault is not None and fault.error not in MISSING_TOPIC:
                self._failing_since = self._failing_since or asked_at
                if now - self._failing_since >= self._request_timeout_s:
                    raise fault
            if now >= deadline:
                return
            if fault is None and now - asked_at >= min(EARLY_S, max_wait_s):
                pause_s = FIRST_PAUSE_S
                continue
            if fetched is not None:  # answered at once although there was nothing: a partition failed or is gone
                self._fetching.name_topics_soon(0)
            await asyncio.sleep(min(max(pause_s, (fault and fault.retry_after_s) or 0), deadline - now))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    def _take_assignment(self) -> None:
        """Of a member: fetch what it is assigned by now. The session is opened anew, so acknowledgements go before it."""
        membership = self._membership
        if membership is not None:
            membership.go_on()
            if membership.changed.is_set():
                membership.changed.clear()
                self._fetching.assign(membership.assignment)

    async def _fetch_once(self, max_wait_s: float) -> Fetched | None:
        """Fetch; None: a member was assigned something else meanwhile, or nothing at all. Raises: ApiError."""
        membership = self._membership
        if membership is not None:
            if membership.failure is not None:
                raise membership.failure
            if not membership.assignment:
                await membership.unless_changed(asyncio.sleep(max_wait_s))
                return None
        carried, self._pending = self._pending, []
        self._fetching.carry(carried)
        fetching = self._fetching.fetch(round(max_wait_s * 1000))
        return await (fetching if membership is None else membership.unless_changed(fetching))

    def _receive(self, fetched: Fetched) -> ApiError | None:
        """Take in a fetch's answer. Returns: why a partition failed, or None."""
        response = fetched.response
        again = self._settled.add(fetched.acknowledgements, response.acknowledgement_results, self._request_timeout_s)
        self._pending = again + self._pending
        self._after_settling(self._settled)
        received_at = time.monotonic()
        for batch in response.batches:
            delivery = Delivery(batch)
            self._held[delivery] = None
            self._ready.extend(delivery.records.values())
            self._renewing.held(delivery, received_at, response.acquisition_lock_timeout_ms, urgent=fetched.repeated)
        faults = self._fetching.faults(response)
        refused = [fault for fault in faults if not fault.error.retriable and fault.error not in MISSING_TOPIC]
        if refused and not self._ready:
            raise refused[0]
        return faults[0] if faults else None

    # Acknowledging

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject", "renew"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int = 0,
    ) -> None:
        """Give a record its word; sent with the next poll or commit. The last word before that counts.

        Args:
            type: accept: done. release: deliver it again, to anybody. reject: to the dead-letter queue.
                renew: the lock begins anew, and the next poll returns the record again.
            reason: why, on release and reject; up to 1024 characters. delay_ms: on release, not before that time.
        Raises: IllegalState: implicit mode, or the record's word was sent already. ValueError: no such type, or an
            option that does not go with it.
        """
        self._check_open()
        if self._implicit:
            raise IllegalState("this consumer acknowledges implicitly; make it with acknowledgement='explicit'")
        record.delivery.choose(record.offset, outcome_of(type, reason, delay_ms))
        self._used()

    async def commit(self) -> Committed:
        """Settle everything that has a word; in implicit mode what was handed out is accepted. Returns when durable.

        Returns: how many offsets were settled, by (topic, partition).
        Raises: AcknowledgementError: some were not applied; the others were. ApiError: the outcome is not known yet;
            commit again, which is safe.
        """
        self._check_open()
        settled = Settled()
        acknowledgements = self._take_to_commit()
        await self._send(acknowledgements, settled)
        settled.raise_failures()
        return settled.committed

    def commit_async(self, callback: CommitCallback | None = None) -> None:
        """As `commit`, in the background. `callback(committed, error)` is called when it is settled or failed.

        Without a callback a failure is raised by the next poll or by close.
        """
        self._check_open()
        acknowledgements = self._take_to_commit()
        task = asyncio.get_running_loop().create_task(self._commit_in_background(acknowledgements, callback))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def _commit_in_background(self, acknowledgements: list[Pending], callback: CommitCallback | None) -> None:
        settled = Settled()
        fault: Exception | None = None
        try:
            await self._send(acknowledgements, settled)
            settled.raise_failures()
        except (ApiError, AcknowledgementError) as error:
            fault = error
        if callback is not None:
            callback(settled.committed, fault)
        elif isinstance(fault, AcknowledgementError):
            self._settled.failures += fault.failures

    def _take_to_commit(self) -> list[Pending]:
        self._accept_returned()
        self._used()
        self._collect()
        if self._polling:  # its acknowledgements are under way
            taken, self._pending = self._pending, []
            return taken
        return self._take_pending()

    # Closing

    async def close(self) -> None:
        """Settle what has a word, release everything else, close the session and the connections.

        What a poll acquired that was cancelled, or whose answer was lost, is released too before this returns.

        Raises: AcknowledgementError, ApiError: as `commit`; the consumer is closed all the same.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._renewing.close()
            if self._commits:
                await asyncio.wait(self._commits)
            self._collect()
            self._ready.clear()
            try:
                await self._acknowledging.send(self._take_pending(), self._settled)
            finally:
                await self._release_held()
                if self._membership is not None:
                    await self._membership.close(self._closing_deadline_s())
            self._settled.raise_failures()
        finally:
            await self._client.close()

    async def _release_held(self) -> None:
        """Give back what is held and end the session. A service out of reach lets the locks end in their own time."""
        if not self._fetching.opened:
            return
        deadline_s = self._closing_deadline_s()
        try:
            await self._hold_what_was_lost(deadline_s)
            await self._acknowledging.send(releases(self._held), Settled(), deadline_s)
            await self._fetching.close(deadline_s)
        except ApiError as error:
            log.warning("what %s holds is released when its locks end: %s", self.member_id, error.detail)

    async def _hold_what_was_lost(self, deadline_s: float) -> None:
        """Take in what a poll that was cancelled, or whose answer was lost, acquired. Ending the session does not wait
        for that fetch: it may acquire later. Raises: ApiError."""
        try:
            answer = await self._fetching.lost(deadline_s)
        except ApiError as error:
            if error.error in MISSING_TOPIC:
                return
            raise
        for batch in () if answer is None else answer.batches:
            delivery = Delivery(batch)
            delivery.release_range()
            self._held[delivery] = None

    def _closing_deadline_s(self) -> float:
        return CLOSE_DEADLINE_S if self._failing_since is None else FAILING_CLOSE_DEADLINE_S

    def _used(self) -> None:
        self._renewing.used()
        if self._membership is not None:
            self._membership.used()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalState("the consumer is closed")

"""Writes of share-partition state to their share coordinators, and the outcome of each. Source: KIP-932, the persister.

Writes that gather while one request is under way are sent as the next request. Each share coordinator has requests of
its own, so one that does not answer delays no other. A write has one of three outcomes:

              ┌─ durable: no error ──────────────▶ the change of state is committed
    submit ───┼─ refused: a definite error ──────▶ rolled back, or unloaded if another gateway leads
      ▲   │   └─ unknown: an error, not definite ▶ unloaded; the next load fences the write with a higher epoch
      │   │
      ╰───╯ no answer, or not now: sent again, until it has an outcome or the share-partition is unloaded

The same write may be sent any number of times: the share coordinator takes the higher delivery count and the higher
start offset. Its records stay flagged, so their locks do not end. The requests that wait for it wait until the
deadline: then they are answered that the outcome is unknown.

Each outcome is reported twice, in one step of the event loop. First `WriteEvents.write_ended` is called: the machine
commits or rolls back. Then the future of `submit` ends: requests that wait for it are answered.

A share coordinator that missed a deadline or could not store a write is *failing* until it takes a write, or says that
it can. Fetches acquire nothing from its share-partitions: their records could not be settled.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import msgspec

from sharequeue.background import IN_COMPANY
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.errors import (
    KAFKA_CODES,
    CoordinatorLoadInProgress,
    FencedLeaderEpoch,
    FencedStateEpoch,
    GroupIdNotFound,
    NotCoordinator,
    NotLeaderOrFollower,
    StorageError,
    UnknownTopicOrPartition,
    error_of,
)
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult, SharePartitionState
from sharequeue.protocol.state import joined
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import STATE_PROBE, STATE_WRITE, STATE_WRITE_LEFT, Every
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.runs import StateWrite
from sharequeue_http.forms.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidRequest,
    RequestTimedOut,
    UnexpectedAnswer,
)
from sharequeue_http.log import Tally, fields

log = logging.getLogger(__name__)

NOT_AVAILABLE: Final = KAFKA_CODES[CoordinatorNotAvailable.error]
RETRIABLE: Final = frozenset(
    KAFKA_CODES[error.error] for error in (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)
)
FENCED: Final = frozenset(KAFKA_CODES[error.error] for error in (FencedLeaderEpoch, FencedStateEpoch))
PASSED_ON: Final = frozenset(
    KAFKA_CODES[error.error] for error in (UnknownTopicOrPartition, InvalidRequest, GroupIdNotFound)
)
MOST_BYTES: Final = 4 << 20
"""The most bytes of one request, roughly; a single write may be larger."""
MOST_WRITES: Final = 1000
"""The most writes of one request: building it, and ending its writes, each stop the loop for some 8 ms."""


class PendingWrite(msgspec.Struct, eq=False):
    """One write under way.

    `outcome` ends when the outcome is known: with None when the write is durable, otherwise with the error. At
    `deadline` it ends with an error that is not definite, and the write is sent again. `ended` is called with the final
    outcome. `doubtful`: an earlier attempt may be durable, so no later failure is definite.
    """

    led: LedSharePartition
    write: StateWrite
    outcome: "asyncio.Future[ApiError | None]"
    deadline: float
    ended: Callable[[ApiError | None], None] | None = None
    doubtful: bool = False


class WriteEvents(Protocol):
    """Receives the outcomes of writes."""

    def write_ended(self, pending: PendingWrite, error: ApiError | None) -> None:
        """The outcome of a write is known: durable without an error; refused if the error is definite; or unknown."""

    def writes_settle_again(self) -> None:
        """A failing share coordinator takes writes again."""


def persist_error(kafka_code: int, detail: str | None) -> ApiError:
    """The error for an answer of the share coordinator.

    COORDINATOR_NOT_AVAILABLE is not definite: it is also the answer when the outcome of a commit was lost.
    """
    if kafka_code in RETRIABLE:
        return CoordinatorNotAvailable(detail or "the share coordinator is not available", definite=False)
    if kafka_code in FENCED:
        return NotLeaderOrFollower(detail or "another leader or a newer state took over")
    if kafka_code == KAFKA_CODES[StorageError.error]:
        return StorageError(detail or "the state cannot be stored", definite=True)
    if kafka_code in PASSED_ON:
        return error_of(kafka_code, detail)
    return ApiError(f"the share coordinator answered {kafka_code}: {detail}")


class Persister:
    """Gathers writes of all share-partitions and sends them as one request at a time to each share coordinator."""

    def __init__(self, share_coordinator: ShareStateClient, *, deadline_ms: int) -> None:
        self._share_coordinator = share_coordinator
        self._deadline_s = deadline_ms / 1000
        self._refused = Tally(log, logging.WARNING, "state write refused", most=20)
        self._gathered: list[PendingWrite] = []
        self._busy: set[str] = set()
        """URLs of the share coordinators with a request under way."""
        self._on_their_way: set[SharePartitionKey] = set()
        self._in_company = IN_COMPANY
        """How many further requests are not done by a request itself."""
        self._start: asyncio.Handle | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._events: WriteEvents
        """Both given by `run`: until then nothing is sent."""
        self._context = contextvars.Context()
        """A context without a request id: the writes that are sent belong to many requests."""
        self.failing: dict[str, str] = {}
        """The failing share coordinators by URL, with the cause."""

    def submit(
        self, led: LedSharePartition, write: StateWrite, ended: Callable[[ApiError | None], None] | None = None
    ) -> PendingWrite:
        """Send `write` with the next request. Its future never raises; several may await it."""
        outcome: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        pending = PendingWrite(led, write, outcome, time.monotonic() + self._deadline_s, ended)
        self._gathered.append(pending)
        if self._in_company or self._busy:
            self._start_sending((pending,))
        else:  # unless `send_now` is called before
            start = asyncio.get_running_loop().call_soon
            self._start = start(self._start_sending, (pending,), context=self._context)
        return pending

    async def send_now(self, write: "asyncio.Future[ApiError | None]") -> None:
        """Send a write that was just submitted in the task that calls this, if nothing is under way.

        If that task is cancelled, the write is sent again.
        """
        if not self._busy and self._tasks and len(self._gathered) == 1 and self._gathered[0].outcome is write:
            if self._start is not None:
                self._start.cancel()
            url = self._share_coordinator.owner_url(self._gathered[0].led.key)
            self._busy.add(url)
            await self._send_to(url)

    def outcome(self, pending: PendingWrite) -> "asyncio.Future[ApiError | None]":
        """The future for one more request that waits for a write under way."""
        if pending.outcome.done():  # the earlier ones were answered at the deadline
            pending.deadline = time.monotonic() + self._deadline_s
            pending.outcome = asyncio.get_running_loop().create_future()
        return pending.outcome

    def cause_of_failing(self, key: SharePartitionKey) -> str | None:
        """Return why the records of a share-partition cannot be settled now; None if they can."""
        return self.failing.get(self._share_coordinator.owner_url(key)) if self.failing else None

    async def run(self, events: WriteEvents) -> None:
        """Send gathered writes, and report the outcomes to `events`. Runs until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks, self._events = tasks, events
            try:
                self._start_sending(self._gathered)
                async for _ in Every(STATE_PROBE.pause_s):
                    for url in [url for url in self.failing if url not in self._busy]:
                        await self._probe(url)
            finally:
                self._tasks = None

    async def _probe(self, url: str) -> None:
        """Ask a failing share coordinator without writes whether it takes writes now."""
        if self._share_coordinator.owns_nothing(url):
            self._works(url)
            return
        try:
            await self._share_coordinator.check(url, deadline_s=STATE_PROBE.pause_s)
        except ApiError as error:
            self.failing[url] = error.detail
        else:
            self._works(url)

    def _fails(self, url: str, cause: str) -> None:
        if url not in self.failing:
            log.warning(
                "a share coordinator takes no state writes: nothing is acquired from its share-partitions",
                extra=fields(url=url, cause=cause),
            )
        self.failing[url] = cause

    def _works(self, url: str) -> None:
        if self.failing.pop(url, None) is not None:
            log.warning("a share coordinator takes state writes again", extra=fields(url=url))
            self._events.writes_settle_again()

    def _start_sending(self, waiting: Iterable[PendingWrite]) -> None:
        """Start a request to each owner of these that has none under way."""
        if self._tasks is None:
            return
        for pending in waiting:
            url = self._share_coordinator.owner_url(pending.led.key)
            if url not in self._busy and pending.led.key not in self._on_their_way:
                self._busy.add(url)
                self._tasks.create_task(self._send_to(url), context=self._context)

    async def _send_to(self, url: str) -> None:
        gathered = left = self._take(url)
        keys = [pending.led.key for pending in gathered]
        self._on_their_way.update(keys)
        self._in_company = IN_COMPANY if len(gathered) > 1 else max(self._in_company - 1, 0)
        try:
            # none if another instance has become the owner
            left = await self._send(url, gathered) if gathered else []
        except asyncio.CancelledError:  # of the request that sends them
            for pending in gathered:
                pending.doubtful = True
            raise
        finally:
            self._busy.discard(url)
            self._on_their_way.difference_update(keys)
            if left and self._tasks is not None:
                self._on_their_way.update([pending.led.key for pending in left])
                self._tasks.create_task(self._send_again(left), context=self._context)
            if self._gathered:
                self._in_company = IN_COMPANY
                self._start_sending(self._gathered)

    async def _send_again(self, left: list[PendingWrite]) -> None:
        """Send these after a pause. Later writes of their share-partitions wait for them."""
        await STATE_WRITE.pause()
        self._on_their_way.difference_update([pending.led.key for pending in left])
        self._gathered[:0] = left
        self._start_sending(self._gathered)

    def _take(self, url: str) -> list[PendingWrite]:
        """The writes to send to a share coordinator now: at least one, if there are any,
        and at most MOST_BYTES and MOST_WRITES.

        Writes of a share-partition never overtake each other.
        """
        taken: list[PendingWrite] = []
        left: list[PendingWrite] = []
        size = 0
        for index, pending in enumerate(self._gathered):
            key, write = pending.led.key, pending.write
            if key in self._on_their_way or self._share_coordinator.owner_url(key) != url:
                left.append(pending)
                continue
            size += 256 + 96 * len(write.state.batches) + len("".join(write.state.texts).encode())
            if (size > MOST_BYTES and taken) or len(taken) == MOST_WRITES:
                left += self._gathered[index:]
                break
            taken.append(pending)
        self._gathered = left
        return taken

    async def _send(self, url: str, gathered: list[PendingWrite]) -> list[PendingWrite]:
        """Send these. Returns: those that have no outcome, because nobody answered or the owner cannot write now."""
        by_led: dict[LedSharePartition, list[PendingWrite]] = {}  # not by key: each load has its own epochs
        for pending in gathered:
            by_led.setdefault(pending.led, []).append(pending)
        remaining_s = max(pending.deadline for pending in gathered) - time.monotonic()
        try:
            results = await self._share_coordinator.write(
                [_state(led, writes) for led, writes in by_led.items()],
                deadline_s=remaining_s if remaining_s > 0 else STATE_WRITE_LEFT.patience_s,
            )
        except ApiError as error:
            if error.error.retriable:
                return self._unanswered(url, gathered, error)
            log.warning("state write failed", extra=fields(writes=len(gathered), cause=error.detail))
            failure = error if error.definite or isinstance(error, UnexpectedAnswer) else RequestTimedOut(error.detail)
        else:
            left: list[PendingWrite] = []
            for writes, result in zip(by_led.values(), results, strict=True):
                if result.error_code:
                    left += self._refuse(url, writes, result)
                    continue
                if result.version is not None:
                    writes[0].led.version, writes[0].led.store = result.version, result.store
                for pending in writes:
                    self._end(pending, None)
                if self.failing:
                    self._works(url)
            return left
        for pending in gathered:
            self._end(pending, failure)
        return []

    def _unanswered(self, url: str, gathered: list[PendingWrite], error: ApiError) -> list[PendingWrite]:
        """No answer came in time: the requests that wait are answered. Returns: the writes to send again."""
        if url not in self.failing:
            log.warning("state write failed", extra=fields(writes=len(gathered), cause=error.detail))
        self._fails(url, error.detail)
        for pending in gathered:
            pending.doubtful |= not error.definite
        return [pending for pending in gathered if self._keep(pending, error)]

    def _keep(self, pending: PendingWrite, error: ApiError) -> bool:
        """After the deadline, answer the requests that wait. Returns: whether to send the write again.

        A share-partition that was unloaded gives its writes up at the deadline: its next load waits for that.
        """
        if time.monotonic() + STATE_WRITE.pause_s < pending.deadline:
            return True
        if pending.led.fenced:
            self._end(pending, error)
            return False
        if not pending.outcome.done():
            pending.outcome.set_result(_not_definite(error))
        return True

    def _refuse(self, url: str, writes: list[PendingWrite], result: PartitionStateResult) -> list[PendingWrite]:
        """The share coordinator refused a share-partition's writes. Returns: those to send again."""
        now_s = time.monotonic()
        error = persist_error(result.error_code, result.error_message)
        if result.error_code in RETRIABLE:
            # with every other retriable error, nothing was written
            for pending in writes:
                pending.doubtful |= result.error_code == NOT_AVAILABLE
                if now_s >= pending.deadline:
                    self._fails(url, error.detail)
            return [pending for pending in writes if self._keep(pending, error)]
        if result.error_code == KAFKA_CODES[StorageError.error]:
            self._fails(url, error.detail)
        key = writes[0].led.key
        self._refused.note(key, **key._asdict(), kafka_code=result.error_code, cause=error.detail)
        for pending in writes:
            self._end(pending, error)
        return []

    def _end(self, pending: PendingWrite, error: ApiError | None) -> None:
        """The outcome of a write: first its event, then its future."""
        if error is not None and error.definite and pending.doubtful:
            error = _not_definite(error)
        self._events.write_ended(pending, error)
        pending.write.runs = []  # of a share-partition that was unloaded: see `Run`
        if not pending.outcome.done():
            pending.outcome.set_result(error)


def _not_definite(error: ApiError) -> ApiError:
    return type(error)(error.detail, error=error.error, definite=False)


def _state(led: LedSharePartition, writes: list[PendingWrite]) -> SharePartitionState:
    """All writes of one share-partition as one: the latest start offset and count, every state batch."""
    last = writes[-1].write
    key = led.key
    state = PartitionState(
        partition=key.partition,
        state_epoch=led.machine.state_epoch,
        leader_epoch=led.machine.leader_epoch,
        start_offset=last.start_offset,
        delivery_complete_count=last.delivery_complete_count,
        removed_unread=last.removed_unread,
        version=led.version,
        store=led.store,
        state=last.state if len(writes) == 1 else joined([pending.write.state for pending in writes]),
    )
    return SharePartitionState(key.group_id, key.topic_id, state)

"""Writes of share-partition state to their share coordinators: what gathers while one request is under way goes as the
next, at each of them by itself: one that is away holds up no other's writes.

Every outcome is told: durable, refused with its error, or not known. Source: KIP-932, the persister.
"""

import asyncio
import contextvars
import logging
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from sharequeue.log import Rarely, fields
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    NotLeaderOrFollower,
    RequestTimedOut,
    StorageError,
    error_of,
)
from sharequeue.protocol.internal import (
    GroupState,
    PartitionState,
    PartitionStateResult,
    TopicState,
    WriteBatchRequest,
    WriteBatchResponse,
)
from sharequeue.protocol.types import SharePartitionKey, StateAnnotation, StateBatch
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.share_partition.machine import StateWrite

log = logging.getLogger(__name__)

RETRIABLE = frozenset({14, 15, 16})
RETRY_PAUSE_S = 0.1
MOST_BYTES = 4 << 20
"""About what one request holds; a single write may be larger."""


class Pending(NamedTuple):
    """One write on its way. `outcome` ends with None when it is durable, else with the error.

    `doubtful`: an earlier try may be durable, so that no later failure is definite.
    """

    led: LedSharePartition
    write: StateWrite
    outcome: asyncio.Future[ApiError | None]
    deadline: float
    doubtful: bool = False


def persist_error(kafka_code: int, detail: str | None) -> ApiError:
    """The share coordinator's answer as the leader's: 14, 15, 16 → 15; 74, 124 → 6; 3, 42, 56 and 69 as they are.

    15 is not definite: the share coordinator also answers it when it lost a commit's outcome.
    """
    if kafka_code in RETRIABLE:
        return CoordinatorNotAvailable(detail or "the share coordinator is not available", definite=False)
    if kafka_code in (74, 124):
        return NotLeaderOrFollower(detail or "another leader or a newer state took over")
    if kafka_code == 56:
        return StorageError(detail or "the state cannot be stored", definite=True)
    if kafka_code in (3, 42, 69):
        return error_of(kafka_code, detail)
    return error_of(-1, f"the share coordinator answered {kafka_code}: {detail}")


class Persister:
    """Gathers writes of all share-partitions and sends them as one request at a time to each share coordinator."""

    def __init__(
        self,
        share_coordinator: ShareStateClient,
        *,
        deadline_ms: int,
        on_outcome: Callable[[Pending, ApiError | None], None] | None = None,
    ) -> None:
        self._share_coordinator = share_coordinator
        self._deadline_s = deadline_ms / 1000
        self._refused = Rarely(lines=3, seconds=1)
        self._gathered: list[Pending] = []
        self._busy: set[str] = set()
        self._on_their_way: set[SharePartitionKey] = set()
        self._sending: asyncio.TaskGroup | None = None
        self._context = contextvars.Context()
        """Of no request: what is sent is of many."""
        self._retries: set[asyncio.TimerHandle] = set()
        self.on_outcome = on_outcome

    def submit(self, led: LedSharePartition, write: StateWrite) -> asyncio.Future[ApiError | None]:
        """Send `write` with the next request. The future never raises; several may await it."""
        outcome: asyncio.Future[ApiError | None] = asyncio.get_running_loop().create_future()
        self._gather(Pending(led, write, outcome, time.monotonic() + self._deadline_s))
        return outcome

    def _gather(self, pending: Pending) -> None:
        self._gathered.append(pending)
        self._start_sending((pending,))

    async def run(self) -> None:
        """Send what was gathered, for ever."""
        async with asyncio.TaskGroup() as tasks:
            self._sending = tasks
            try:
                self._start_sending(self._gathered)
                await asyncio.get_running_loop().create_future()
            finally:
                self._sending = None

    def _start_sending(self, waiting: Iterable[Pending]) -> None:
        """Send these, and all that waits for the same share coordinators by then, but where a request is under way."""
        if self._sending is None:
            return
        for pending in waiting:
            url = self._share_coordinator.owner_url(pending.led.key)
            if url not in self._busy and pending.led.key not in self._on_their_way:
                self._busy.add(url)
                self._sending.create_task(self._send_to(url), context=self._context)

    async def _send_to(self, url: str) -> None:
        gathered = self._next(url)
        keys = [pending.led.key for pending in gathered]
        self._on_their_way.update(keys)
        if gathered:  # else another has become the owner
            await self._send(gathered)
        self._busy.discard(url)
        self._on_their_way.difference_update(keys)
        self._start_sending(self._gathered)

    def _next(self, url: str) -> list[Pending]:
        """What can go to a share coordinator now; writes of a share-partition never pass each other."""
        ready: list[Pending] = []
        left: list[Pending] = []
        for pending in self._gathered:
            key = pending.led.key
            goes = key not in self._on_their_way and self._share_coordinator.owner_url(key) == url
            (ready if goes else left).append(pending)
        count = _within(ready, MOST_BYTES)
        self._gathered = ready[count:] + left
        return ready[:count]

    async def _send(self, gathered: list[Pending]) -> None:
        by_led: dict[LedSharePartition, list[Pending]] = {}  # a retry of one that leads no more keeps its own epochs
        for pending in gathered:
            by_led.setdefault(pending.led, []).append(pending)
        remaining_s = max(pending.deadline for pending in gathered) - time.monotonic()
        try:
            response: WriteBatchResponse = await self._share_coordinator.write_batch(
                WriteBatchRequest(groups=[_group_state(led.key, writes) for led, writes in by_led.items()]),
                deadline_s=max(remaining_s, 0.05),
            )
            results = [group.results[0].partitions[0] for group in response.groups]
            if len(results) != len(by_led):
                raise ApiError("the share coordinator answered for other share-partitions than it was asked for")
        except ApiError as error:
            log.warning("state write failed", extra=fields(writes=len(gathered), cause=error.detail))
            for pending in gathered:
                self._finish(pending, error if error.definite else RequestTimedOut(error.detail))
            return
        except (IndexError, ValueError) as fault:
            log.exception("state write was answered in a form that cannot be read")
            for pending in gathered:
                self._finish(pending, ApiError(f"the share coordinator's answer cannot be read: {fault}"))
            return
        for writes, result in zip(by_led.values(), results, strict=True):
            self._settle(writes, result)

    def _settle(self, writes: list[Pending], result: PartitionStateResult) -> None:
        if result.error_code == 0:
            for pending in writes:
                self._finish(pending, None)
            return
        retry = result.error_code in RETRIABLE
        for pending in writes:
            if retry and time.monotonic() + RETRY_PAUSE_S < pending.deadline:
                doubtful = pending.doubtful or result.error_code == 15  # 14 and 16 come before anything is written
                self._gather_later(pending._replace(doubtful=doubtful))
            else:
                key = pending.led.key
                error = persist_error(result.error_code, result.error_message)
                missed = self._refused.allows(time.monotonic())
                if missed is not None:
                    log.warning(
                        "state write refused",
                        extra=fields(
                            group_id=key.group_id,
                            topic_id=key.topic_id,
                            partition=key.partition,
                            kafka_code=result.error_code,
                            cause=error.detail,
                            not_logged=missed,
                        ),
                    )
                self._finish(pending, error)

    def _gather_later(self, pending: Pending) -> None:
        def gather() -> None:
            self._retries.discard(handle)
            self._gather(pending)

        handle = asyncio.get_running_loop().call_later(RETRY_PAUSE_S, gather)
        self._retries.add(handle)

    def _finish(self, pending: Pending, error: ApiError | None) -> None:
        if error is not None and error.definite and pending.doubtful:
            error = type(error)(error.detail, error=error.error, definite=False)
        if self.on_outcome is not None:
            self.on_outcome(pending, error)
        if not pending.outcome.done():
            pending.outcome.set_result(error)


def _within(gathered: list[Pending], most_bytes: int) -> int:
    """How many of the writes go with one request: at least one."""
    size = 0
    for count, pending in enumerate(gathered):
        write = pending.write
        size += 256 + 96 * len(write.state_batches)
        size += sum(128 + len(note.reason or "") for note in write.annotations)
        if size > most_bytes and count:
            return count
    return len(gathered)


def _group_state(key: SharePartitionKey, writes: list[Pending]) -> GroupState:
    """All gathered writes of one share-partition as one: the latest start offset and count, every state batch."""
    last = writes[-1]
    state_batches: list[StateBatch] = last.write.state_batches
    annotations: list[StateAnnotation] = last.write.annotations
    if len(writes) > 1:
        state_batches = [batch for pending in writes for batch in pending.write.state_batches]
        annotations = [annotation for pending in writes for annotation in pending.write.annotations]
    partition = PartitionState(
        partition=key.partition,
        state_epoch=last.led.machine.state_epoch,
        leader_epoch=last.led.machine.leader_epoch,
        start_offset=last.write.start_offset,
        delivery_complete_count=last.write.delivery_complete_count,
        state_batches=state_batches,
        annotations=annotations,
    )
    return GroupState(group_id=key.group_id, topics=[TopicState(topic_id=key.topic_id, partitions=[partition])])

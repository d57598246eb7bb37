"""The leader of share-partitions: applies events to the loaded ones, and persists the changes.

There is one event loop and no await between a decision and its bookkeeping, so there are no locks. A write outlives the
request that caused it; its outcome is an event of its own (`write_ended`). Source: KIP-932, the share-partition leader.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import KAFKA_CODES, GroupIdNotFound, NotLeaderOrFollower, UnknownTopicOrPartition
from sharequeue.protocol.types import Reason, SharePartitionKey
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import Partitions
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.leader.led_index import Sought
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.load_registry import Loaded, Loads
from sharequeue_gateway.leader.lock_entries import LockRecorder
from sharequeue_gateway.leader.persister import PendingWrite, Persister
from sharequeue_gateway.leader.reports import led_metrics
from sharequeue_gateway.leader.reports.activity import Activity
from sharequeue_gateway.share_partition.outcomes import Completed, Expired
from sharequeue_gateway.share_partition.runs import DecidedWrite, StateWrite
from sharequeue_gateway.share_partition.turns import NO_DEADLINE_MS
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_http.log import Tally

log = logging.getLogger(__name__)

UNLOADING: Final = frozenset(
    KAFKA_CODES[error.error]
    for error in (NotLeaderOrFollower, UnknownTopicOrPartition, InvalidRequest, GroupIdNotFound)
)
"""Refusals that unload the share-partition: another gateway leads, or the topic, the group or its state is gone."""


class Leader:
    """The events of all share-partitions that this gateway leads.

    Requests: `get`, `locks.record`, `persist`, `release_member`, `group_reset`. From other rooms: `write_ended` (the
    persister), `topic_deleted` and `group_changed` (metadata), `expire` (due locks). The record log reports to
    `LogNews`.
    """

    def __init__(
        self,
        loads: Loads,
        locks: LockRecorder,
        persister: Persister,
        dead_letters: DeadLetterQueue,
        activity: Activity,
        clock: Clock,
    ) -> None:
        self._loads = loads
        self.led: Final = loads.led
        self.locks = locks
        self._persister = persister
        self._dead_letters = dead_letters
        self.activity = activity
        self._clock = clock
        self.seek: Final = partial(Sought, loads.led)
        self.loaded: Final = loads.led.get
        self.of_group: Final = loads.led.of_group
        self.unload: Final = loads.unload
        self._ended = Tally(log, logging.WARNING, "locks ended: workers died, or need a longer lock")
        self._under_way: dict[int, PendingWrite] = {}
        """The writes under way, by the id of the machine's write."""
        self.send_now: Final = persister.send_now
        self.failing: Final = persister.failing
        self.cause_of_failing: Final = persister.cause_of_failing

    # Loading and unloading

    async def get(
        self,
        group_id: str,
        partitions: Partitions,
        *,
        initialize: bool = True,
        deadline_ms: int | None = None,
    ) -> list[Loaded]:
        """The share-partitions of a group, loaded; an error in the place of one that cannot be loaded.

        Args:
            initialize: create the group and its share-partitions; without it, those that are not initialised fail.
            deadline_ms: a load that takes longer is an error, but not before LOADING_PATIENCE_MS.
        """
        by_key = self.led.by_key
        found = [by_key.get(SharePartitionKey(group_id, topic.topic_id, partition)) for topic, partition in partitions]
        if None in found:
            return await self._loads.get(group_id, partitions, initialize=initialize, deadline_ms=deadline_ms)
        return found  # type: ignore[return-value]  # None was just ruled out

    def group_reset(self, group_id: str, topic_ids: Collection[str] | None, *, end: bool) -> None:
        """The state of a group's share-partitions was reset: unload those that were loaded before.

        Args:
            topic_ids: only of these topics; None: of all.
            end: cancel the loads under way too, so that they do not create the group again.
        """

        def concerned(key: SharePartitionKey) -> bool:
            return key.group_id == group_id and (topic_ids is None or key.topic_id in topic_ids)

        self._loads.forget([led for led in self.led.of_group(group_id) if concerned(led.key)], concerned)
        if end:
            self._loads.cancel(concerned)

    def store_replaced(self) -> None:
        """PostgreSQL was started again, and may have come back older: load everything again, here as at a hand-over.

        Writes under way go on: the share coordinator refuses those that build on what is not there any more.
        """
        for led in list(self.led):
            self._loads.kept_locks.keep(led)
            self.unload(led)
        self.led.left.clear()
        self._loads.discard(lambda _: True)

    def topic_deleted(self, topic_id: str) -> None:
        leds = [led for leds in self.led.by_topic.get(topic_id, {}).values() for led in leds]
        self._loads.forget(leds, lambda key: key.topic_id == topic_id)

    def group_changed(self, group_id: str, config: ShareGroupConfig) -> None:
        for led in self.led.of_group(group_id):
            led.machine.config = config
            led.wake()

    def pending(self, led: LedSharePartition) -> None:
        """Records of it are pending on a transaction from now on: see `PendingTransactions`."""
        if not led.fenced:
            self.led.pending[led] = None

    # Persist, then commit

    def persist(
        self, led: LedSharePartition, write: StateWrite, ended: Callable[[ApiError | None], None] | None = None
    ) -> asyncio.Future[ApiError | None]:
        """Send a write, or wait for one that is under way.

        Args:
            ended: called with the outcome: None if the write is durable.
        Returns: a future for a request that waits: the outcome, or an error at the deadline of state writes.
        """
        known = self._under_way.get(id(write))
        if known is not None:
            return self._persister.outcome(known)
        led.writes += 1
        write.removed_unread = led.machine.removed_unread
        if not led.fenced:
            self.led.timed[led] = 0
        pending = self._under_way[id(write)] = self._persister.submit(led, write, ended)
        return pending.outcome

    def write_ended(self, pending: PendingWrite, error: ApiError | None) -> None:
        """The outcome of a state write is known, one of three (see persister.py); before `persist`'s future ends."""
        led, write = pending.led, pending.write
        del self._under_way[id(write)]
        led.writes -= 1
        if led.fenced and not led.writes:
            self._loads.writes_ended(led)
        refused_at_ms = None if error is None else self._clock.now_ms()  # locks may have ended since the event
        if error is None:
            # the coordinator keeps the later start, and of the same start the larger count
            if write.start_offset > led.stored_start:
                led.stored_start, led.stored_count = write.start_offset, write.delivery_complete_count
            elif write.start_offset == led.stored_start:
                led.stored_count = max(led.stored_count, write.delivery_complete_count)
            self.activity.settled(led, write)
        else:
            self._unload_after(led, error, decided=isinstance(write, DecidedWrite))
        if not led.fenced:
            self.led.timed[led] = 0
            members = None if led.holders is None else {run.member_id for run in write.runs}
            completed = led.machine.complete_write(write, refused_at_ms=refused_at_ms)
            self._completed(led, completed)
            if members:
                led.wake_holders(members)
        if pending.ended is not None:
            pending.ended(error)

    def writes_settle_again(self) -> None:
        """Fetches that were turned away while records could not be settled look again."""
        for led in self.led:
            led.halted = False
            led.wake_turned_away()

    def _unload_after(self, led: LedSharePartition, error: ApiError, *, decided: bool) -> None:
        """A write failed: fence it if its outcome is unknown. Unload, unless the write alone was refused.

        What a transaction `decided` is never rolled back: the next load decides it again.
        """
        if led.fenced:
            if not error.definite:
                self._loads.fence(led)
        elif KAFKA_CODES[error.error] in UNLOADING:
            self.unload(led)
        elif not error.definite or decided:
            if not error.definite:
                self._loads.fence(led)
            self.unload(led)
            self._loads.kept_locks.keep(led)

    def _completed(self, led: LedSharePartition, completed: Completed) -> None:
        """A write is committed or rolled back: report the changes to fetches and dead letters."""
        machine = led.machine
        if not machine.runs:
            led.batch_times = None
        if completed.dead_letters:
            self._dead_letters.enqueue(led, completed.dead_letters)
        if completed.made_available:
            led.wake()
        elif led.empty_until_ms:  # it is still empty, but a delay of this write may end earlier
            led.empty_until_ms = machine.next_deadline_ms() or NO_DEADLINE_MS
        elif completed.start_moved:
            led.wake()
        else:
            led.wake_turned_away()

    # Locks

    async def release_member(
        self, leds: Iterable[LedSharePartition], member_id: str
    ) -> list[asyncio.Future[ApiError | None]]:
        """Release the records that a member holds, in slices. One that is unloaded in a pause is left to its next
        leader.

        Returns: the outcomes of the writes, which need not be awaited.
        """
        slices = Slices()
        outcomes = []
        for led in leds:
            if slices.over():
                await slices.pause()
            write = None if led.fenced else led.machine.release_member(member_id, self._clock.now_ms())
            if write is not None:
                outcomes.append(self.persist(led, write))
        return outcomes

    # Time

    def expire_if_due(self, led: LedSharePartition, now_ms: int) -> None:
        deadline_ms = led.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.expire(led, now_ms)

    def expire(self, led: LedSharePartition, now_ms: int) -> None:
        """End the locks and delays that are due. What memory decided stands if the write fails.

        If very many are due at once, the rest of them ends after other work had its turn.
        """
        expired = led.machine.expire(now_ms)
        deadline_ms = led.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms and not led.expiring:
            led.expiring = True
            asyncio.get_running_loop().call_soon(self._expire_rest, led)
        if expired.records:
            metrics.LOCK_TIMEOUTS[led_metrics.labels_of(led)].inc(expired.records)
            named = {"group_id": led.key.group_id, "topic": led.topic_name}
            self._ended.note((led.key.group_id, led.topic_name), expired.records, **named)
            self.activity.expired(led, expired.records)
        self._stand(led, expired)

    async def settle_delayed(
        self, led: LedSharePartition, offset: int, delivery_count: int, reason: Reason | None
    ) -> None:
        """End the delay of a record by hand; with a reason it is rejected.
        Raises: InvalidRecordState; ApiError: this leader has decided, but its next one may not know it."""
        now_ms = self._clock.now_ms()
        written = self._stand(led, led.machine.settle_delayed(offset, delivery_count, reason, now_ms))
        if written is not None and (error := await written) is not None:
            error.definite = False
            raise error

    def _stand(self, led: LedSharePartition, expired: Expired) -> asyncio.Future[ApiError | None] | None:
        """Persist what memory decided, write its dead letters, and wake fetches. Returns: the outcome of the write."""
        written = None
        if expired.write is not None:

            def enqueue(_: object) -> None:
                """Enqueue, unless a new leader may still deliver what expired in this memory alone."""
                if not led.fenced:
                    self._dead_letters.enqueue(led, expired.dead_letters)

            written = self.persist(led, expired.write, enqueue if expired.dead_letters else None)
        if expired.made_available:
            led.wake()
        else:
            led.wake_turned_away()
        if led.holders is not None:
            led.wake_holders(expired.members)
        return written

    def _expire_rest(self, led: LedSharePartition) -> None:
        led.expiring = False
        if not led.fenced:
            self.expire_if_due(led, self._clock.now_ms())

    async def expire_all_due(self) -> None:
        """End what is due, at the times that were found before; look where something may have changed since."""
        now_ms, timed = self._clock.now_ms(), self.led.timed
        slices = Slices()
        for led in [led for led, due_ms in timed.items() if due_ms <= now_ms]:
            if slices.over():
                await slices.pause()
            if led not in timed:  # it was unloaded in a pause
                continue
            self.expire_if_due(led, now_ms)
            if not led.writes:
                due_ms = led.machine.next_deadline_ms()
                if due_ms is not None:
                    timed[led] = due_ms
                else:
                    del timed[led]

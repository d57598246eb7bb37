"""The leader of share-partitions: loads them, applies events to them, and persists what the events decided.

One event loop and no await between a decision and its bookkeeping, so there are no locks. A write outlives the request
that caused it. An outcome that is not known is not a failure: the share-partition is read again, with a higher leader
epoch that fences the lost write. Source: KIP-932, the share-partition leader.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from sharequeue.clock import Clock
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import Metadata, Topic
from sharequeue_gateway.leader import led_metrics, lock_entries
from sharequeue_gateway.leader.activity import Activity
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.load_registry import Loaded, Loads
from sharequeue_gateway.leader.loader import Loader
from sharequeue_gateway.leader.lock_entries import LockRecorder
from sharequeue_gateway.leader.persister import Pending, Persister
from sharequeue_gateway.leader.wake_up import note_left
from sharequeue_gateway.locks.lock_store import LockTimers
from sharequeue_gateway.locks.lock_writer import LockWrite
from sharequeue_gateway.record_log.log import RecordLog
from sharequeue_gateway.share_partition.machine import DeadLetter, StateWrite

log = logging.getLogger(__name__)

IDLE_LOOK_PAUSE_S = (0.1, 5.0)
"""The shortest and the longest pause between two looks at what is idle."""
IDLE_LOOKS = 10
"""How often within the idle time."""
LOOKED_AT_ONCE = 2000
UNLOADING_CODES = frozenset({3, 6, 42, 69})
LET_GO_S = 1.5
"""How long writes under way may take before share-partitions are handed over."""


class Leader:
    """All share-partitions this gateway leads, by key."""

    def __init__(
        self,
        *,
        clock: Clock,
        record_log: RecordLog,
        metadata: Metadata,
        cluster: Cluster,
        epochs: LeaderEpochs,
        loader: Loader,
        persister: Persister,
        lock_timers: LockTimers,
        activity: Activity,
        max_share_partitions: int,
        idle_ms: int,
    ) -> None:
        self._clock = clock
        self._record_log = record_log
        self._metadata = metadata
        self._cluster = cluster
        self._epochs = epochs
        self._persister = persister
        self._lock_timers = lock_timers
        self.activity = activity
        self._idle_ms = idle_ms
        self._led = LedIndex()
        self.find = self._led.find
        """See LedIndex.find."""
        self._timed: dict[LedSharePartition, None] = {}
        """Those that may have a lock or a delay which ends."""
        self.loads = Loads(
            self._led,
            clock=clock,
            cluster=cluster,
            epochs=epochs,
            loader=loader,
            max_share_partitions=max_share_partitions,
            on_loaded=self._on_loaded,
        )
        self.locks = LockRecorder(clock, lock_timers, cluster, self.loads, self._timed, self.unload)
        self._by_machine_write: dict[int, asyncio.Future[ApiError | None]] = {}
        self.on_dead_letters: Callable[[LedSharePartition, Sequence[DeadLetter]], None] = lambda led, letters: None
        persister.on_outcome = self._on_outcome
        lock_timers.all_locks = self._all_locks
        metadata.on_topic_deleted = self._on_topic_deleted
        metadata.on_group_changed = self._on_group_changed

    # Loading and unloading

    def loaded(self, key: SharePartitionKey) -> LedSharePartition | None:
        return self._led.get(key)

    def all(self) -> Iterable[LedSharePartition]:
        return self._led

    async def get(
        self,
        group_id: str,
        partitions: Sequence[tuple[Topic, int]],
        *,
        initialize: bool = True,
        deadline_ms: int | None = None,
    ) -> list[Loaded]:
        """The share-partitions of a group, loaded; an error in the place of one that cannot be.

        Args:
            initialize: a group and its share-partitions come to be; without it those that are not initialised fail.
            deadline_ms: when the caller goes without those that still load, but for LOADING_PATIENCE_MS in any case.
        """
        return await self.loads.get(group_id, partitions, initialize=initialize, deadline_ms=deadline_ms)

    def _on_loaded(self, led: LedSharePartition, dead_letters: Sequence[DeadLetter]) -> None:
        self._timed[led] = None
        if dead_letters:
            self.on_dead_letters(led, dead_letters)

    def unload(self, led: LedSharePartition) -> None:
        """Lead it no more: whoever waits loads it again."""
        led.fenced = True
        if self._led.remove(led):
            self._timed.pop(led, None)
            self.loads.unloaded(led)
            led.unserved_since_ms = 0
            led_metrics.forget_share_partition(led)
        led.wake_all()

    # Leadership

    async def hand_over(self, *, missed: bool) -> None:
        """Other gateways lead now: let go of what is theirs, take what those that are gone held.

        `missed`: still others may have led in between.
        """
        self._epochs.raise_to(self._cluster.generation.number)
        self.adopt()
        self.loads.outdate(lambda key: missed or not self._cluster.leads(key))
        await self.let_go([led.key for led in self._led if missed or not self._cluster.leads(led.key)])

    def adopt(self) -> None:
        """What is due at gateways that are gone is due here as far as it is led here."""
        self._lock_timers.adopt({node.node_id for node in self._cluster.generation.nodes}, self._cluster.leads)

    async def let_go(self, keys: Sequence[SharePartitionKey]) -> None:
        """Lead these no more, once the writes under way have ended; what is held there is made due at who leads it.

        Their locks are kept for a while, for who leads next: Redis may have missed them.
        """
        self.loads.outdate(set(keys).__contains__)
        leds = [led for key in keys if (led := self._led.get(key)) is not None]
        due = {
            led.key: self._cluster.leader_of(led.key).node_id
            for led in leds
            if led.machine.held_count or led.machine.next_deadline_ms() is not None
        }
        for led in leds:
            self.loads.keep_locks(led)
            self.unload(led)
        quiet = [led.quiet() for led in leds if led.writes]
        if quiet:
            await asyncio.wait(quiet, timeout=LET_GO_S)
        await self._lock_timers.hand_over(due)

    async def until_locks_told(self, have_loaded: Callable[[Sequence[LedSharePartition]], Awaitable[None]]) -> None:
        """This gateway leaves: who leads now learns of what is held from Redis; while that is away, from here."""
        if self._lock_timers.degraded:
            await self.loads.until_told(have_loaded)

    def unload_group(self, group_id: str, topic_ids: Collection[str] | None, *, end: bool) -> None:
        """The state of a group's share-partitions was set anew: lead nothing that was loaded before.

        Args:
            topic_ids: only of these topics; None: of all.
            end: nobody who asked before may begin it again.
        """

        def concerned(key: SharePartitionKey) -> bool:
            return key.group_id == group_id and (topic_ids is None or key.topic_id in topic_ids)

        for led in [led for led in self._led.of_group(group_id) if concerned(led.key)]:
            self.unload(led)
        self.loads.forget_given_up(concerned)
        if end:
            self.loads.abandon(concerned)
        else:
            self.loads.outdate(concerned)

    @property
    def alone(self) -> bool:
        """Whether no other gateway is known, which might have appended something."""
        return self._cluster.alone

    async def still_leads(self, led: LedSharePartition) -> bool:
        """Whether nobody else leads by now: asked before a holder is refused for what is only in memory."""
        epoch = await self._lock_timers.leader_epoch(led.key)
        if led.fenced:
            return False
        if epoch is None:
            return self._cluster.lease_holds()
        if epoch > led.machine.leader_epoch:
            self.unload(led)
            return False
        return True

    def log_changed(self, topic_id: str, partition: int) -> None:
        """Records were appended to a partition, or its log start moved."""
        for led in self._led.of_partition(topic_id, partition):
            led.empty_until_ms = 0
            if not led.unserved_since_ms:
                note_left(led, self._record_log, self._clock.now_ms())
            led.wake()

    def log_forgotten(self, topic_id: str, partition: int) -> None:
        """Whether anything is appended to a partition is not followed any more."""
        for led in self._led.of_partition(topic_id, partition):
            led.empty_until_ms = 0

    def _on_topic_deleted(self, topic_id: str) -> None:
        def concerned(key: SharePartitionKey) -> bool:
            return key.topic_id == topic_id

        for led in self._led.of_topic(topic_id):
            self.unload(led)
        self.loads.forget_given_up(concerned)
        self.loads.outdate(concerned)

    def _on_group_changed(self, group_id: str, config: ShareGroupConfig) -> None:
        for led in self._led.of_group(group_id):
            led.machine.config = config
            led.wake()

    # Persist, then commit

    def persist(self, led: LedSharePartition, write: StateWrite) -> asyncio.Future[ApiError | None]:
        """Send a write; the future ends with None when it is durable. A write that is on its way is joined."""
        known = self._by_machine_write.get(id(write))
        if known is not None:
            return known
        led.writes += 1
        if not led.fenced:
            self._timed[led] = None
        outcome = self._by_machine_write[id(write)] = self._persister.submit(led, write)
        return outcome

    def _on_outcome(self, pending: Pending, error: ApiError | None) -> None:
        led, write = pending.led, pending.write
        led.write_ended()
        self.loads.write_ended(led)
        del self._by_machine_write[id(write)]
        if error is None:
            self.activity.settled(led, write)
        if led.fenced:
            if error is not None and not error.definite and self.loads.may_write(led):
                self._epochs.fence()
            return
        if error is not None and error.error.kafka_code in UNLOADING_CODES:
            self.unload(led)
            return
        if error is not None and not error.definite:
            self.unload(led)
            self.loads.give_up(led)
            return
        completed = led.machine.complete_write(write, ok=error is None, now_ms=self._clock.now_ms())
        if led.machine.window_empty:
            led.batch_times = None
        if completed.dead_letters:
            self.on_dead_letters(led, completed.dead_letters)
        if completed.made_available:
            led.note_unserved(self._clock.now_ms())
            led.wake()
        elif led.empty_until_ms:  # it still is, but what the write was about may come back earlier
            led.note_empty()
        elif completed.start_moved:
            led.wake()
        else:
            led.wake_turned_away(self._clock.now_ms())

    # Locks

    def _all_locks(self) -> list[LockWrite]:
        now_ms = self._clock.now_ms()
        own = [led for led in self._led if not led.machine.window_empty or led.lock_entries]
        return [lock_entries.whole(led, now_ms) for led in (*own, *self.loads.kept_for_others())]

    def expire(self, led: LedSharePartition) -> None:
        """Give back what locks and delays that are due held back. What memory decided stands if the write fails."""
        machine = led.machine
        expired = machine.expire(self._clock.now_ms())
        if expired.records:
            metrics.LOCK_TIMEOUTS[led_metrics.labels_of(led)].inc(expired.records)
            self.activity.expired(led, expired.records)
        if expired.write is not None:
            written = self.persist(led, expired.write)
            if expired.dead_letters:
                written.add_done_callback(lambda _: self._dead_letters_of_expired(led, expired.dead_letters))
        if expired.made_available:
            led.note_unserved(self._clock.now_ms())
            led.wake()
        else:
            led.wake_turned_away(self._clock.now_ms())

    def _dead_letters_of_expired(self, led: LedSharePartition, letters: Sequence[DeadLetter]) -> None:
        """Whoever was replaced learns it from the write: what ended in its memory is not dead where it is led now."""
        if not led.fenced:
            self.on_dead_letters(led, letters)

    def expire_if_due(self, led: LedSharePartition, now_ms: int) -> None:
        deadline_ms = led.machine.next_deadline_ms()
        if deadline_ms is not None and deadline_ms <= now_ms:
            self.expire(led)

    async def expire_all_due(self) -> None:
        now_ms = self._clock.now_ms()
        slices = Slices()
        for led in list(self._timed):
            if slices.over():
                await slices.pause()
            self.expire_if_due(led, now_ms)
            if led.machine.next_deadline_ms() is None and not led.writes:
                self._timed.pop(led, None)

    async def unload_idle(self) -> None:
        """Unload what nobody uses. For ever."""
        shortest_s, longest_s = IDLE_LOOK_PAUSE_S
        pause_s = min(max(self._idle_ms / 1000 / IDLE_LOOKS, shortest_s), longest_s)
        while True:
            await asyncio.sleep(pause_s)
            idle_before_ms = self._clock.now_ms() - self._idle_ms
            for index, led in enumerate(list(self._led)):
                used_at_ms = led.idle_since()
                if used_at_ms is not None and used_at_ms < idle_before_ms:
                    self.unload(led)
                if index % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                    await asyncio.sleep(0)
            metrics.forget_groups(self._led.of_group)

    def release_member(
        self, leds: Iterable[LedSharePartition], member_id: str
    ) -> list[asyncio.Future[ApiError | None]]:
        """Release what a member holds. Returns: the outcomes of the writes, which need not be waited for."""
        now_ms = self._clock.now_ms()
        writes = [(led, led.machine.release_member(member_id, now_ms)) for led in leds]
        return [self.persist(led, write) for led, write in writes if write is not None]

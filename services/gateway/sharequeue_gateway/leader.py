"""The leader of share-partitions: loads them, applies events to them, and persists what the events decided.

One event loop and no await between a decision and its bookkeeping, so there are no locks. A write outlives the request
that caused it. An outcome that is not known is not a failure: the share-partition is read again, with a higher leader
epoch that fences the lost write. Source: KIP-932, the share-partition leader.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence

from sharequeue.log import fields
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import ApiError, CoordinatorNotAvailable, NotLeaderOrFollower, Throttled, error_of
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service import Clock
from sharequeue_gateway import metrics
from sharequeue_gateway.activity import Activity
from sharequeue_gateway.cluster import Change, Cluster
from sharequeue_gateway.led_share_partition import LedSharePartition
from sharequeue_gateway.loading import Loader
from sharequeue_gateway.lock_timers import LockEntry, LockTimers, LockWrite
from sharequeue_gateway.metadata import Metadata, Topic
from sharequeue_gateway.persister import Pending, Persister
from sharequeue_gateway.share_partition import AcquiredRange, DeadLetter, StateWrite

log = logging.getLogger(__name__)

SWEEP_PAUSE_S = 0.5
UNLOADING_CODES = frozenset({3, 6, 42, 69})
REMIND_AGAIN_MS = 30_000
LOAD_AGAIN_MS = 1_000
NOT_LED_AGAIN_MS = 10_000
"""How long a share-partition that is due, but that another leads as it seems, is left alone: it learns who by then."""
LOADING_PATIENCE_MS = 5_000
NEW_EPOCH_PATIENCE_S = 10.0
LET_GO_S = 1.5
"""How long writes under way may take before share-partitions are handed over."""

Loaded = LedSharePartition | ApiError


class Leader:
    """All share-partitions this gateway leads, by key."""

    def __init__(
        self,
        *,
        clock: Clock,
        metadata: Metadata,
        cluster: Cluster,
        loader: Loader,
        persister: Persister,
        lock_timers: LockTimers,
        activity: Activity,
        max_share_partitions: int,
    ) -> None:
        self._clock = clock
        self._metadata = metadata
        self._cluster = cluster
        self._loader = loader
        self._persister = persister
        self._lock_timers = lock_timers
        self.activity = activity
        self._max_share_partitions = max_share_partitions
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._by_place: dict[tuple[str, int], dict[LedSharePartition, None]] = {}
        self._loading: dict[SharePartitionKey, asyncio.Future[Loaded]] = {}
        self._loading_known: set[SharePartitionKey] = set()
        """Loads under way that do not initialise."""
        self._loading_due: set[SharePartitionKey] = set()
        self._reloading: dict[SharePartitionKey, LedSharePartition] = {}
        """Given up because a write's outcome is not known; their locks are taken over by the load that follows.

        Who holds records may never ask again, so one is loaded at the latest when a lock of it ends.
        """
        self._ending: dict[SharePartitionKey, LedSharePartition] = {}
        """Unloaded while writes were on their way, which under the same epoch may come after what a load reads."""
        self._by_machine_write: dict[int, asyncio.Future[ApiError | None]] = {}
        self._outdated: set[SharePartitionKey] = set()
        """Loads under way whose state was set anew meanwhile: what they bring is not led."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._new_epoch: asyncio.Task[None] | None = None
        self._higher_epoch: asyncio.Task[None] | None = None
        self.on_dead_letters: Callable[[LedSharePartition, Sequence[DeadLetter]], None] = lambda led, letters: None
        persister.on_outcome = self._on_outcome
        lock_timers.on_due = self._on_due
        lock_timers.all_locks = self._all_locks
        metadata.on_topic_deleted = self._on_topic_deleted
        metadata.on_group_changed = self._on_group_changed

    # Loading and unloading

    def loaded(self, key: SharePartitionKey) -> LedSharePartition | None:
        return self._led.get(key)

    def all(self) -> Iterable[LedSharePartition]:
        return self._led.values()

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
        keys = [SharePartitionKey(group_id, topic.topic_id, partition) for topic, partition in partitions]
        answers: list[Loaded | None] = [self._led.get(key) for key in keys]
        if None not in answers:
            return answers  # type: ignore[return-value]  # None was just ruled out
        missing = [
            (key, topic)
            for key, (topic, _), answer in zip(keys, partitions, answers, strict=True)
            if answer is None and key not in self._loading
        ]
        if missing and len(self._led) + len(self._loading) + len(missing) > self._max_share_partitions:
            full = Throttled(
                f"this gateway has {len(self._led)} share-partitions loaded; those that nobody uses make room",
                limit=self._max_share_partitions,
            )
            answers = [
                full if answer is None and key not in self._loading else answer
                for key, answer in zip(keys, answers, strict=True)
            ]
        elif missing:
            led_here = [(key, topic) for key, topic in missing if self._cluster.leads(key)]
            if len(led_here) < len(missing):
                elsewhere = {key for key, _ in missing} - {key for key, _ in led_here}
                answers = [
                    self._not_leader() if key in elsewhere else answer
                    for key, answer in zip(keys, answers, strict=True)
                ]
            if led_here:
                self._start_loading(group_id, led_here, initialize)
        futures = {key: future for key in keys if (future := self._loading.get(key)) is not None}
        joined = self._loading_known.intersection(keys) if initialize else ()
        if futures:
            await asyncio.wait(futures.values(), timeout=self._patience_s(deadline_ms))
        for index, key in enumerate(keys):
            if answers[index] is not None:
                continue
            if not futures[key].done():
                answers[index] = error_of(14, "the share-partition is still being loaded; try again in a moment")
            elif key in joined and isinstance(futures[key].result(), ApiError):
                (answers[index],) = await self.get(group_id, [partitions[index]], deadline_ms=deadline_ms)
            else:
                answers[index] = futures[key].result()
        return answers  # type: ignore[return-value]

    def _patience_s(self, deadline_ms: int | None) -> float | None:
        if deadline_ms is None:
            return None
        return max(deadline_ms - self._clock.now_ms(), LOADING_PATIENCE_MS) / 1000

    def _start_loading(
        self, group_id: str, missing: Sequence[tuple[SharePartitionKey, Topic]], initialize: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        for key, _ in missing:
            self._loading[key] = loop.create_future()
            if not initialize:
                self._loading_known.add(key)
        self._spawn(self._load(group_id, missing, initialize))

    async def _load(self, group_id: str, missing: Sequence[tuple[SharePartitionKey, Topic]], initialize: bool) -> None:
        started_ms = self._clock.now_ms()
        outcomes: Sequence[tuple[LedSharePartition, Sequence[DeadLetter]] | ApiError]
        try:
            await self._have_earlier_writes_over([key for key, _ in missing])
            left = {key: led for key, _ in missing if (led := self._reloading.get(key)) is not None}
            outcomes = await self._loader.load(group_id, missing, left, initialize=initialize)
        except ApiError as error:
            outcomes = [error] * len(missing)
        except Exception as fault:
            log.exception("loading share-partitions failed", extra=fields(group_id=group_id))
            outcomes = [ApiError(f"loading the share-partition failed: {fault!r}")] * len(missing)
        metrics.PARTITION_LOAD_SECONDS.observe((self._clock.now_ms() - started_ms) / 1000)
        for (key, topic), outcome in zip(missing, outcomes, strict=True):
            answer: Loaded
            if not self._cluster.leads(key):
                answer = self._not_leader()  # the gateways changed meanwhile
            elif isinstance(outcome, ApiError):
                answer = outcome
                if isinstance(outcome, NotLeaderOrFollower):
                    self._ask_for_higher_epoch()
                log.warning(
                    "cannot load share-partition",
                    extra=fields(group_id=group_id, topic=topic.name, partition=key.partition, cause=outcome.detail),
                )
            else:
                answer, dead_letters = outcome
                if key in self._outdated:
                    answer.fenced = True
                else:
                    self._led[key] = answer
                    self._by_place.setdefault((key.topic_id, key.partition), {})[answer] = None
                self._reloading.pop(key, None)
                if dead_letters and not answer.fenced:
                    self.on_dead_letters(answer, dead_letters)
            self._loading_known.discard(key)
            self._outdated.discard(key)
            self._loading.pop(key).set_result(answer)

    def _not_leader(self) -> ApiError:
        return NotLeaderOrFollower(f"{self._cluster.me.node_id} does not lead this share-partition")

    def unload(self, led: LedSharePartition) -> None:
        """Lead it no more: whoever waits loads it again."""
        led.fenced = True
        if self._led.get(led.key) is led:
            del self._led[led.key]
            place = (led.key.topic_id, led.key.partition)
            del self._by_place[place][led]
            if not self._by_place[place]:
                del self._by_place[place]
            if led.writes:
                self._ending[led.key] = led
            metrics.forget_share_partition(led)
        led.wake_all()

    # Leadership

    async def hand_over(self, change: Change) -> None:
        """Other gateways lead now: let go of what is theirs, take what those that are gone held."""
        self._loader.leader_epoch = max(self._loader.leader_epoch, self._cluster.generation.number)
        if change.missed:
            self._outdated.update(self._loading)
        await self.let_go([key for key in self._led if change.missed or not self._cluster.leads(key)])
        for node in change.gone:
            await self._lock_timers.adopt(node.node_id, self._cluster.leads)

    async def let_go(self, keys: Sequence[SharePartitionKey]) -> None:
        """Lead these no more, once the writes under way have ended; what is held there is made due at who leads it."""
        leds = [led for key in keys if (led := self._led.get(key)) is not None]
        due = {
            led.key: self._cluster.leader_of(led.key).node_id
            for led in leds
            if led.machine.held_count or led.machine.next_deadline_ms() is not None
        }
        for led in leds:
            self.unload(led)
        quiet = [led.quiet() for led in leds if led.writes]
        if quiet:
            await asyncio.wait(quiet, timeout=LET_GO_S)
        await self._lock_timers.hand_over(due)

    def unload_group(self, group_id: str, topic_ids: Collection[str] | None = None) -> None:
        """The state of a group's share-partitions was set anew: lead nothing that was loaded before.

        `topic_ids`: only of these topics; None: of all.
        """

        def concerned(keys: Iterable[SharePartitionKey]) -> list[SharePartitionKey]:
            of_group = [key for key in keys if key.group_id == group_id]
            return [key for key in of_group if topic_ids is None or key.topic_id in topic_ids]

        for key in concerned(self._led):
            self.unload(self._led[key])
        for key in concerned(self._reloading):
            del self._reloading[key]
        self._outdated.update(concerned(self._loading))

    def may_acquire(self) -> bool:
        """Whether another gateway surely does not hand out the same records: Redis fences it, or else the lease does."""
        return not self._lock_timers.degraded or self._cluster.lease_holds()

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
        for led in self._by_place.get((topic_id, partition), ()):
            led.wake()

    def _reload_with_new_epoch(self, led: LedSharePartition) -> None:
        self.unload(led)
        if led.machine.held_count:
            self._reloading[led.key] = led
        self._fence()

    def _fence(self) -> None:
        """A write got lost and may still arrive: load nothing before there is an epoch above its own."""
        if self._new_epoch is None:
            self._new_epoch = asyncio.get_running_loop().create_task(self._take_new_epoch())

    async def _have_earlier_writes_over(self, keys: Sequence[SharePartitionKey]) -> None:
        """Wait until writes of an earlier load of these have ended, or are fenced by the epoch to load with.

        Raises: CoordinatorNotAvailable: it takes too long.
        """
        while True:
            await self._have_new_epoch()
            ending = [led for key in keys if (led := self._ending.get(key)) is not None and self._may_write(led)]
            if not ending:
                return
            await asyncio.wait([led.quiet() for led in ending])

    def _may_write(self, led: LedSharePartition) -> bool:
        """Whether a write of it would stand although it is loaded again now."""
        return led.machine.leader_epoch >= self._loader.leader_epoch

    async def _have_new_epoch(self) -> None:
        """Wait for the epoch that fences a lost write. Raises: CoordinatorNotAvailable: it takes too long."""
        new_epoch = self._new_epoch
        if new_epoch is not None:
            await asyncio.wait([new_epoch], timeout=NEW_EPOCH_PATIENCE_S)
            if not new_epoch.done():
                raise CoordinatorNotAvailable("the group coordinator gives no leader epoch now; try again in a moment")

    async def _raise_epoch(self) -> None:
        epoch = await self._cluster.next_leader_epoch()
        self._loader.leader_epoch = max(self._loader.leader_epoch, epoch)  # or a generation came meanwhile

    async def _take_new_epoch(self) -> None:
        while True:
            try:
                await self._raise_epoch()
                break
            except Exception as fault:  # whatever it is: before there is one nothing may be loaded
                log.warning("no new leader epoch yet", extra=fields(cause=repr(fault)))
                await asyncio.sleep(0.5)
        self._new_epoch = None

    def _ask_for_higher_epoch(self) -> None:
        """What this gateway leads knows a higher epoch, of one that led it before: the next load needs one above it."""
        if self._higher_epoch is None and self._new_epoch is None:
            self._higher_epoch = asyncio.get_running_loop().create_task(self._take_higher_epoch())

    async def _has_epoch_above(self, tried: int) -> bool:
        """Whether the higher epoch that was asked for was given, so that it is of use to load once more."""
        if self._higher_epoch is not None:
            await asyncio.wait([self._higher_epoch])
        return self._loader.leader_epoch > tried

    async def _take_higher_epoch(self) -> None:
        try:
            await self._raise_epoch()
        except ApiError as error:
            log.info("no higher leader epoch", extra=fields(cause=error.detail))
        finally:
            self._higher_epoch = None

    def _on_topic_deleted(self, topic_id: str) -> None:
        for led in [led for key, led in self._led.items() if key.topic_id == topic_id]:
            self.unload(led)
        for key in [key for key in self._reloading if key.topic_id == topic_id]:
            del self._reloading[key]

    def _on_group_changed(self, group_id: str, config: ShareGroupConfig) -> None:
        for key, led in self._led.items():
            if key.group_id == group_id:
                led.machine.config = config
                led.wake()

    # Persist, then commit

    def persist(self, led: LedSharePartition, write: StateWrite) -> asyncio.Future[ApiError | None]:
        """Send a write; the future ends with None when it is durable. A write that is on its way is joined."""
        known = self._by_machine_write.get(id(write))
        if known is not None:
            return known
        led.writes += 1
        outcome = self._by_machine_write[id(write)] = self._persister.submit(led, write)
        return outcome

    def _on_outcome(self, pending: Pending, error: ApiError | None) -> None:
        led, write = pending.led, pending.write
        led.write_ended()
        if not led.writes and self._ending.get(led.key) is led:
            del self._ending[led.key]
        del self._by_machine_write[id(write)]
        if error is None:
            self.activity.settled(led, write)
        if led.fenced:
            if error is not None and not error.definite and self._may_write(led):
                self._fence()
            return
        if error is not None and error.error.kafka_code in UNLOADING_CODES:
            self.unload(led)
            return
        if error is not None and not error.definite:
            self._reload_with_new_epoch(led)
            return
        completed = led.machine.complete_write(write, ok=error is None, now_ms=self._clock.now_ms())
        if led.machine.window_empty:
            led.batch_times = None
        if completed.dead_letters:
            self.on_dead_letters(led, completed.dead_letters)
        if completed.made_available or completed.start_moved:
            led.wake()
        else:
            led.wake_turned_away(self._clock.now_ms())

    # Locks

    async def record_locks(
        self,
        led: LedSharePartition,
        member_id: str,
        ranges: Sequence[AcquiredRange],
        fetch: tuple[str, bytes, int] | None = None,
    ) -> bool:
        """Write locks to Redis before they are told. Returns: False if this gateway leads no more."""
        if led.fenced or not self.may_acquire():
            self.unload(led)
            return False
        over = led.take_lock_entries_over()
        led.note_lock_entries(ranges)
        if led.lock_entries_outgrown():
            write = self._whole(led, fetch)
        else:
            machine = led.machine
            entries = {
                (first, last): LockEntry(member_id, delivery_count, deadline_ms, machine.state_epoch)
                for first, last, delivery_count, deadline_ms in ranges
            }
            write = LockWrite(led.key, machine.leader_epoch, self._remind_at_ms(led), entries, over, fetch)
        leads = await self._lock_timers.write(write) and self.may_acquire()
        if not leads:
            log.warning("another gateway leads", extra=fields(group_id=led.key.group_id, topic=led.topic_name))
            self.unload(led)
        return leads and not led.fenced

    def _all_locks(self) -> list[LockWrite]:
        return [self._whole(led) for led in self._led.values() if not led.machine.window_empty or led.lock_entries]

    def _whole(self, led: LedSharePartition, fetch: tuple[str, bytes, int] | None = None) -> LockWrite:
        """All that Redis should hold of a share-partition's locks, in place of what it holds."""
        machine = led.machine
        locks = machine.locks()
        led.lock_entries = None
        led.note_lock_entries(locks)
        entries = {
            (first, last): LockEntry(member_id, delivery_count, deadline_ms, machine.state_epoch)
            for first, last, member_id, delivery_count, deadline_ms in locks
        }
        return LockWrite(led.key, machine.leader_epoch, self._remind_at_ms(led), entries, None, fetch)

    def _remind_at_ms(self, led: LedSharePartition) -> int | None:
        deadline_ms = led.machine.next_deadline_ms()
        if deadline_ms is None and led.machine.held_count:
            return self._clock.now_ms() + REMIND_AGAIN_MS  # dead letters are not written yet
        return deadline_ms

    def _on_due(self, key: SharePartitionKey) -> None:
        led = self._led.get(key)
        if led is None:
            if not self._cluster.leads(key):
                self._spawn(self._lock_timers.hand_over({key: self._cluster.leader_of(key).node_id}))
            else:
                self._start_loading_due(key)
            return
        self.expire(led)
        over = led.take_lock_entries_over()
        write = LockWrite(key, led.machine.leader_epoch, self._remind_at_ms(led), {}, over, None)

        def written(leads: asyncio.Future[bool]) -> None:
            if not leads.result():
                self.unload(led)

        self._lock_timers.write(write).add_done_callback(written)

    def _start_loading_due(self, key: SharePartitionKey) -> None:
        if key not in self._loading_due:
            self._loading_due.add(key)
            self._spawn(self._load_due(key))

    async def _load_due(self, key: SharePartitionKey) -> None:
        """A lock of a share-partition that nobody fetches from is due: load it, so that its records come back."""
        tried = self._loader.leader_epoch
        try:
            await self._metadata.topics_by_id([key.topic_id])
            topic = self._metadata.known_topic_id(key.topic_id)
            loaded = None
            if topic is not None:
                (loaded,) = await self.get(key.group_id, [(topic, key.partition)], initialize=False)
            if isinstance(loaded, LedSharePartition):
                self._on_due(key)
            elif isinstance(loaded, NotLeaderOrFollower):
                self._reloading.pop(key, None)
                if not await self._has_epoch_above(tried) and self._cluster.leads(key):
                    await self._lock_timers.put_off(key, NOT_LED_AGAIN_MS)
            elif topic is None or (isinstance(loaded, ApiError) and loaded.definite and not loaded.error.retriable):
                self._reloading.pop(key, None)
                await self._lock_timers.forget_due(key)
            else:
                await self._lock_timers.put_off(key, LOAD_AGAIN_MS)
        except ApiError as error:
            log.info("a lock that is due waits", extra=fields(group_id=key.group_id, cause=error.detail))
            await self._lock_timers.put_off(key, LOAD_AGAIN_MS)
        finally:
            self._loading_due.discard(key)

    def expire(self, led: LedSharePartition) -> None:
        """Give back what locks and delays that are due held back. What memory decided stands if the write fails."""
        machine = led.machine
        expired = machine.expire(self._clock.now_ms())
        if expired.records:
            metrics.LOCK_TIMEOUTS.labels(led.key.group_id, led.topic_name, str(led.key.partition)).inc(expired.records)
            self.activity.expired(led, expired.records)
        if expired.write is not None:
            written = self.persist(led, expired.write)
            if expired.dead_letters:
                written.add_done_callback(lambda _: self._dead_letters_of_expired(led, expired.dead_letters))
        if expired.made_available:
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

    async def sweep(self) -> None:
        """End locks that are due without Redis's help, and unload what is idle. For ever."""
        while True:
            await asyncio.sleep(SWEEP_PAUSE_S)
            now_ms = self._clock.now_ms()
            idle_before_ms = now_ms - self._loader.idle_ms
            for index, led in enumerate(list(self._led.values())):
                if led.fenced:
                    continue  # unloaded while others had their turn
                self.expire_if_due(led, now_ms)
                used_at_ms = led.idle_since()
                if used_at_ms is not None and used_at_ms < idle_before_ms:
                    self.unload(led)
                if index % 2000 == 1999:
                    await asyncio.sleep(0)
            for key, led in self._reloading.items():
                if (led.machine.next_deadline_ms() or 0) <= now_ms:
                    self._start_loading_due(key)

    def release_member(
        self, leds: Iterable[LedSharePartition], member_id: str
    ) -> list[asyncio.Future[ApiError | None]]:
        """Release what a member holds. Returns: the outcomes of the writes, which need not be waited for."""
        now_ms = self._clock.now_ms()
        writes = [(led, led.machine.release_member(member_id, now_ms)) for led in leds]
        return [self.persist(led, write) for led, write in writes if write is not None]

    # Bookkeeping

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

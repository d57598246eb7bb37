"""The share-partitions that this gateway leads, loads and has unloaded. A share-partition is loaded once for all
callers, after its earlier writes have ended.

Source: KIP-932, the leader of a share-partition loads it with its first fetch.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sharequeue import background
from sharequeue.clock import Clock
from sharequeue.protocol.errors import CoordinatorLoadInProgress, InvalidRecordState, NotLeaderOrFollower
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import KnownTopic, Partitions
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.leader.kept_locks import KeptLocks
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.loader import Fenced, Loader, Outcome, Wanted
from sharequeue_gateway.leader.reports import led_metrics
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable, Throttled
from sharequeue_http.log import Tally, fields

log = logging.getLogger(__name__)

LOADING_PATIENCE_MS: Final = 5_000

Loaded = LedSharePartition | ApiError


@dataclass(eq=False, slots=True)
class Load:
    """One share-partition that is being loaded.

    `initialize`: as in `Loads.get`. `discarded`: its state was reset or another gateway took over after the load began,
    so the result is dropped. `task`: loads this share-partition, and perhaps others of the same request.
    """

    task: asyncio.Task[None]
    initialize: bool
    discarded: bool = False
    outcome: asyncio.Future[Loaded] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(eq=False)
class Loads:
    """Loads share-partitions into `led`, the index of the led ones, and unloads them.

    `kept_locks`: the locks of unloaded share-partitions, for their next load.

    A share-partition is in `_loading` from the first request for it until its outcome is set. In that same step it
    enters the index, so it is never in both. `_ending` has those that were unloaded with writes under way. Such a write
    has the epoch of its load, and may be applied after a new load has read the state.
    """

    led: LedIndex
    _loader: Loader
    _dead_letters: DeadLetterQueue
    clock: Clock
    cluster: Cluster
    epochs: LeaderEpochs
    max_share_partitions: int
    _loading: dict[SharePartitionKey, Load] = field(init=False, default_factory=dict)
    _ending: dict[SharePartitionKey, LedSharePartition] = field(init=False, default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.kept_locks = KeptLocks(self.cluster, self.clock)
        self._failed = Tally(log, logging.WARNING, "cannot load share-partition", most=20)

    async def get(
        self,
        group_id: str,
        partitions: Partitions,
        *,
        initialize: bool = True,
        deadline_ms: int | None = None,
    ) -> list[Loaded]:
        """As Leader.get."""
        keys = [SharePartitionKey(group_id, topic.topic_id, partition) for topic, partition in partitions]
        answers: dict[SharePartitionKey, Loaded] = {key: led for key in keys if (led := self.led.get(key)) is not None}
        missing = [
            (key, topic)
            for key, (topic, _) in zip(keys, partitions, strict=True)
            if key not in answers and key not in self._loading
        ]
        answers |= self._refused([key for key, _ in missing])
        led_here = [(key, topic) for key, topic in missing if key not in answers]
        if led_here:
            task = background.start(self._tasks, self._load(group_id, led_here, initialize))
            self._loading.update((key, Load(task, initialize)) for key, _ in led_here)
        loads = {key: load for key in keys if (load := self._loading.get(key)) is not None}
        if loads:
            left_ms = None if deadline_ms is None else max(deadline_ms - self.clock.now_ms(), LOADING_PATIENCE_MS)
            outcomes = [load.outcome for load in loads.values()]
            await asyncio.wait(outcomes, timeout=None if left_ms is None else left_ms / 1000)
        for key, load in loads.items():
            if load.outcome.done():
                answers[key] = load.outcome.result()
            else:
                trouble = self._loader.record_log.trouble
                waits = f": the record log does not answer ({trouble})" if trouble else ""
                answers[key] = CoordinatorLoadInProgress(
                    f"the share-partition is still being loaded{waits}; try again in a moment"
                )
            if initialize and not load.initialize and isinstance(answers[key], InvalidRecordState):
                (answers[key],) = await self.get(group_id, [partitions[keys.index(key)]], deadline_ms=deadline_ms)
        return [answers[key] for key in keys]

    def _refused(self, missing: Sequence[SharePartitionKey]) -> dict[SharePartitionKey, ApiError]:
        """The share-partitions that this gateway does not load, with the reason."""
        if missing and len(self.led) + len(self._loading) + len(missing) > self.max_share_partitions:
            full = Throttled(
                f"this gateway has {len(self.led)} share-partitions loaded; it unloads idle ones, so try again later",
                limit=self.max_share_partitions,
            )
            return dict.fromkeys(missing, full)
        return {key: self._not_leader() for key in missing if not self.cluster.leads(key)}

    def _not_leader(self) -> ApiError:
        return NotLeaderOrFollower(f"{self.cluster.me.node_id} does not lead this share-partition")

    async def _load(self, group_id: str, wanted: Sequence[Wanted], initialize: bool) -> None:
        started_ms = self.clock.now_ms()
        keys = [key for key, _ in wanted]
        outcomes: Sequence[Outcome]
        try:
            await self._until_earlier_writes_ended(keys)
            left = self.kept_locks.left(keys)
            outcomes = await self._loader.load(group_id, wanted, left, initialize=initialize)
        except ApiError as error:
            outcomes = [error] * len(wanted)
        except Exception as fault:
            log.exception("loading share-partitions failed", extra=fields(group_id=group_id))
            outcomes = [ApiError(f"loading the share-partition failed: {fault!r}")] * len(wanted)
        metrics.PARTITION_LOAD_SECONDS.observe((self.clock.now_ms() - started_ms) / 1000)
        for (key, topic), outcome in zip(wanted, outcomes, strict=True):
            self._end(key, self._led_from(key, topic, outcome))

    def _led_from(self, key: SharePartitionKey, topic: KnownTopic, outcome: Outcome) -> Loaded:
        """Lead a share-partition that was loaded. Returns: the answer for all callers that wait for it."""
        if not self.cluster.leads(key):  # the gateways changed during the load
            return self._not_leader()
        if isinstance(outcome, ApiError):
            if isinstance(outcome, NotLeaderOrFollower):
                self.epochs.ask_for_higher(outcome.seen if isinstance(outcome, Fenced) else 0)
            self._failed.note(
                key, group_id=key.group_id, topic=topic.name, partition=key.partition, cause=outcome.detail
            )
            return outcome
        led, dead_letters = outcome
        if self._loading[key].discarded:
            led.fenced = True
            return led
        self.kept_locks.discard(key)
        self.led.add(led)
        if dead_letters:
            self._dead_letters.enqueue(led, dead_letters)
        return led

    def _end(self, key: SharePartitionKey, answer: Loaded) -> None:
        self._loading.pop(key).outcome.set_result(answer)

    def discard(self, concerned: Callable[[SharePartitionKey], bool]) -> None:
        """Drop the results of these loads: the state was reset, or another gateway leads."""
        for key, load in self._loading.items():
            load.discarded |= concerned(key)

    def cancel(self, concerned: Callable[[SharePartitionKey], bool]) -> None:
        """Cancel these loads: a retry could create a deleted group again."""
        cancelled = {load.task for key, load in self._loading.items() if concerned(key)}
        for task in cancelled:
            task.cancel()
        for key in [key for key, load in self._loading.items() if load.task in cancelled]:
            self._end(key, CoordinatorNotAvailable("the group's state is being reset; try again"))

    # Unloading

    def unload(self, led: LedSharePartition) -> None:
        """Stop leading it, also while it writes. Fetches that wait load it again, here or at its new leader."""
        led.fenced = True
        if self.led.remove(led):
            self.led.note_left(led)
            if led.writes:
                self._ending[led.key] = led
            metrics.LOCK_TIMEOUTS.forget(led_metrics.labels_of(led))
        led.wake_all()

    def forget(self, leds: Iterable[LedSharePartition], concerned: Callable[[SharePartitionKey], bool]) -> None:
        """Their state was reset, or their topic is deleted: unload these, and keep nothing for the next load.

        Args:
            concerned: which share-partitions lose their kept locks, and the results of loads under way.
        """
        for led in leds:
            self.unload(led)
        self.kept_locks.drop(concerned)
        self.discard(concerned)

    # Earlier writes

    def writes_ended(self, led: LedSharePartition) -> None:
        """The last write of an unloaded share-partition has ended."""
        led.become_quiet()
        if self._ending.get(led.key) is led:
            del self._ending[led.key]

    def fence(self, led: LedSharePartition) -> None:
        """The outcome of a write is unknown: load nothing until a higher epoch fences it.

        If the share-partition was unloaded before, a new load may have fenced the write already.
        """
        if not led.fenced or self._may_be_applied(led):
            self.epochs.fence()

    def _may_be_applied(self, led: LedSharePartition) -> bool:
        """Return whether a late write of it would still be applied after a new load."""
        return led.machine.leader_epoch >= self.epochs.current

    async def _until_earlier_writes_ended(self, keys: Sequence[SharePartitionKey]) -> None:
        """Wait until the writes of earlier loads of these have ended, or are fenced by the epoch of the next load.

        Raises: CoordinatorNotAvailable: that takes too long.
        """
        while True:
            await self.epochs.fenced()
            ending = [led for key in keys if (led := self._ending.get(key)) is not None and self._may_be_applied(led)]
            if not ending:
                return
            await asyncio.wait([led.quiet() for led in ending])

"""Loads of share-partitions under way: each is loaded once, whoever asks, and not while an earlier write may overtake it.

Source: KIP-932, the share-partition leader loads a share-partition with its first fetch.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from sharequeue.clock import Clock
from sharequeue.log import Rarely, fields
from sharequeue.protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    InvalidRecordState,
    NotLeaderOrFollower,
    Throttled,
    error_of,
)
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import Topic
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loader import Loader, Outcome, Wanted
from sharequeue_gateway.share_partition.machine import DeadLetter
from sharequeue_gateway.share_partition.runs import LeftLocks

log = logging.getLogger(__name__)

LOADING_PATIENCE_MS = 5_000
TELL_S = 2.0
"""How long a gateway that leaves tries to be asked for locks that it alone knows."""
TELL_PAUSE_S = 0.1

Loaded = LedSharePartition | ApiError


class GivenUp(NamedTuple):
    """A share-partition that was unloaded with locks, the last of which ends at `ends_at_ms`.

    `told`: another gateway has asked for them.
    """

    led: LedSharePartition
    ends_at_ms: int
    told: asyncio.Event


class Loads:
    """Brings what is asked for into `led`, and remembers of what was unloaded what the next load needs."""

    def __init__(
        self,
        led: LedIndex,
        *,
        clock: Clock,
        cluster: Cluster,
        epochs: LeaderEpochs,
        loader: Loader,
        max_share_partitions: int,
        on_loaded: Callable[[LedSharePartition, Sequence[DeadLetter]], None],
    ) -> None:
        self._led = led
        self._clock = clock
        self._failed = Rarely(lines=3, seconds=1)
        self._cluster = cluster
        self._epochs = epochs
        self._loader = loader
        self._max_share_partitions = max_share_partitions
        self._on_loaded = on_loaded
        self._loading: dict[SharePartitionKey, asyncio.Future[Loaded]] = {}
        self._known_only: set[SharePartitionKey] = set()
        """Loads under way that do not initialise."""
        self._outdated: set[SharePartitionKey] = set()
        """Loads under way whose state was set anew, or of others, meanwhile: what they bring is not led."""
        self._given_up: dict[SharePartitionKey, GivenUp] = {}
        """Unloaded because a write's outcome is not known, or because another gateway leads now; their locks are taken
        over by the load that follows, here or there.

        Who holds records may never ask again, so one is loaded at the latest when a lock of it ends.
        """
        self._ending: dict[SharePartitionKey, LedSharePartition] = {}
        """Unloaded while writes were on their way, which under the same epoch may come after what a load reads."""
        self._tasks: dict[asyncio.Task[None], Sequence[SharePartitionKey]] = {}
        """Loads under way, with what they bring; nothing once they were abandoned. What is done leaves a moment later."""

    async def get(
        self,
        group_id: str,
        partitions: Sequence[tuple[Topic, int]],
        *,
        initialize: bool = True,
        deadline_ms: int | None = None,
    ) -> list[Loaded]:
        """As Leader.get."""
        keys = [SharePartitionKey(group_id, topic.topic_id, partition) for topic, partition in partitions]
        answers: list[Loaded | None] = [self._led.get(key) for key in keys]
        if None not in answers:
            return answers  # type: ignore[return-value]  # None was just ruled out
        missing = [
            (key, topic)
            for key, (topic, _), answer in zip(keys, partitions, answers, strict=True)
            if answer is None and key not in self._loading
        ]
        refused = self._refused([key for key, _ in missing])
        led_here = [(key, topic) for key, topic in missing if key not in refused]
        if led_here:
            self._start(group_id, led_here, initialize)
        futures = {key: future for key in keys if (future := self._loading.get(key)) is not None}
        joined = self._known_only.intersection(keys) if initialize else ()
        if futures:
            await asyncio.wait(futures.values(), timeout=self._patience_s(deadline_ms))
        for index, key in enumerate(keys):
            if answers[index] is not None:
                continue
            if key in refused:
                answers[index] = refused[key]
            elif not futures[key].done():
                answers[index] = error_of(14, "the share-partition is still being loaded; try again in a moment")
            elif key in joined and isinstance(futures[key].result(), InvalidRecordState):  # it is not initialised
                (answers[index],) = await self.get(group_id, [partitions[index]], deadline_ms=deadline_ms)
            else:
                answers[index] = futures[key].result()
        return answers  # type: ignore[return-value]

    def _refused(self, missing: Sequence[SharePartitionKey]) -> dict[SharePartitionKey, ApiError]:
        """Those that are not loaded here, and why."""
        if missing and len(self._led) + len(self._loading) + len(missing) > self._max_share_partitions:
            full = Throttled(
                f"this gateway has {len(self._led)} share-partitions loaded; those that nobody uses make room",
                limit=self._max_share_partitions,
            )
            return dict.fromkeys(missing, full)
        return {key: self._not_leader() for key in missing if not self._cluster.leads(key)}

    def _not_leader(self) -> ApiError:
        return NotLeaderOrFollower(f"{self._cluster.me.node_id} does not lead this share-partition")

    def _patience_s(self, deadline_ms: int | None) -> float | None:
        if deadline_ms is None:
            return None
        return max(deadline_ms - self._clock.now_ms(), LOADING_PATIENCE_MS) / 1000

    def _start(self, group_id: str, wanted: Sequence[Wanted], initialize: bool) -> None:
        loop = asyncio.get_running_loop()
        for key, _ in wanted:
            self._loading[key] = loop.create_future()
            if not initialize:
                self._known_only.add(key)
        task = loop.create_task(self._load(group_id, wanted, initialize))
        self._tasks[task] = [key for key, _ in wanted]
        task.add_done_callback(self._tasks.pop)

    async def _load(self, group_id: str, wanted: Sequence[Wanted], initialize: bool) -> None:
        started_ms = self._clock.now_ms()
        outcomes: Sequence[Outcome]
        try:
            await self._have_earlier_writes_over([key for key, _ in wanted])
            left = {
                key: LeftLocks(given_up.led.machine.state_epoch, given_up.led.machine.locks())
                for key, _ in wanted
                if (given_up := self._given_up.get(key)) is not None
            }
            outcomes = await self._loader.load(group_id, wanted, left, initialize=initialize)
        except ApiError as error:
            outcomes = [error] * len(wanted)
        except Exception as fault:
            log.exception("loading share-partitions failed", extra=fields(group_id=group_id))
            outcomes = [ApiError(f"loading the share-partition failed: {fault!r}")] * len(wanted)
        metrics.PARTITION_LOAD_SECONDS.observe((self._clock.now_ms() - started_ms) / 1000)
        for (key, topic), outcome in zip(wanted, outcomes, strict=True):
            answer: Loaded
            if not self._cluster.leads(key):
                answer = self._not_leader()  # the gateways changed meanwhile
            elif isinstance(outcome, ApiError):
                answer = outcome
                if isinstance(outcome, NotLeaderOrFollower):
                    self._epochs.ask_for_higher()
                missed = self._failed.allows(time.monotonic())
                if missed is not None:
                    log.warning(
                        "cannot load share-partition",
                        extra=fields(
                            group_id=group_id,
                            topic=topic.name,
                            partition=key.partition,
                            cause=outcome.detail,
                            not_logged=missed,
                        ),
                    )
            else:
                answer, dead_letters = outcome
                if key in self._outdated:
                    answer.fenced = True
                else:
                    self._given_up.pop(key, None)
                    self._led.add(answer)
                    self._on_loaded(answer, dead_letters)
            self._end(key, answer)

    def _end(self, key: SharePartitionKey, answer: Loaded) -> None:
        self._known_only.discard(key)
        self._outdated.discard(key)
        self._loading.pop(key).set_result(answer)

    def outdate(self, concerned: Callable[[SharePartitionKey], bool]) -> None:
        """What is being loaded of these is not to be led."""
        self._outdated.update(filter(concerned, self._loading))

    def abandon(self, concerned: Callable[[SharePartitionKey], bool]) -> None:
        """These are not to be loaded: what a load still asks for, time and again, might begin anew what is deleted."""
        for task, keys in list(self._tasks.items()):
            if any(map(concerned, keys)) and not task.done():
                task.cancel()
                self._tasks[task] = ()
                for key in keys:
                    self._end(key, CoordinatorNotAvailable("the group is set anew just now; try again"))

    # What was unloaded

    def unloaded(self, led: LedSharePartition) -> None:
        if led.writes:
            self._ending[led.key] = led

    def write_ended(self, led: LedSharePartition) -> None:
        if not led.writes and self._ending.get(led.key) is led:
            del self._ending[led.key]

    def may_write(self, led: LedSharePartition) -> bool:
        """Whether a write of it would stand although it is loaded again now."""
        return led.machine.leader_epoch >= self._epochs.current

    async def _have_earlier_writes_over(self, keys: Sequence[SharePartitionKey]) -> None:
        """Wait until writes of an earlier load of these have ended, or are fenced by the epoch to load with.

        Raises: CoordinatorNotAvailable: it takes too long.
        """
        while True:
            await self._epochs.fenced()
            ending = [led for key in keys if (led := self._ending.get(key)) is not None and self.may_write(led)]
            if not ending:
                return
            await asyncio.wait([led.quiet() for led in ending])

    def give_up(self, led: LedSharePartition) -> None:
        """A write's outcome is not known: load it again with an epoch that fences the write, and keep its locks."""
        self.keep_locks(led)
        self._epochs.fence()

    def keep_locks(self, led: LedSharePartition) -> None:
        """It is unloaded: the load that follows, here or elsewhere, takes its locks over."""
        led.take_back_unanswered(self._clock.now_ms())
        if led.machine.held_count:
            ends_at_ms = max((lock.deadline_ms for lock in led.machine.locks()), default=0)
            self._given_up[led.key] = GivenUp(led, ends_at_ms, asyncio.Event())

    def keeps_locks_of(self, led: LedSharePartition) -> bool:
        """Whether it is unloaded, and its locks are taken over by whoever loads it next."""
        given_up = self._given_up.get(led.key)
        return given_up is not None and given_up.led is led

    def tell_locks(self, keys: Sequence[SharePartitionKey]) -> list[LedSharePartition]:
        """Those of these whose locks the gateway is to take over that asks for them."""
        asked_for = [given_up for key in keys if (given_up := self._given_up.get(key)) is not None]
        for given_up in asked_for:
            given_up.told.set()
        return [given_up.led for given_up in asked_for]

    def kept_for_others(self) -> list[LedSharePartition]:
        """Those with locks that the gateway which leads them now has not asked for."""
        return [
            given_up.led
            for key, given_up in self._given_up.items()
            if not given_up.told.is_set() and not self._cluster.leads(key)
        ]

    async def until_told(self, have_loaded: Callable[[Sequence[LedSharePartition]], Awaitable[None]]) -> None:
        """Have the gateways that lead now ask for the locks that were kept for them, for a moment at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELL_S):
                while left := self.kept_for_others():
                    await have_loaded(left)
                    await asyncio.sleep(TELL_PAUSE_S)

    def given_up_and_due(self) -> list[SharePartitionKey]:
        """Share-partitions given up that have a lock which has ended by now; of those that others lead, all locks."""
        now_ms = self._clock.now_ms()
        return [
            key
            for key, (led, ends_at_ms, _) in self._given_up.items()
            if ((led.machine.next_deadline_ms() or 0) if self._cluster.leads(key) else ends_at_ms) <= now_ms
        ]

    def forget_given_up(self, concerned: Callable[[SharePartitionKey], bool]) -> None:
        """These are not loaded again as they were: others lead them, their state was set anew, or they are gone."""
        for key in filter(concerned, list(self._given_up)):
            del self._given_up[key]

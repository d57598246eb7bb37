"""Moves leadership between gateways: this one unloads share-partitions that others lead, and passes on their locks.

     former leader                          next leader
    generation changed, or asked to yield ◀── loads: asks the former leader to yield
    unload, keep the locks
    wait for the writes under way (WRITES_END_S)
    answer with the locks ──────────────────▶ reads the state and Redis with a higher leader epoch

A former leader that does not answer is fenced by that epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.load_registry import Loads
from sharequeue_gateway.locks.lock_store import LockStore

WRITES_END_S: Final = 1.5
"""The longest wait for writes under way before share-partitions are handed over."""


@dataclass(eq=False)
class HandOver:
    """Moves leadership away from this gateway. `sessions_moved`: drops the share sessions kept elsewhere now."""

    _loads: Loads
    _cluster: Cluster
    _epochs: LeaderEpochs
    _lock_timers: LockStore
    _sessions_moved: Callable[[], None]

    async def generation_changed(self, *, missed: bool) -> None:
        """Unload the share-partitions that moved to other gateways.

        Args:
            missed: this gateway skipped a generation, in which a third one may have led its share-partitions.
        """

        def moved(key: SharePartitionKey) -> bool:
            return missed or not self._cluster.leads(key)

        self._sessions_moved()
        self._epochs.raise_to(self._cluster.generation.number)
        self._loads.discard(moved)
        await self._hand_over([led for led in self._loads.led if moved(led.key)])

    async def yield_to_next(self, keys: Sequence[SharePartitionKey]) -> list[LedSharePartition]:
        """The next leader asks for share-partitions: unload them. Returns: those whose locks it must restore."""
        self._loads.discard(set(keys).__contains__)
        await self._hand_over([led for key in keys if (led := self._loads.led.get(key)) is not None])
        return self._loads.kept_locks.give(keys)

    async def _hand_over(self, leds: Sequence[LedSharePartition]) -> None:
        """Unload share-partitions, and wait until their writes have ended.

        Their locks are kept for the next leader until they end, because Redis may have missed some.
        """
        for led in leds:
            self._loads.kept_locks.keep(led)
            self._loads.unload(led)
        quiet = [led.quiet() for led in leds if led.writes]
        if quiet:
            await asyncio.wait(quiet, timeout=WRITES_END_S)

    async def finish(self, have_loaded: Callable[[Sequence[LedSharePartition]], Awaitable[None]]) -> None:
        """Stop: the next leaders read the locks from Redis; while it is away, they ask this gateway."""
        if self._lock_timers.degraded:
            await self._loads.kept_locks.until_given(have_loaded)

"""Keeps the locks of share-partitions that were unloaded while members held records, for the next load at any gateway.

unloaded with locks ──▶ kept ──┬─ loaded here ──▶ restored, dropped
                               ├─ another gateway asks for them ──▶ given; kept until the last one ends
                               └─ the group is reset, the topic deleted ──▶ dropped
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from sharequeue.clock import Clock
from sharequeue.protocol.types import LeftLocks, SharePartitionKey
from sharequeue.repeats import LOCKS_GIVEN
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.leader.led_share_partition import LedSharePartition


class Kept(NamedTuple):
    """An unloaded share-partition. `ends_at_ms`: when its last lock ends. `given`: another gateway has its locks."""

    led: LedSharePartition
    ends_at_ms: int
    given: asyncio.Event


class KeptLocks:
    """The kept locks, by share-partition. Keeping one again replaces its locks."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._kept: dict[SharePartitionKey, Kept] = {}

    def keep(self, led: LedSharePartition) -> None:
        """Keep the locks of a share-partition that is being unloaded, except those that no answer has named yet."""
        led.release_unanswered(self._clock.now_ms())
        if led.machine.held_count or led.machine.delayed_count:
            ends_at_ms = max((lock.deadline_ms for lock in led.machine.locks() if lock.member_id), default=0)
            self._kept[led.key] = Kept(led, ends_at_ms, asyncio.Event())

    def holds(self, led: LedSharePartition) -> bool:
        """Return whether the next load restores the locks of this share-partition."""
        kept = self._kept.get(led.key)
        return kept is not None and kept.led is led

    def left(self, keys: Iterable[SharePartitionKey]) -> dict[SharePartitionKey, LeftLocks]:
        """The locks to restore with a load of these."""
        return {key: kept.led.machine.left_locks() for key in keys if (kept := self._kept.get(key)) is not None}

    def give(self, keys: Sequence[SharePartitionKey]) -> list[LedSharePartition]:
        """Another gateway asks for the locks of these. Returns: the share-partitions with kept locks."""
        given = [kept for key in keys if (kept := self._kept.get(key)) is not None]
        for kept in given:
            kept.given.set()
        return [kept.led for kept in given]

    def for_others(self) -> list[LedSharePartition]:
        """The share-partitions whose new leader, another gateway, has not asked for their locks."""
        return [
            kept.led for key, kept in self._kept.items() if not kept.given.is_set() and not self._cluster.leads(key)
        ]

    async def until_given(self, have_loaded: Callable[[Sequence[LedSharePartition]], Awaitable[None]]) -> None:
        """Have the new leaders ask for the locks that are kept for them; stop waiting as LOCKS_GIVEN says."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOCKS_GIVEN.patience_s):
                while left := self.for_others():
                    await have_loaded(left)
                    await LOCKS_GIVEN.pause()

    def drop_ended(self) -> None:
        """Forget share-partitions that another gateway leads and whose last lock has ended."""
        now_ms = self._clock.now_ms()
        self._kept = {
            key: kept for key, kept in self._kept.items() if kept.ends_at_ms > now_ms or self._cluster.leads(key)
        }

    def discard(self, key: SharePartitionKey) -> None:
        """Drop the locks of a share-partition: they are restored, or have no use any more."""
        self._kept.pop(key, None)

    def drop(self, concerned: Callable[[SharePartitionKey], bool]) -> None:
        """Forget these: their state was reset, or their topic is deleted."""
        for key in filter(concerned, list(self._kept)):
            del self._kept[key]

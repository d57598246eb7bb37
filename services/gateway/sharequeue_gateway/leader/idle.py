"""Unloads idle share-partitions, and removes what Redis need not keep of those that have come to rest.

    used, held or waited for ──▶ loaded
    at rest for `idle_ms`, whatever delays it has ──▶ unloaded
    a fetch, at any time ──▶ loaded

A record is delivered to a fetch alone, and a fetch loads, so no delay ends late.
"""

from typing import Final

from sharequeue.clock import Clock
from sharequeue.repeats import Every
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex

SHORTEST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
LOOKS: Final = 10
"""Looks within one idle time."""


async def unload_idle(leader: Leader, led_index: LedIndex, clock: Clock, idle_ms: int) -> None:
    """Unload share-partitions that were not used for `idle_ms`. Runs until it is cancelled."""
    pause_s = min(max(idle_ms / 1000 / LOOKS, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
    async for _ in Every(pause_s):
        now_ms = clock.now_ms()
        slices = Slices()
        for led in list(led_index):
            if slices.over():
                await slices.pause()
            if led.rests and led.used_at_ms < now_ms - idle_ms and leader.locks.may_leave(led):
                leader.unload(led)
            elif led.used_at_ms < now_ms - 1000 * pause_s:
                leader.locks.tidy(led)
        metrics.forget_groups(led_index.of_group)

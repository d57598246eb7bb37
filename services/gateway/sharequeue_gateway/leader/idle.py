"""Unloads idle share-partitions."""

import asyncio
from typing import Final

from sharequeue.clock import Clock
from sharequeue_gateway import metrics
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex

SHORTEST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
LOOKS: Final = 10
"""Looks within one idle time."""
LOOKED_AT_ONCE: Final = 2000


async def unload_idle(leader: Leader, led_index: LedIndex, clock: Clock, idle_ms: int) -> None:
    """Unload share-partitions that were not used for `idle_ms`. Runs until it is cancelled."""
    pause_s = min(max(idle_ms / 1000 / LOOKS, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
    while True:
        await asyncio.sleep(pause_s)
        idle_before_ms = clock.now_ms() - idle_ms
        for index, led in enumerate(list(led_index)):
            used_at_ms = led.idle_since()
            if used_at_ms is not None and used_at_ms < idle_before_ms:
                leader.unload(led)
            if index % LOOKED_AT_ONCE == LOOKED_AT_ONCE - 1:
                await asyncio.sleep(0)
        metrics.forget_groups(led_index.of_group)

"""The rounds of a gateway over all share-partitions that it leads: locks and delays end, idle ones are unloaded, and
their runs are bounded.

    every 0.1 s     `sweep`         ends locks and delays that are due
    every 1 s       `bound_runs`    above `max_delayed_runs` the share-partitions with more than their equal part are
                                    *crowded*: their new records wait until fewer records are in flight
    ten times in    `unload_idle`   unloads what is at rest for `idle_ms`, whatever delays it has: a record is delivered
    `idle_ms`                       to a fetch alone, and a fetch loads, so no delay ends late
"""

from collections.abc import Iterator
from itertools import count
from typing import Final

from sharequeue.clock import Clock
from sharequeue.repeats import Every
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.leader.kept_locks import KeptLocks
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.locks.lock_calls import LockWrite
from sharequeue_gateway.share_partition.bounds import equal_part

SWEEP_PAUSE_S: Final = 0.1
SWEEPS_PER_LOOK: Final = 10
"""How many sweeps go to one look at the kept locks."""
LOOK_S: Final = 1.0
SHORTEST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 5.0
LOOKS: Final = 10
"""Looks within one idle time."""


async def sweep(leader: Leader, kept_locks: KeptLocks) -> None:
    """End due locks; one that is not loaded waits for the fetch that loads it. Never returns."""
    sweeps = count(1)
    async for _ in Every(SWEEP_PAUSE_S):
        await leader.expire_all_due()
        if next(sweeps) % SWEEPS_PER_LOOK == 0:
            kept_locks.drop_ended()


def all_locks(leader: Leader, kept_locks: KeptLocks) -> Iterator[LockWrite]:
    """All locks that this gateway knows, to write back when Redis lost them. Each write has the locks of its turn.

    What was unloaded since the first turn may be loaded again, with other locks and the same leader epoch.
    """
    for led in (*leader.led, *kept_locks.for_others()):
        if (led.machine.runs or led.lock_entries) and (not led.fenced or kept_locks.holds(led)):
            yield led.all_locks()


async def bound_runs(led_index: LedIndex, most: int) -> None:
    """Mark crowded share-partitions, and wake the fetches of those that no longer are. Never returns."""
    async for _ in Every(LOOK_S):
        slices = Slices()
        leds = [led for led in led_index if led.machine.runs or led.machine.crowded]
        part = equal_part([len(led.machine.runs) for led in leds], most)
        for led in leds:
            if slices.over():
                await slices.pause()
            was = led.machine.crowded
            led.machine.crowded = part is not None and len(led.machine.runs) > part
            if was and not led.machine.crowded:
                led.wake_turned_away()


async def unload_idle(leader: Leader, led_index: LedIndex, clock: Clock, idle_ms: int) -> None:
    """Unload what was not used for `idle_ms`, and remove what Redis need not keep. Never returns."""
    pause_s = min(max(idle_ms / 1000 / LOOKS, SHORTEST_PAUSE_S), LONGEST_PAUSE_S)
    async for _ in Every(pause_s):
        now_ms = clock.now_ms()
        slices = Slices()
        for led in list(led_index):
            if slices.over():
                await slices.pause()
            if led.rests and led.last_used_ms() < now_ms - idle_ms and leader.locks.may_leave(led):
                leader.unload(led)
            elif led.last_used_ms() < now_ms - 1000 * pause_s:
                leader.locks.tidy(led)
        metrics.forget_groups(led_index.of_group)

"""Bounds the runs of all share-partitions that this gateway leads: the memory of records that wait or are held.

Every second it counts them. Above `max_delayed_runs` the share-partitions with more than their equal part are
*crowded*: their new records wait until fewer records are in flight;
what is in flight is delivered, settled and released as ever.
"""

from typing import Final

from sharequeue.repeats import Every
from sharequeue.slices import Slices
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.share_partition.bounds import equal_part

LOOK_S: Final = 1.0


async def bound_runs(led_index: LedIndex, most: int) -> None:
    """Look at the runs of all share-partitions again and again. Runs until it is cancelled."""
    async for _ in Every(LOOK_S):
        await look(led_index, most)


async def look(led_index: LedIndex, most: int) -> None:
    """Mark the share-partitions that are crowded now, and wake the fetches of those that no longer are."""
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

"""Raises floors: notes in the log's readers how far the groups have durably finished what this gateway leads.

Every few seconds, for all share-partitions at once:

    memory's start or count is above the stored one ──▶ write both to the share coordinator, alone
    the stored start is above the floor ──────────────▶ raise the floor to it
    another record is ready or delayed first ─────────▶ note it for the age of the backlog
    in use, and not raised for an hour ───────────────▶ raise to the same floor: the row is active

The first line is for offsets without a record (compacted, markers and aborted records, redriven for another group,
below the log start). They are archived in memory only. So a group that has caught up would hold the log and show a lag
until its next write, and one that still holds a record would count those behind it as lag. It is also for the last
acknowledgement before a pause: its write has the start offset from before it, as in Kafka, and without a further write
the group would hold the log there. So each share-partition has one such write in a round at most.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import count_failed_look
from sharequeue.slices import Slices
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.removing.readers import STALE_MS, Beginning, Readers
from sharequeue_gateway.record_log.removing.readers_store import Floor
from sharequeue_gateway.share_partition.runs import StateWrite
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

CLOSE_S: Final = 2.0
SENT_AT_ONCE: Final = 1000


class Floors:
    """Raises the floors of one gateway. `interval_ms`: the pause between two raises."""

    def __init__(self, leader: Leader, led: LedIndex, readers: Readers, clock: Clock, *, interval_ms: int) -> None:
        self._leader = leader
        self._led = led
        self._readers = readers
        self._clock = clock
        self._interval_s = interval_ms / 1000
        self._raising = asyncio.Lock()

    async def run(self) -> None:
        """Raise floors. Runs until it is cancelled."""
        async for _ in Every(self._interval_s):
            await self.raise_all()

    async def close(self) -> None:
        """Raise what is durable, once more."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._raise()
        except TimeoutError:
            log.info("floors were not raised before the end: the next leaders raise them")

    async def raise_all(self) -> None:
        """Write starts and counts that only memory knows, then raise every floor."""
        await self._write_starts()
        await self._raise()

    # Starts and counts that only memory knows

    async def _write_starts(self) -> None:
        """One write first, alone: while the share coordinator does not answer, the others are left in peace."""
        behind = []
        slices = Slices()
        for led in list(self._led):
            if slices.over():
                await slices.pause()
            if not led.writes and led.has_unstored_voids():
                behind.append(led)
        if behind and await self._write(behind[:1]):
            for first in range(1, len(behind), SENT_AT_ONCE):
                await self._write(behind[first : first + SENT_AT_ONCE])

    async def _write(self, leds: Sequence[LedSharePartition]) -> bool:
        """Returns: whether the starts of all that are still led are durable now."""
        outcomes = []
        now_ms = self._clock.now_ms()
        for led in leds:
            machine = led.machine
            if not led.fenced and not led.writes and led.has_unstored_voids():
                write = StateWrite(machine.start_offset, now_ms)
                write.fill((), machine.delivery_complete_count)
                outcomes.append(self._leader.persist(led, write))
        return not any(await asyncio.gather(*outcomes))

    # Floors

    async def _raise(self) -> None:
        async with self._raising:  # `close` may come while `run` raises
            left, self._led.left = self._led.left, {}
            moved = await self._moved()
            try:
                again = {floor.key for floor in moved.values()}  # unloaded, and loaded again
                gone = [floor for key, floor in left.items() if key not in again]
                found = await self._readers.raise_floors([*gone, *moved.values()])
                missing = self._note(moved, found)
                if missing:
                    await self._enter_again(missing)
            except ApiError as error:
                self._led.left = {**left, **self._led.left}
                count_failed_look("floors")
                log.warning("cannot raise floors now", extra=fields(rows=len(moved), cause=error.detail))

    async def _moved(self) -> dict[LedSharePartition, Floor]:
        """The floors to raise, and those of rows that are to stay active."""
        now_ms = self._clock.now_ms()
        moved = {}
        slices = Slices()
        for led in list(self._led):
            if slices.over():
                await slices.pause()
            hold_ms = led.machine.config.hold_ms
            stale_ms = min(STALE_MS, hold_ms // 4) if hold_ms > 0 else STALE_MS
            used = led.last_used_ms() > led.told_at_ms or bool(led.awaiting())
            ahead = [*led.machine.ahead()]
            moves = led.stored_start > led.floor or ahead != led.told_ahead
            if moves or (used and now_ms - led.told_at_ms > stale_ms):
                moved[led] = Floor(led.key, led.machine.state_epoch, led.stored_start, *ahead)
        return moved

    def _note(self, moved: Mapping[LedSharePartition, Floor], found: set[SharePartitionKey]) -> list[LedSharePartition]:
        """Note which floors are raised. Returns: the share-partitions whose row is gone, or was not free."""
        now_ms = self._clock.now_ms()
        missing = []
        for led, floor in moved.items():
            if led.key in found:
                led.floor, led.told_ahead, led.told_at_ms = floor.floor, [floor.ready, floor.delayed], now_ms
            elif not led.fenced:
                missing.append(led)
        return missing

    async def _enter_again(self, leds: Sequence[LedSharePartition]) -> None:
        """A row that is gone, although its share-partition is led: add it."""
        by_group: dict[str, list[LedSharePartition]] = {}
        for led in leds:
            by_group.setdefault(led.key.group_id, []).append(led)
        for group_id, of_group in by_group.items():
            rows = await self._readers.find(group_id, [(led.key.topic_id, led.key.partition) for led in of_group])
            gone = [led for led in of_group if (led.key.topic_id, led.key.partition) not in rows and not led.fenced]
            if gone:
                await self._readers.begin(
                    [Beginning(led.key, led.machine.state_epoch, led.stored_start, chosen=False) for led in gone],
                    gone[0].machine.config.hold_ms,
                )

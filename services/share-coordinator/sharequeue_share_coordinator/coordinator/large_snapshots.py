"""Writes large snapshots beside the commits, so that no request waits for them.

    commit loop   ── U 41 ── U 42 ───── U 43 ──────────────── U 44 ── S 45 (covers 42) ── U 46 ──
                              │ due                                    ▲ publish
    here                      └─ encode in a thread ─ part 0 ─ part 1 ─┘

The snapshot holds the state as it was when it was begun; lists of batches never change, so nothing is copied or locked.
Most snapshots store no parts: their row names those of an earlier one and says what has changed since. `base_serves`
(`share_state/rows.py`) says until when.
Its parts count once the row that names them is durable. If the process dies before that, the older snapshot and all
updates are still there. The row is committed as any other, under the owner epoch, and not if the state was replaced.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from sharequeue.clock import Clock
from sharequeue.log import fields
from sharequeue.protocol.shards import share_key
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service.postgres_faults import FAULTS
from sharequeue_share_coordinator import metrics, store
from sharequeue_share_coordinator.coordinator.coordinator import ShareCoordinator
from sharequeue_share_coordinator.coordinator.operations import Operation
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.row_format import encode_parts
from sharequeue_share_coordinator.share_state.rows import KeyState, Row
from sharequeue_share_coordinator.share_state.shard import Decision

log = logging.getLogger(__name__)


class LargeSnapshots:
    """Writes one large snapshot at a time, over a connection of its own."""

    def __init__(self, coordinator: ShareCoordinator, connect: Callable[[], Awaitable[Any]], clock: Clock) -> None:
        self._coordinator = coordinator
        self._connect = connect
        self._clock = clock
        self._connection: Any = None

    async def run(self) -> None:
        """Write the snapshots that become due. Never returns."""
        while True:
            key = await self._coordinator.next_large()
            try:
                await self.write(key)
            except FAULTS as fault:
                self.close()
                log.warning("a large snapshot was not written", extra=fields(key=share_key(key), cause=repr(fault)))

    async def write(self, key: SharePartitionKey) -> bool:
        """Write a snapshot of a share-partition in memory. Returns: whether it counts."""
        entry = self._coordinator.states.entries.get(key)
        if entry is None or entry.state is None or entry.key_id is None or not entry.state.large:
            return False
        begun, covers = entry.state, entry.last_seq
        number = self._coordinator.time_line.number
        row = await asyncio.to_thread(shard.changed_snapshot, begun, covers)
        if row is None:
            row = await self._stored_whole(entry.key_id, begun, covers)
        decide = partial(self._publish, begun, row, number)
        await self._coordinator.submit([Operation(key, decide, False)])
        now = self._coordinator.states.entries.get(key)
        counts = now is not None and now.state is not None and now.state.snapshot_epoch == row.snapshot_epoch
        if counts:
            metrics.LARGE_SNAPSHOT_BYTES.inc(len(row.changes) or row.size)
        return counts

    def _publish(self, begun: KeyState, row: Row, number: int, state: KeyState | None) -> Decision:
        if number != self._coordinator.time_line.number:
            return Decision(shard.done(0))  # PostgreSQL was started again: the state may have come back older
        return shard.publish(state, begun, row, self._clock.now_ms())

    async def _stored_whole(self, key_id: int, begun: KeyState, covers: int) -> Row:
        parts, reasons, transactions = await asyncio.to_thread(encode_parts, begun.batches)
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        snapshot_id = await store.add_parts(self._connection, key_id, parts)
        return shard.large_snapshot(begun, covers, snapshot_id, parts, reasons, transactions)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

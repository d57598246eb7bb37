"""Prunes rows that a newer snapshot holds, writes snapshots of states that went cold, deletes the state of topics."""

import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from sharequeue.clock import Clock
from sharequeue.ownership.leases import Ownership
from sharequeue.protocol.errors import KAFKA_CODES, CoordinatorLoadInProgress, NotCoordinator
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.repeats import Every
from sharequeue.service.failed_looks import count_failed_look
from sharequeue.service.postgres_faults import FAULTS
from sharequeue_http.log import fields
from sharequeue_share_coordinator import metrics, store
from sharequeue_share_coordinator.coordinator.coordinator import ShareCoordinator
from sharequeue_share_coordinator.coordinator.operations import Operation
from sharequeue_share_coordinator.settings import Settings
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import KeyState
from sharequeue_share_coordinator.share_state.shard import Decision

log = logging.getLogger(__name__)

PRUNING_SHARD: Final = 0
"""The owner of this shard prunes the rows of all shards."""
ROUNDS_PER_SWEEP: Final = 20
"""Every twentieth round, and the first, is a sweep: it reads whole tables."""
KEYS_PER_READ: Final = 2000
KEYS_PER_REMOVAL: Final = 20_000
NOT_SERVED: Final = {KAFKA_CODES[error.error] for error in (CoordinatorLoadInProgress, NotCoordinator)}


@dataclass(eq=False)
class Housekeeping:
    """Reads and prunes over a connection of its own, so that commits do not wait for it.
    It submits changes as operations."""

    _coordinator: ShareCoordinator
    _connect: Callable[[], Awaitable[Any]]
    _ownership: Ownership
    _clock: Clock
    _settings: Settings
    _connection: Any = field(init=False, default=None)

    async def delete_topic(self, topic_id: str) -> list[int]:
        """Write tombstones for all share-partitions of a topic in the shards owned here. May be repeated.

        Returns: the shards that were owned from begin to end. Raises: OSError: tombstones could not be written.
        """
        before = dict(self._ownership.owned)
        await self._coordinator.commit([])  # the next statement then sees the keys that are being made now
        connection = await self._connected()
        delete = partial(shard.delete, request=PartitionState(partition=0), topic=None)
        above = 0
        while found := await store.keys_of_topic(connection, topic_id, above, KEYS_PER_READ):
            above = found[-1][0]
            own = [key for _, key in found if self._coordinator.states.shard_of(key) in before]
            for result in await self._coordinator.commit([Operation(key, delete, False) for key in own]):
                if result.error_code and result.error_code not in NOT_SERVED:
                    raise ConnectionError(result.error_message)
        return [of_shard for of_shard, epoch in before.items() if self._ownership.owned.get(of_shard) == epoch]

    async def run(self) -> None:
        """Prune, for as long as the service runs. Most rounds read only keys that wrote a snapshot or a tombstone."""
        turns = itertools.count()
        async for _ in Every(self._settings.prune_interval_ms / 1000):
            try:
                connection = await self._connected()
                if next(turns) % ROUNDS_PER_SWEEP == 0:
                    await self.sweep(connection)
                else:
                    await self.prune(connection)
            except FAULTS as fault:
                self._connection = None
                count_failed_look("housekeeping")
                log.warning("housekeeping failed", extra=fields(cause=repr(fault)))

    async def prune(self, connection: Any) -> None:
        """Remove the superseded rows of the keys that wrote a snapshot or a tombstone since the last round."""
        superseded, deleted = self._coordinator.take_superseded()
        if superseded:
            metrics.PRUNED_ROWS.inc(await store.prune_keys(connection, list(superseded)))
        await self._coordinator.remove(deleted)

    async def sweep(self, connection: Any) -> None:
        """Read whole tables, to find cold states, and the rows and keys that earlier owners and failed rounds left
        behind."""
        cold = await store.cold_keys(connection, self._settings.cold_partition_snapshot_interval_ms, KEYS_PER_READ)
        for key in cold:  # one by one: large ones together would be one commit that all others wait for
            if self._coordinator.states.shard_of(key) in self._ownership.owned:
                await self._coordinator.commit([Operation(key, self._cold_snapshot, False)])
        if PRUNING_SHARD in self._ownership.owned:
            removed, last = await store.prune(connection)
            metrics.PRUNED_ROWS.inc(removed)
            metrics.LAST_PRUNED.set(last)
        await self._coordinator.remove(await store.keys_without_state(connection, KEYS_PER_REMOVAL))

    def _cold_snapshot(self, state: KeyState | None) -> Decision:
        interval_ms, now_ms = self._settings.cold_partition_snapshot_interval_ms, self._clock.now_ms()
        row = None if state is None else shard.cold_snapshot(state, interval_ms, now_ms)
        return Decision(shard.done(0), row)

    async def _connected(self) -> Any:
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._connect()
        return self._connection

"""The states in memory: of the share-partitions that were used last, in shards that this instance owns."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sharequeue.ownership.leases import Ownership
from sharequeue.protocol.shards import shard_of, share_key
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.coordinator.operations import Operation
from sharequeue_share_coordinator.share_state.rows import KeyState, damaged_state

log = logging.getLogger(__name__)


MOST_REPLAYED_HERE: Final = 64 * 1024
"""Bytes of rows. More are replayed in a thread, so that the event loop does not stop."""


@dataclass(slots=True)
class CachedPartition:
    """A share-partition in memory. `key_id`: None if the database has no such key. `state`: None if it has no state."""

    shard: int
    key_id: int | None
    state: KeyState | None


class StateCache:
    """The entries by key, the one used last at the end."""

    def __init__(self, ownership: Ownership, *, updates_per_snapshot: int, sized: bool) -> None:
        self._sized = sized
        self._ownership = ownership
        self._updates_per_snapshot = updates_per_snapshot
        self.entries: OrderedDict[SharePartitionKey, CachedPartition] = OrderedDict()

    def shard_of(self, key: SharePartitionKey) -> int:
        entry = self.entries.get(key)
        return shard_of(share_key(key), self._ownership.count) if entry is None else entry.shard

    def served(self, operations: Iterable[Operation]) -> dict[int, int | ApiError]:
        """For each shard of the operations: the epoch to serve it under, or why it is not served."""
        served: dict[int, int | ApiError] = {}
        for operation in operations:
            shard = self.shard_of(operation.key)
            if shard not in served:
                try:
                    served[shard] = self._ownership.epoch(shard)
                except ApiError as error:
                    served[shard] = error
        return served

    async def load(self, connection: Any, operations: Iterable[Operation]) -> dict[SharePartitionKey, CachedPartition]:
        """Load the states of the operations that are not in memory; make the keys that do not exist and may be made.

        Returns: the share-partitions whose rows cannot be read.
        The cache does not keep them, because their rows may be repaired.
        """
        operations = list(operations)
        unknown: dict[SharePartitionKey, bool] = {}
        for key, _, creates in operations:
            entry = self.entries.get(key)
            make = creates and (entry is None or entry.key_id is None)
            if entry is None or make:
                unknown[key] = make or unknown.get(key, False)
        if not unknown:
            return {}
        served = self.served(operations)
        to_load = sorted(key for key in unknown if isinstance(served[self.shard_of(key)], int))
        to_make = [key for key in to_load if unknown[key]]
        if to_make:
            await store.make_keys(connection, to_make)
        loaded = await store.load(connection, to_load) if to_load else {}
        unreadable = {}
        for key in to_load:
            if (damaged := await self._keep(key, loaded.get(key), served)) is not None:
                unreadable[key] = damaged
        return unreadable

    async def _state(self, found: store.LoadedKey | None) -> KeyState | None:
        if found is None:
            return None
        replay = partial(store.state_of, found, self._updates_per_snapshot, sized=self._sized)
        return await asyncio.to_thread(replay) if found.size > MOST_REPLAYED_HERE else replay()

    async def _keep(
        self, key: SharePartitionKey, found: store.LoadedKey | None, served: Mapping[int, int | ApiError]
    ) -> CachedPartition | None:
        """Put a loaded state into memory. Returns: the entry that is not kept, because its rows cannot be read."""
        shard = self.shard_of(key)
        try:
            state = await self._state(found)
        except store.UnreadableRow as fault:
            state = damaged_state(share_key(key), str(fault))
            log.error("a share-partition cannot be served", extra=fields(cause=state.damage))
            self.entries.pop(key, None)
        if self._ownership.owned.get(shard) != served[shard]:
            return None  # the shard was lost during the load: another owner may have written since
        entry = CachedPartition(shard, found.key_id if found else None, state)
        if state is not None and state.damage:
            return entry
        self.entries[key] = entry
        return None

    def forget(self, shards: frozenset[int]) -> None:
        """Discard the states of shards that another instance owns now, or owned in between."""
        for key in [key for key, entry in self.entries.items() if entry.shard in shards]:
            del self.entries[key]

    def discard(self, keys: Iterable[SharePartitionKey]) -> None:
        """Load these states again before they are served."""
        for key in keys:
            self.entries.pop(key, None)

    def evict(self, most: int) -> None:
        """Discard the states that were used longest ago, down to `most`."""
        while len(self.entries) > most:
            self.entries.popitem(last=False)

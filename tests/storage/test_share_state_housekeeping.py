"""The share coordinator's housekeeping: the rows it reads, and the removal of deleted share-partitions."""

import asyncio
from typing import Any

import pytest
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.coordinator import housekeeping
from sharequeue_share_coordinator.share_state.rows import SNAPSHOT, UPDATE

from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session
from tests.storage.share_coordinators import held, kinds, new_key, running


async def key_ids(connection: Any, key: SharePartitionKey) -> list[int]:
    rows = await connection.fetch(
        "SELECT key_id FROM share_state.share_partitions WHERE group_id = $1 AND topic_id = $2 AND partition = $3", *key
    )
    return [row[0] for row in rows]


async def rows_are(connection: Any, key: SharePartitionKey, wanted: list[int]) -> None:
    """Wait until the key's rows are of these kinds."""
    while True:
        if await kinds(connection, key) == wanted:
            return
        await asyncio.sleep(0.01)


async def gone(connection: Any, key: SharePartitionKey) -> None:
    """Wait until nothing is known of the key."""
    while True:
        if not await key_ids(connection, key):
            return
        await asyncio.sleep(0.01)


async def test_pruning_some_keys_leaves_the_others(module_database: str) -> None:
    keys = [new_key() for _ in range(3)]
    async with session(module_database) as admin, running(module_database, limit=2) as coordinator:
        for key in keys:
            await coordinator.init(key)
            for count in range(1, 5):
                await coordinator.write(key, 0, count, (2 * count, 2 * count, 2, 1))
        await coordinator.delete(keys[1])
        removed = await store.prune_keys(admin, [*await key_ids(admin, keys[0]), *await key_ids(admin, keys[1]), -5])
        assert removed == 3 + 6
        all_rows = [SNAPSHOT, UPDATE, UPDATE, SNAPSHOT, UPDATE]
        assert [await kinds(admin, key) for key in keys] == [[SNAPSHOT, UPDATE], [], all_rows]


@pytest.fixture
def one_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first round of housekeeping reads whole tables."""
    monkeypatch.setattr(housekeeping, "ROUNDS_PER_SWEEP", 10**9)


async def test_a_round_prunes_keys_with_snapshots_since_the_last_round(database_url: str, one_sweep: None) -> None:
    async with session(database_url) as admin, running(database_url, limit=2, prune_ms=5) as coordinator:
        first, later = new_key(), new_key()
        for key in (first, later):
            await coordinator.init(key)
            for count in range(1, 4):
                await coordinator.write(key, 0, count, (2 * count, 2 * count, 2, 1))
            await rows_are(admin, key, [SNAPSHOT])
        superseded, deleted = coordinator.coordinator.take_superseded()
        assert len(superseded) <= 1, "the last snapshot may have come after the round"
        assert not deleted


async def test_a_deleted_share_partition_leaves_no_rows(database_url: str, one_sweep: None) -> None:
    """A late write of its leader is refused as before; initialised again it starts afresh."""
    key = new_key()
    async with session(database_url) as admin, running(database_url, prune_ms=5) as coordinator:
        for start in (5, 8):
            assert await coordinator.init(key, 3, start) == 0
            (key_id,) = await key_ids(admin, key)
            assert await coordinator.write(key, start, 1, (start, start, 2, 1), leader=7) == 0
            assert await coordinator.delete(key) == 0
            await gone(admin, key)
            assert await coordinator.write(key, start, 2, (9, 9, 2, 1), leader=7) == 42
            assert await key_ids(admin, key) == []
        assert await coordinator.init(key, 4, 20) == 0
        assert await key_ids(admin, key) != [key_id]
        assert await coordinator.write(key, 20, 1, (21, 21, 2, 1)) == 0
    async with running(database_url) as again:
        assert held(await again.read(key)) == (20, [(21, 21, 2, 1)])


async def test_a_share_partition_deleted_and_initialised_before_the_round_stays(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin, running(database_url) as coordinator:
        await coordinator.init(key)
        await coordinator.delete(key)
        await coordinator.init(key, 2, 6)
        await coordinator.housekeeping.prune(admin)
        assert await coordinator.write(key, 6, 1, (7, 7, 2, 1)) == 0
        assert len(await key_ids(admin, key)) == 1
    async with running(database_url) as again:
        assert held(await again.read(key)) == (6, [(7, 7, 2, 1)])


async def test_a_sweep_prunes_rows_left_by_earlier_owners(database_url: str) -> None:
    deleted, never = new_key(), new_key()
    async with session(database_url) as admin:
        async with running(database_url, limit=1) as coordinator:
            await coordinator.init(deleted)
            await coordinator.delete(deleted)
            await store.make_keys(admin, [never])
        async with running(database_url, prune_ms=5):
            await gone(admin, deleted)
            await gone(admin, never)

"""Snapshots of several rows on PostgreSQL: they count whole or not at all."""

import asyncio

import pytest
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.share_state import rows, shard
from sharequeue_share_coordinator.share_state.rows import PART, SNAPSHOT, UPDATE

from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import Reason, SharePartitionKey
from tests.core.states import StateAnnotation, written
from tests.storage.database import session
from tests.storage.share_coordinators import Running, kinds, new_key, running


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BATCHES_PER_ROW", 500)


async def release(running: Running, key: SharePartitionKey, count: int) -> None:
    """Release single records, every second offset, each with a delay of its own."""
    notes = [StateAnnotation(2 * n, 2 * n, 1, 10**12 + 200 * n, Reason(f"reason {n % 7}"), n % 3) for n in range(count)]
    request = PartitionState(partition=0, state_epoch=9, leader_epoch=9, state=written([], notes))
    (result,) = await running.submit(key, lambda state: shard.write(state, request, None, running.limit, 0))
    assert result.error_code == 0


async def accept(running: Running, key: SharePartitionKey, offset: int) -> int:
    return await running.write(key, 0, 1, (offset, offset, 2, 1), leader=9)


async def test_a_large_state_is_stored_in_several_rows_and_loaded_as_it_was(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin:
        async with running(database_url, limit=2) as coordinator:
            await coordinator.init(key, 9)
            await release(coordinator, key, 3000)
            assert await accept(coordinator, key, 7000) == 0
            assert await accept(coordinator, key, 7002) == 0
            assert await accept(coordinator, key, 7004) == 0
            before = await coordinator.state(key)
            assert before is not None
            assert before.snapshot_epoch == 1
        assert await kinds(admin, key) == [SNAPSHOT, UPDATE, UPDATE, SNAPSHOT, *[PART] * 6, UPDATE]
        async with running(database_url, limit=2) as again:
            assert await again.state(key) == before
        (key_id,) = await admin.fetchrow("SELECT key_id FROM share_state.share_partitions")
        assert await store.prune_keys(admin, [key_id]) == 3
        async with running(database_url, limit=2) as pruned:
            assert await pruned.state(key) == before


async def test_a_snapshot_that_is_refused_leaves_the_older_one(database_url: str) -> None:
    """PostgreSQL refuses the last of its rows."""
    key = new_key()
    async with session(database_url) as admin:
        async with running(database_url, limit=2) as coordinator:
            await coordinator.init(key, 9)
            await release(coordinator, key, 3000)
            assert await accept(coordinator, key, 7000) == 0
            await admin.execute(
                """CREATE FUNCTION share_state.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
                   BEGIN RAISE EXCEPTION 'no'; END $$;
                   CREATE TRIGGER refuse BEFORE INSERT ON share_state.share_records FOR EACH ROW
                   WHEN (NEW.kind = 3 AND length(NEW.record) < 1000) EXECUTE FUNCTION share_state.refuse()"""
            )
            before = await coordinator.state(key)
            assert await accept(coordinator, key, 7002) != 0
            assert await coordinator.state(key) == before
            await admin.execute("DROP TRIGGER refuse ON share_state.share_records")
        assert await kinds(admin, key) == [SNAPSHOT, UPDATE, UPDATE]
        async with running(database_url, limit=2) as again:
            assert await again.state(key) == before
            assert await accept(again, key, 7002) == 0
            after = await again.state(key)
            assert after is not None
            assert len(after.batches) == 3002


async def test_a_cold_large_state_gets_a_snapshot(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin:
        async with running(database_url, cold_ms=50, prune_ms=20) as coordinator:
            await coordinator.init(key, 9)
            await release(coordinator, key, 2000)
            before = await coordinator.state(key)
            while await kinds(admin, key) != [SNAPSHOT, *[PART] * 3]:  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.01)
        assert await store.cold_keys(admin, 0, 10) == [], "parts are no updates"
        async with running(database_url) as again:
            after = await again.state(key)
            assert before is not None
            assert after is not None
            assert after.batches == before.batches

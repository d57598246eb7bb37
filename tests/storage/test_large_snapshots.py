"""Snapshots in parts on PostgreSQL: they count when all is there, and wait for nobody."""

import asyncio
import signal
import sys
import time
from typing import Any

import pytest
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.coordinator.operations import Operation
from sharequeue_share_coordinator.http.export_api import states_of
from sharequeue_share_coordinator.share_state import row_format, shard
from sharequeue_share_coordinator.share_state.rows import LARGE_SNAPSHOT, SNAPSHOT, UPDATE, KeyState

from sharequeue.protocol.messages.audit import ExportStateQuery
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.types import Reason, SharePartitionKey, StateAnnotation, StateBatch
from tests.storage.database import session
from tests.storage.share_coordinators import Running, kinds, new_key, running

HELD_UP = 4711
"""The advisory lock that the second part of a snapshot waits for."""
HOLD_UP = f"""
CREATE OR REPLACE FUNCTION share_state.hold_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock({HELD_UP});
  RETURN NEW;
END $$;
CREATE TRIGGER hold_up BEFORE INSERT ON share_state.snapshot_parts FOR EACH ROW WHEN (NEW.part = 1)
EXECUTE FUNCTION share_state.hold_up();
"""


@pytest.fixture(autouse=True)
def short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_format, "BATCHES_PER_PART", 500)


async def release(running: Running, key: SharePartitionKey, count: int, first: int = 0) -> int:
    """Release single records, every second offset, each with a delay of its own."""
    offsets = range(2 * first, 2 * (first + count), 2)
    request = PartitionState(
        partition=0,
        state_epoch=9,
        leader_epoch=9,
        state_batches=[StateBatch(offset, offset, 0, 1) for offset in offsets],
        annotations=[StateAnnotation(o, o, 1, 10**12 + 100 * o, Reason(f"reason {o % 7}"), o % 3) for o in offsets],
    )
    (result,) = await running.submit(key, lambda state: shard.write(state, request, None, running.limit, 0))
    return int(result.error_code)


async def accept(running: Running, key: SharePartitionKey, offset: int) -> None:
    assert await running.write(key, 0, 1, (offset, offset, 2, 1), leader=9) == 0


async def until_kind(admin: Any, key: SharePartitionKey, kind: int) -> None:
    while True:
        if kind in await kinds(admin, key):
            return
        await asyncio.sleep(0.01)


async def parts_of(admin: Any) -> int:
    return int(await admin.fetchval("SELECT count(*) FROM share_state.snapshot_parts"))


async def until_parts(admin: Any, number: int) -> None:
    while True:
        if await parts_of(admin) >= number:
            return
        await asyncio.sleep(0.01)


async def test_a_large_state_is_stored_in_parts_and_loaded_as_it_was(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin:
        async with running(database_url, limit=2) as coordinator:
            await coordinator.init(key, 9)
            assert await release(coordinator, key, 3000) == 0
            await accept(coordinator, key, 7000)
            await until_kind(admin, key, LARGE_SNAPSHOT)
            await accept(coordinator, key, 7002)
            before = await coordinator.state(key)
            assert before is not None
            assert before.snapshot_epoch == 1
        assert await kinds(admin, key) == [SNAPSHOT, UPDATE, UPDATE, LARGE_SNAPSHOT, UPDATE]
        assert await parts_of(admin) == 7
        async with running(database_url, limit=2) as again:
            assert await again.state(key) == before
        (key_id,) = await admin.fetchrow("SELECT key_id FROM share_state.share_partitions")
        assert await store.prune_keys(admin, [key_id]) == 3
        async with running(database_url, limit=2) as pruned:
            after = await pruned.state(key)
            assert after is not None
            assert after.batches == before.batches
            assert (after.start_offset, after.recorded_leader_epoch) == (
                before.start_offset,
                before.recorded_leader_epoch,
            )


async def without_a_due_snapshot(running: Running, key: SharePartitionKey, limit: int) -> KeyState:
    """The state once no further snapshot is due or under way: on a busy machine one may be."""
    while True:
        state = await running.state(key)
        assert state is not None
        if state.updates < limit:
            return state
        await asyncio.sleep(0.01)


class ReadParts(dict[int, list[bytes]]):
    """Counts how often parts are read."""

    times = 0

    def get(self, *arguments: Any) -> Any:
        self.times += 1
        return super().get(*arguments)


async def test_a_later_snapshot_stores_what_has_changed_alone(database_url: str) -> None:
    """It names the parts of the first one, so these stay. Loaded, exported and pruned, the state is as it was."""
    key = new_key()
    async with session(database_url) as admin:
        async with running(database_url, limit=20) as coordinator:
            await coordinator.init(key, 9)
            assert await release(coordinator, key, 3000) == 0
            for n in range(100):
                await accept(coordinator, key, 7000 + 2 * n)
            while (state := await coordinator.state(key)) is not None and state.snapshot_bytes == 0:
                await accept(coordinator, key, 2)
            state = await without_a_due_snapshot(coordinator, key, 20)
            assert await parts_of(admin) == 7
            assert coordinator.coordinator.states.entries[key].state == state
            await accept(coordinator, key, 4)
            before = await without_a_due_snapshot(coordinator, key, 20)
            assert before.snapshot_epoch > 1
        snapshots = await admin.fetch(
            "SELECT octet_length(record), snapshot_id FROM share_state.share_records WHERE kind = 3"
        )
        assert [row[1] for row in snapshots] == [1] * (before.snapshot_epoch)
        assert all(row[0] < 1000 for row in snapshots)
        (key_id,) = await admin.fetchrow("SELECT key_id FROM share_state.share_partitions")
        for prune in (False, True):
            if prune:
                assert await store.prune_keys(admin, [key_id]) >= 20, "a snapshot covers the updates that made it due"
                await admin.execute("UPDATE share_state.snapshot_parts SET written_at = now() - interval '2 hours'")
                await store.remove_lost_parts(admin)
                assert await parts_of(admin) == 7
            async with running(database_url, limit=20) as again:
                after = await again.state(key)
                assert after is not None
                assert after.batches == before.batches
                assert (after.updates, after.snapshot_bytes) == (before.updates, before.snapshot_bytes)
        async with running(database_url) as last:
            await accept(last, key, 6)
            assert await last.large_snapshots.write(key)
            state = await last.state(key)
            assert state is not None
        rows, parts = await store.export(admin, ExportStateQuery())
        assert [len(found) for found in parts.values()] == [7]
        assert [row[5] for row in rows].count(LARGE_SNAPSHOT) == 2
        read = ReadParts(parts)
        ((shown,),) = (found.rows for found in states_of(rows, read).values())
        assert read.times == 1
        assert shown.state_batches == state.batches.state_batches()
        assert shown.annotations == state.batches.annotations()


async def test_an_update_beside_a_large_state_writes_as_much_wal_as_without(database_url: str) -> None:
    """The least of three turns, each with a snapshot and with the removal of the rows that it covers."""
    none, large = new_key(), new_key()
    wal: dict[SharePartitionKey, list[float]] = {none: [], large: []}
    async with session(database_url) as admin, running(database_url, limit=500) as coordinator:
        for key in wal:
            await coordinator.init(key, 9)
        assert await release(coordinator, large, 5000) == 0
        for turn in range(4):
            for key, bytes_each in wal.items():
                begin = await admin.fetchval("SELECT pg_current_wal_insert_lsn()")
                for first in range(510 * turn, 510 * (turn + 1), 10):
                    offsets = range(20_000 + first, 20_010 + first)
                    batches = [[(offset, offset, 2, 1)] if key == large else [] for offset in offsets]
                    starts = [0 if key == large else offset for offset in offsets]
                    writes = zip(starts, batches, strict=True)
                    await asyncio.gather(*(coordinator.write(key, start, 1, *said, leader=9) for start, said in writes))
                while True:
                    state = await coordinator.state(key)
                    assert state is not None
                    if state.updates < 500:
                        break
                    await asyncio.sleep(0.01)
                await store.prune_keys(admin, [coordinator.coordinator.states.entries[key].key_id or 0])
                used = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1)::float8"
                bytes_each.append(await admin.fetchval(used, begin) / 510)
        assert await admin.fetchval("SELECT count(*) FROM share_state.share_records") < 1000
    assert min(wal[large][1:]) <= 1.1 * min(wal[none][1:]), wal


async def test_a_snapshot_that_was_due_while_one_was_written_is_not_written_behind_it(database_url: str) -> None:
    """The updates of that time are fewer than a snapshot needs. Each snapshot was written twice."""
    key = new_key()
    async with session(database_url) as admin, session(database_url) as holder:
        await admin.execute(HOLD_UP)
        await holder.execute("SELECT pg_advisory_lock($1)", HELD_UP)
        async with running(database_url, limit=10) as coordinator:
            await coordinator.init(key, 9)
            await release(coordinator, key, 3000)
            for n in range(9):
                await accept(coordinator, key, 7000 + 2 * n)
            await until_parts(admin, 1)
            for n in range(5):
                await accept(coordinator, key, 8000 + 2 * n)
            await holder.execute("SELECT pg_advisory_unlock($1)", HELD_UP)
            await until_kind(admin, key, LARGE_SNAPSHOT)
            await accept(coordinator, key, 9000)
            assert not coordinator.coordinator._large
            state = await coordinator.state(key)
            assert state is not None
            assert (state.updates, state.snapshot_epoch) == (6, 1)


async def test_updates_go_on_while_a_large_snapshot_is_written(database_url: str) -> None:
    """The second part waits. Nobody else does, and what is written in that time lies behind the snapshot."""
    key, other = new_key(), new_key()
    async with session(database_url) as admin, session(database_url) as holder:
        await admin.execute(HOLD_UP)
        await holder.execute("SELECT pg_advisory_lock($1)", HELD_UP)
        async with running(database_url, limit=2) as coordinator:
            for k in (key, other):
                await coordinator.init(k, 9)
            await release(coordinator, key, 3000)
            await accept(coordinator, key, 7000)
            await until_parts(admin, 1)
            for n in range(5):
                await accept(coordinator, key, 7002 + 2 * n)
                await accept(coordinator, other, n)
            await coordinator.read(key, 10)
            assert LARGE_SNAPSHOT not in await kinds(admin, key)
            await holder.execute("SELECT pg_advisory_unlock($1)", HELD_UP)
            await until_kind(admin, key, LARGE_SNAPSHOT)
            before = await coordinator.state(key)
        (key_id,) = await admin.fetchrow(
            "SELECT key_id FROM share_state.share_partitions WHERE topic_id = $1", key.topic_id
        )
        for prune in (False, True):
            if prune:
                assert await store.prune_keys(admin, [key_id]) >= 3  # a later snapshot may have come on a busy machine
            async with running(database_url, limit=2) as again:
                after = await again.state(key)
                assert before is not None
                assert after is not None
                assert after.batches == before.batches
                assert after.updates in (before.updates, 0), "none where a later snapshot has covered them"
                assert after.recorded_leader_epoch == 10
                assert (await again.read(key, 9)).error_code == 74


CHILD = """
import asyncio, sys
from sharequeue_share_coordinator.share_state import row_format
from tests.storage.share_coordinators import running
from tests.storage.test_large_snapshots import accept, release
from sharequeue.protocol.types import SharePartitionKey
row_format.BATCHES_PER_PART = 500

async def main():
    key = SharePartitionKey("g", sys.argv[2], 0)
    async with running(sys.argv[1], limit=2) as coordinator:
        await coordinator.init(key, 9)
        await release(coordinator, key, 3000)
        for n in range(4):
            await accept(coordinator, key, 7000 + 2 * n)
        print("written", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_crash_between_two_parts_leaves_the_older_snapshot_and_all_updates(database_url: str) -> None:
    """kill -9 while the second part is stored. The parts that are left do not count, and go."""
    key = new_key()
    async with session(database_url) as admin, session(database_url) as holder:
        await admin.execute(HOLD_UP)
        await holder.execute("SELECT pg_advisory_lock($1)", HELD_UP)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CHILD, database_url, key.topic_id, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        assert await child.stdout.readline() == b"written\n"
        await until_parts(admin, 1)
        child.send_signal(signal.SIGKILL)
        await child.wait()
        await holder.execute("SELECT pg_advisory_unlock($1)", HELD_UP)
        async with running(database_url, limit=2) as again:
            state = await again.state(key)
            assert state is not None
            assert len(state.batches) == 3004
            assert state.snapshot_epoch == 0
            assert LARGE_SNAPSHOT not in await kinds(admin, key)
            await accept(again, key, 7100)
            await until_kind(admin, key, LARGE_SNAPSHOT)
            before = await again.state(key)
        async with running(database_url, limit=2) as last:
            assert await last.state(key) == before
        assert await parts_of(admin) > 7
        await store.remove_lost_parts(admin)
        assert await parts_of(admin) > 7, "they may be parts of a snapshot that is being written"
        await admin.execute("UPDATE share_state.snapshot_parts SET written_at = now() - interval '2 hours'")
        await store.remove_lost_parts(admin)
        assert await parts_of(admin) == 7
        async with running(database_url, limit=2) as kept:
            assert await kept.state(key) == before


@pytest.mark.parametrize("ends", ["delete", "initialise", "takeover"])
async def test_a_large_snapshot_of_a_state_that_ended_never_counts(database_url: str, ends: str) -> None:
    key = new_key()
    async with session(database_url) as admin, session(database_url) as holder:
        await admin.execute(HOLD_UP)
        await holder.execute("SELECT pg_advisory_lock($1)", HELD_UP)
        async with running(database_url, limit=2) as coordinator:
            await coordinator.init(key, 9)
            await release(coordinator, key, 3000)
            await accept(coordinator, key, 7000)
            await until_parts(admin, 1)
            if ends == "takeover":
                await admin.execute("UPDATE share_state.shards SET owner_epoch = owner_epoch + 1")
            else:
                if ends == "delete":
                    assert await coordinator.delete(key) == 0
                assert await coordinator.init(key, 10, 5) == 0
            await holder.execute("SELECT pg_advisory_unlock($1)", HELD_UP)
            await until_parts(admin, 7)
            if ends != "takeover":
                await coordinator.submit(key, lambda _: shard.Decision(shard.done(0)))
                state = await coordinator.state(key)
                assert state is not None
                assert (state.start_offset, len(state.batches)) == (5, 0)
        async with running(database_url) as again:
            state = await again.state(key)
            assert state is not None
            assert len(state.batches) == (3001 if ends == "takeover" else 0)
        assert LARGE_SNAPSHOT not in await kinds(admin, key)


async def test_a_cold_large_state_gets_a_snapshot_in_parts(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin:
        async with running(database_url, cold_ms=50, prune_ms=20) as coordinator:
            await coordinator.init(key, 9)
            await release(coordinator, key, 2000)
            before = await coordinator.state(key)
            while True:
                if await kinds(admin, key) == [LARGE_SNAPSHOT]:
                    break
                await asyncio.sleep(0.01)
        async with running(database_url) as again:
            after = await again.state(key)
            assert before is not None
            assert after is not None
            assert after.batches == before.batches


async def test_a_missing_part_is_damage_that_is_named(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin:
        async with running(database_url, limit=2) as coordinator:
            await coordinator.init(key, 9)
            await release(coordinator, key, 3000)
            await accept(coordinator, key, 7000)
            await until_kind(admin, key, LARGE_SNAPSHOT)
        await admin.execute("DELETE FROM share_state.snapshot_parts WHERE part = 3")
        async with running(database_url) as again:
            refused = await again.read(key, 9)
            assert refused.error_code == -1
            assert "7 parts belong to it, but 6 are stored" in (refused.error_message or "")
            assert await again.delete(key) == 0


@pytest.mark.soak
async def test_a_large_load_stops_no_loop(database_url: str) -> None:
    """250,000 batches. No turn of the loop has more than a third of the CPU time of the whole load."""
    key = new_key()
    async with running(database_url) as coordinator:
        await coordinator.init(key, 9)
        for first in range(0, 250_000, 10_000):
            assert await release(coordinator, key, 10_000, first) == 0
        assert await coordinator.large_snapshots.write(key)
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - before)

    async with running(database_url) as again:
        watching = asyncio.create_task(watch())
        before = time.thread_time()
        state = await again.state(key)
        whole = time.thread_time() - before
        watching.cancel()
        assert state is not None
        assert len(state.batches) == 250_000
        assert longest < whole / 3

        one = PartitionState(
            partition=0, state_epoch=9, leader_epoch=9, state_batches=[StateBatch(200_000, 200_000, 2, 1)]
        )
        await again.coordinator.submit([Operation(key, lambda s: shard.write(s, one, None, 500, 0), False)])
        after: KeyState | None = await again.state(key)
        assert after is not None
        shared = set(map(id, state.batches.blocks)) & set(map(id, after.batches.blocks))
        assert len(shared) >= len(state.batches.blocks) - 2, "an update shares what it does not change"

"""The share coordinator on PostgreSQL: acknowledged state survives a restart, and only its owner writes."""

import asyncio
import random
from collections.abc import Sequence

import pytest
from sharequeue_share_coordinator import store
from sharequeue_share_coordinator.coordinator.operations import Operation
from sharequeue_share_coordinator.share_state.rows import SNAPSHOT, TOMBSTONE, UPDATE, KeyState, Row, encode_row

from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session
from tests.storage.record_logs import new_topic
from tests.storage.share_coordinators import held, kinds, new_key, running

# What is durable


async def test_sc_029_sc_049_kinds_of_rows_and_the_state_after_a_restart(module_database: str) -> None:
    key = new_key()
    async with session(module_database) as admin:
        async with running(module_database, limit=2) as coordinator:
            await coordinator.init(key, 3, 5)
            for count in range(1, 7):
                assert await coordinator.write(key, 5, count, (5 + 2 * count, 5 + 2 * count, 2, 1)) == 0
            assert (await coordinator.read(key, 4)).error_code == 0
            before = await coordinator.state(key)
        wanted = [SNAPSHOT, UPDATE, UPDATE, SNAPSHOT, UPDATE, UPDATE, SNAPSHOT, UPDATE]
        assert await kinds(admin, key) == wanted
        async with running(module_database, limit=2) as again:
            assert await again.state(key) == before
            assert (await again.read(key, 3)).error_code == 74
            assert held(await again.read(key, 4)) == (5, [(7 + 2 * n, 7 + 2 * n, 2, 1) for n in range(6)])
            assert await again.write(key, 20, 0, leader=4) == 0
            assert held(await again.read(key, 4)) == (20, [])


async def test_random_calls_leave_the_same_state_after_each_restart(module_database: str, seed: int) -> None:
    rng = random.Random(seed)
    keys = [new_key(partition=number) for number in range(5)]
    before: list[KeyState | None] = [None] * len(keys)
    for _ in range(4):
        async with running(module_database, limit=3, max_cached=2) as coordinator:
            for key, state in zip(keys, before, strict=True):
                assert await coordinator.state(key) == state
            for _ in range(60):
                key = rng.choice(keys)
                first = rng.randrange(50)
                call = rng.choice((coordinator.init, coordinator.write, coordinator.write, coordinator.read))
                if call == coordinator.init:
                    await coordinator.init(key, rng.randrange(3), rng.randrange(-1, 20))
                elif call == coordinator.read:
                    await coordinator.read(key, rng.randrange(4))
                elif rng.random() < 0.1:
                    await coordinator.delete(key)
                else:
                    batch = (first, first + rng.randrange(5), rng.choice((0, 2, 3, 4)), rng.randrange(1, 4))
                    await coordinator.write(
                        key, rng.randrange(-1, 30), rng.randrange(9), batch, leader=rng.randrange(4)
                    )
            before = [await coordinator.state(key) for key in keys]
    assert any(before)


async def test_waiting_requests_share_a_commit_and_each_gets_its_answer(module_database: str) -> None:
    keys = [new_key(partition=number) for number in range(50)]
    async with session(module_database) as admin, running(module_database) as coordinator:
        await asyncio.gather(*(coordinator.init(key) for key in keys))
        missing = new_key()
        answers = await asyncio.gather(
            *(coordinator.write(key, 0, 1, (n, n, 2, 1)) for n, key in enumerate(keys, 1)),
            coordinator.write(missing, 0, 1),
            *(coordinator.write(key, 0, 2, (100 + n, 100 + n, 2, 1)) for n, key in enumerate(keys, 1)),
        )
        assert answers == [0] * 50 + [42] + [0] * 50
        commits = await admin.fetchval(
            """SELECT count(DISTINCT r.xmin::text) FROM share_state.share_records r
               JOIN share_state.share_partitions USING (key_id) WHERE topic_id = ANY($1::uuid[]) AND kind = 1""",
            [key.topic_id for key in keys],
        )
        assert commits <= 3
        for number, key in enumerate(keys, 1):
            assert held(await coordinator.read(key)) == (
                0,
                [(number, number, 2, 1), (100 + number, 100 + number, 2, 1)],
            )


async def test_sc_033_each_partition_of_a_request_stands_alone(module_database: str) -> None:
    key, missing = new_key(), new_key()
    async with session(module_database) as admin, running(module_database) as coordinator:
        await coordinator.init(key)
        items = [Operation(k, coordinator.writing(0, 1, [(3, 3, 2, 1)]), False) for k in (key, missing)]
        results = await coordinator.coordinator.commit(items)
        assert [result.error_code for result in results] == [0, 42]
        assert await kinds(admin, key) == [SNAPSHOT, UPDATE]


async def test_a_later_item_of_a_commit_sees_the_earlier_ones(module_database: str) -> None:
    key = new_key()
    async with running(module_database) as coordinator:
        codes = await asyncio.gather(
            coordinator.write(key, 0, 0),
            coordinator.init(key, 5, 10),
            coordinator.init(key, 4, 0),
            coordinator.write(key, 12, 0, (15, 15, 2, 1)),
            coordinator.write(key, -1, 1),
        )
        assert codes == [42, 0, 124, 0, 0]
        assert held(await coordinator.read(key)) == (12, [(15, 15, 2, 1)])


# Memory


async def test_the_number_of_states_in_memory_is_limited(module_database: str) -> None:
    keys = [new_key(partition=number) for number in range(30)]
    async with running(module_database, max_cached=5) as coordinator:
        for number, key in enumerate(keys):
            await coordinator.init(key, 0, number)
            await coordinator.write(key, number, 1, (number + 3, number + 3, 2, 1))
        assert len(coordinator.coordinator.states.entries) == 5
        for number, key in enumerate(keys):
            assert held(await coordinator.read(key)) == (number, [(number + 3, number + 3, 2, 1)])
        await asyncio.gather(*(coordinator.write(key, 0, 1) for key in keys))
        assert len(coordinator.coordinator.states.entries) == 5


# Housekeeping


async def test_sc_041_a_deleted_topic_makes_tombstones_only_for_its_keys(module_database: str) -> None:
    topic = new_topic()
    keys = [SharePartitionKey(group, topic, partition) for group in ("a", "b") for partition in range(3)]
    other = new_key()
    async with session(module_database) as admin, running(module_database, max_cached=2) as coordinator:
        for key in (*keys, other):
            await coordinator.init(key)
            await coordinator.write(key, 0, 1, (4, 4, 2, 1))
        await coordinator.housekeeping.delete_topic(topic)
        await coordinator.housekeeping.delete_topic(topic)
        for key in keys:
            assert (await coordinator.read(key)).error_code == 42
            assert await kinds(admin, key) == [SNAPSHOT, UPDATE, TOMBSTONE]
        assert held(await coordinator.read(other)) == (0, [(4, 4, 2, 1)])
    async with running(module_database) as again:
        assert (await again.read(keys[0])).error_code == 42


async def test_a_topic_is_deleted_with_keys_being_initialised(module_database: str) -> None:
    key = new_key()
    async with running(module_database) as coordinator:
        initialising = asyncio.create_task(coordinator.init(key))
        await asyncio.sleep(0)
        await coordinator.housekeeping.delete_topic(key.topic_id)
        assert await initialising == 0
        assert (await coordinator.read(key)).error_code == 42


async def test_pruning_removes_only_rows_covered_by_a_snapshot(module_database: str) -> None:
    keys = [new_key() for _ in range(3)]
    async with session(module_database) as admin:
        async with running(module_database, limit=2) as coordinator:
            for key in keys:
                await coordinator.init(key)
            for count in range(1, 5):
                await coordinator.write(keys[0], 0, count, (2 * count, 2 * count, 2, 1))
            await coordinator.write(keys[1], 0, 1, (3, 3, 2, 1))
            await coordinator.delete(keys[2])
            before = [await coordinator.state(key) for key in keys]
            await store.prune(admin)
            assert [await kinds(admin, key) for key in keys] == [[SNAPSHOT, UPDATE], [SNAPSHOT, UPDATE], []]
            assert await coordinator.init(keys[2], 0, 8) == 0
        async with running(module_database, limit=2) as again:
            after = [await again.state(key) for key in keys[:2]]
            assert [state and state.batches for state in after] == [state and state.batches for state in before[:2]]
            assert (await again.read(keys[2])).start_offset == 8


Rows = Sequence[tuple[int, int, int]]


@pytest.mark.parametrize(
    ("steps", "redundant"),
    [
        pytest.param([(1, 10, 0), (1, 11, 0), (1, 15, 0)], [10, 11, 15], id="SC-047"),
        pytest.param(
            [
                *((1, 10, 0), (2, 11, 0), (3, 15, 0), (2, 18, 0), (3, 20, 0)),
                *((2, 22, 0), (3, 25, 0), (2, 27, 0), (3, 28, 0), (1, 30, 0)),
            ],
            [10] * 9 + [27],
            id="SC-045",
        ),
        pytest.param([(1, 10, 0), (2, 11, 0), (3, 15, 2), (2, 16, 0), (1, 17, 0)], [10, 10, 10, 10, 16], id="SC-043"),
        pytest.param(
            [(1, 10, 0), (2, 11, 0), (2, 12, 2), (1, 16, 0)], [10, 10, 10, 16], id="a tombstone counts no more"
        ),
    ],
)
async def test_sc_043_sc_045_sc_047_the_last_pruned_offset(
    database_url: str, steps: Rows, redundant: Sequence[int]
) -> None:
    found = []
    async with session(database_url) as admin:
        await store.make_keys(admin, [new_key() for _ in range(3)])
        for key_id, seq, kind in steps:
            await admin.execute(
                """INSERT INTO share_state.share_records (key_id, seq, kind, record) OVERRIDING SYSTEM VALUE
                   VALUES ($1, $2, $3, $4)""",
                key_id,
                seq,
                kind,
                encode_row(Row(kind=kind))[1][0],
            )
            found.append((await store.prune(admin))[1])
    assert found == redundant


async def test_sc_039_cold_keys_get_a_snapshot_and_their_updates_go(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin, running(database_url, cold_ms=50, prune_ms=20) as coordinator:
        await coordinator.init(key, 2, 5)
        await coordinator.write(key, 5, 1, (9, 9, 2, 1))
        await coordinator.read(key, 3)
        while True:
            if await kinds(admin, key) == [SNAPSHOT]:
                break
            await asyncio.sleep(0.01)
        state = await coordinator.state(key)
        assert state is not None
        assert (state.start_offset, state.recorded_leader_epoch, state.rows) == (5, 3, 0)
        assert held(await coordinator.read(key, 3)) == (5, [(9, 9, 2, 1)])
        await coordinator.write(key, 5, 2, (11, 11, 2, 1), leader=3)
    async with running(database_url) as again:
        assert (await again.read(key, 2)).error_code == 74
        assert held(await again.read(key, 3)) == (5, [(9, 9, 2, 1), (11, 11, 2, 1)])

"""The share coordinator when writes are refused, lost or late, and when another one takes over."""

import asyncio
from typing import Any

import pytest
from sharequeue_share_coordinator import shard, store
from sharequeue_share_coordinator.coordinator import OwnershipLost
from sharequeue_share_coordinator.shard import UPDATE, KeyState, Row

from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_logs import new_topic
from tests.storage.share_coordinators import Running, held, kinds, new_key, running

# Poison


def poisoned(_: KeyState | None) -> shard.Decision:
    """A row that PostgreSQL refuses."""
    return shard.Decision(shard.done(0), Row(kind=70_000))


@pytest.mark.parametrize("place", [0, 7, 19])
async def test_a_poisoned_write_fails_alone(module_database: str, place: int) -> None:
    keys = [new_key(partition=number) for number in range(20)]
    async with running(module_database) as coordinator:
        await asyncio.gather(*(coordinator.init(key) for key in keys))
        answers = await asyncio.gather(
            *(
                coordinator.submit(key, poisoned)
                if number == place
                else coordinator.submit(key, coordinator.writing(0, 1, [(5, 5, 2, 1)]))
                for number, key in enumerate(keys)
            )
        )
        codes = [answer[0].error_code for answer in answers]
        assert codes == [-1 if number == place else 0 for number in range(20)]
        for number, key in enumerate(keys):
            assert held(await coordinator.read(key)) == (0, [] if number == place else [(5, 5, 2, 1)])


@pytest.mark.parametrize(
    "key", [SharePartitionKey("nul\x00", new_topic(), 0), SharePartitionKey("g", "no uuid", 0)], ids=["group", "topic"]
)
async def test_a_key_that_cannot_be_looked_up_does_not_harm_its_neighbours(
    module_database: str, key: SharePartitionKey
) -> None:
    good = [new_key(partition=number) for number in range(4)]
    async with running(module_database) as coordinator:
        codes = await asyncio.gather(
            *(coordinator.init(k) for k in good[:2]), coordinator.init(key), *(coordinator.init(k) for k in good[2:])
        )
        assert codes == [0, 0, -1, 0, 0]


# Owners


async def test_a_paused_owner_can_write_nothing_after_a_takeover(module_database: str) -> None:
    key = new_key()
    async with running(module_database) as old:
        await old.init(key)
        await old.write(key, 0, 1, (3, 3, 2, 1))
        async with running(module_database) as new:
            assert held(await new.read(key)) == (0, [(3, 3, 2, 1)])
            assert await old.write(key, 0, 2, (4, 4, 2, 1)) == 16
            assert old.loop is not None
            with pytest.raises(OwnershipLost):
                await old.loop
            with pytest.raises(OwnershipLost):
                await old.coordinator.ping()
            await new.coordinator.ping()
            assert held(await new.read(key)) == (0, [(3, 3, 2, 1)])


async def test_a_takeover_waits_for_the_write_under_way(module_database: str) -> None:
    key = new_key()
    async with session(module_database) as admin, running(module_database) as old:
        await old.init(key)
        entry = old.coordinator._entries[key]
        assert entry.key_id is not None
        transaction = admin.transaction()
        await transaction.start()
        assert await store.append(
            admin, old.coordinator.owner_epoch, [(entry.key_id, Row(kind=UPDATE, start_offset=7))]
        )
        takeover = asyncio.create_task(enter(running(module_database)))
        await lock_waiter(module_database)
        assert not takeover.done()
        await transaction.commit()
        context, new = await takeover
        try:
            assert (await new.read(key)).start_offset == 7
        finally:
            await context.__aexit__(None, None, None)


async def enter(context: Any) -> tuple[Any, Running]:
    return context, await context.__aenter__()


async def lock_waiter(database_url: str) -> None:
    """Wait until somebody waits for a lock in this database."""
    query = """SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    async with session(database_url) as admin:
        while True:
            if await admin.fetchval(query):
                return
            await asyncio.sleep(0.01)


# Lost outcomes


async def rows_of(connection: Any, key: SharePartitionKey, wanted: int) -> None:
    while True:
        if len(await kinds(connection, key)) == wanted:
            return
        await asyncio.sleep(0.01)


async def test_a_commit_whose_answer_was_lost_answers_15_and_is_read_again(module_database: str) -> None:
    key, other = new_key(), new_key()
    async with (
        session(module_database) as admin,
        LossyProxy(module_database).running() as proxy,
        running(proxy.url) as coordinator,
    ):
        for k in (key, other):
            await coordinator.init(k)
        proxy.lose_answers = True
        task = asyncio.create_task(coordinator.write(key, 0, 1, (5, 5, 2, 1)))
        await rows_of(admin, key, 2)
        proxy.cut()
        assert await task == 15
        assert held(await coordinator.read(key)) == (0, [(5, 5, 2, 1)])
        assert held(await coordinator.read(other)) == (0, [])
        assert await coordinator.write(key, 0, 2, (6, 6, 2, 1)) == 0


async def test_a_write_that_did_not_happen_answers_15_and_is_not_there(module_database: str) -> None:
    key = new_key()
    async with session(module_database) as admin, running(module_database) as coordinator:
        await coordinator.init(key)
        async with admin.transaction():
            await admin.execute("LOCK TABLE share_state.share_records IN EXCLUSIVE MODE")
            task = asyncio.create_task(coordinator.write(key, 0, 1, (5, 5, 2, 1)))
            await lock_waiter(module_database)
            await admin.execute(
                """SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
                   AND application_name = 'share-coordinator-test' AND wait_event_type = 'Lock'"""
            )
            assert await task == 15
        assert held(await coordinator.read(key)) == (0, [])
        assert await coordinator.write(key, 0, 1, (6, 6, 2, 1)) == 0


async def test_a_lost_write_that_arrives_late_changes_nothing_anymore(module_database: str) -> None:
    """It answered 15 and the state was read again: a late arrival would turn what was decided since."""
    key = new_key()
    async with LossyProxy(module_database).running() as proxy, running(proxy.url) as coordinator:
        await coordinator.init(key)
        await coordinator.write(key, 0, 0, (4, 4, 0, 1))
        proxy.hold_requests = True
        task = asyncio.create_task(coordinator.write(key, 0, 1, (5, 5, 3, 1)))
        await proxy.held.wait()
        proxy.cut()
        assert await task == 15
        assert held(await coordinator.read(key)) == (0, [(4, 4, 0, 1)])
        assert await coordinator.write(key, 0, 1, (5, 5, 2, 1)) == 0
        await proxy.deliver()
        served = held(await coordinator.read(key))
        assert served == (0, [(4, 4, 0, 1), (5, 5, 2, 1)])
    async with running(module_database) as again:
        assert held(await again.read(key)) == served


async def test_sc_035_without_a_database_every_partition_answers_15(database_url: str) -> None:
    key = new_key()
    name = database_url.rsplit("/", 1)[1]
    async with session(database_url.rsplit("/", 1)[0] + "/sharequeue") as admin, running(database_url) as coordinator:
        await coordinator.init(key)
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        assert await coordinator.write(key, 0, 1) == 15
        assert (await coordinator.read(key)).error_code == 15
        assert await coordinator.init(new_key()) == 15
        await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert await coordinator.write(key, 0, 1, (1, 1, 2, 1)) == 0
        assert held(await coordinator.read(key)) == (0, [(1, 1, 2, 1)])

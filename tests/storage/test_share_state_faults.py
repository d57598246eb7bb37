"""The share coordinator when writes are refused, lost or late, and when another one takes over."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.rows import UPDATE, KeyState, Row, encode_row

from sharequeue.background import IN_COMPANY
from sharequeue.ownership.leases import OwnershipLost
from sharequeue.protocol.shards import shard_of, share_key
from sharequeue.protocol.types import SharePartitionKey
from tests.storage.database import session
from tests.storage.lossy_proxy import LossyProxy
from tests.storage.record_logs import new_topic
from tests.storage.share_coordinators import SHARDS, Running, held, kinds, new_key, running

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
async def test_a_failed_lookup_of_a_key_does_not_fail_its_neighbours(
    module_database: str, key: SharePartitionKey
) -> None:
    good = [new_key(partition=number) for number in range(4)]
    async with running(module_database) as coordinator:
        codes = await asyncio.gather(
            *(coordinator.init(k) for k in good[:2]), coordinator.init(key), *(coordinator.init(k) for k in good[2:])
        )
        assert codes == [0, 0, -1, 0, 0]


@pytest.mark.parametrize(
    "record",
    [
        b"\x93\x01\x02",
        encode_row(Row(kind=UPDATE))[1][0][:-1],
        b"\x81\xa4kind\x02",
    ],
    ids=["cut", "cut at the end", "a map"],
)
async def test_an_unreadable_row_fails_only_its_share_partition(
    module_database: str, caplog: pytest.LogCaptureFixture, record: bytes
) -> None:
    """The error names it, and it is served again once the row is repaired."""
    keys = [new_key(partition=number) for number in range(4)]
    damaged = keys[1]
    async with running(module_database) as before:
        for key in keys:
            assert await before.init(key) == 0
            assert await before.write(key, 0, 1, (5, 5, 2, 1)) == 0
    async with session(module_database) as admin, running(module_database) as coordinator:
        row, written = await admin.fetchrow(
            """SELECT seq, record FROM share_state.share_records r JOIN share_state.share_partitions USING (key_id)
               WHERE topic_id = $1 ORDER BY seq DESC LIMIT 1""",
            damaged.topic_id,
        )
        replace = "UPDATE share_state.share_records SET record = $1 WHERE seq = $2"
        await admin.execute(replace, record, row)
        codes = await asyncio.gather(*(coordinator.write(key, 0, 2, (6, 6, 2, 1)) for key in keys))
        assert codes == [0, -1, 0, 0]
        refused = await coordinator.read(damaged)
        assert refused.error_code == -1
        assert f"{share_key(damaged)} is damaged: row {row} cannot be read" in (refused.error_message or "")
        assert await coordinator.init(damaged, epoch=9) == -1, "it cannot be initialised again either"
        ours = [entry for entry in caplog.records if entry.name.startswith("sharequeue")]
        causes = [entry.__dict__["fields"]["cause"] for entry in ours if entry.levelno == logging.ERROR]
        assert causes == [refused.error_message] * 3
        assert held(await coordinator.read(keys[2])) == (0, [(5, 6, 2, 1)])
        await admin.execute(replace, written, row)
        assert held(await coordinator.read(damaged)) == (0, [(5, 5, 2, 1)])


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_a_damaged_share_partition_can_be_deleted(module_database: str, place: int) -> None:
    """Wherever the row is: after it the share-partition is as never initialised, to the next owner too."""
    key, other = new_key(), new_key()
    async with session(module_database) as admin:
        async with running(module_database) as before:
            for k in (key, other):
                assert await before.init(k, epoch=3) == 0
                assert await before.write(k, 0, 1, (5, 5, 2, 1)) == 0
                assert await before.write(k, 0, 2, (6, 6, 2, 1)) == 0
        await admin.execute(
            """UPDATE share_state.share_records SET record = 'no' WHERE seq = (
                 SELECT seq FROM share_state.share_records JOIN share_state.share_partitions USING (key_id)
                 WHERE topic_id = $1 ORDER BY seq OFFSET $2 LIMIT 1)""",
            key.topic_id,
            place,
        )
        async with running(module_database) as coordinator:
            reading, deleting, writing = await asyncio.gather(
                coordinator.read(key), coordinator.delete(key), coordinator.write(key, 0, 3)
            )
            assert (reading.error_code, deleting, writing) == (-1, 0, 42), "in one commit, in their order"
            assert await coordinator.delete(key) == 0
            assert (await coordinator.read(key)).error_code == 42
            assert await coordinator.init(key) == 0, "the state epoch is forgotten too"
        async with running(module_database, prune_ms=1) as again:
            assert held(await again.read(key)) == (0, [])
            assert held(await again.read(other)) == (0, [(5, 6, 2, 1)])
            await rows_of(admin, key, 1)
            assert held(await again.read(key)) == (0, [])


# Owners


async def pause(coordinator: Running) -> None:
    """Stop the renewal of its leases, without its knowledge."""
    assert coordinator.owning is not None
    coordinator.owning.cancel()
    await asyncio.gather(coordinator.owning, return_exceptions=True)


async def test_a_paused_owner_can_write_nothing_after_a_takeover(database_url: str) -> None:
    key = new_key()
    async with running(database_url) as old:
        await old.init(key)
        await old.write(key, 0, 1, (3, 3, 2, 1))
        await pause(old)
        async with running(database_url) as new:
            assert held(await new.read(key)) == (0, [(3, 3, 2, 1)])
            assert await old.write(key, 0, 2, (4, 4, 2, 1)) == 16
            with pytest.raises(OwnershipLost):
                await old.ownership.run()
            await new.coordinator.health.check()
            assert held(await new.read(key)) == (0, [(3, 3, 2, 1)])


async def test_a_lost_shard_delays_writes_of_other_shards_only_briefly(database_url: str) -> None:
    keys = [new_key(partition=number) for number in range(20)]
    async with session(database_url) as admin, running(database_url) as coordinator:
        for key in keys:
            await coordinator.init(key)
        await admin.execute(
            "UPDATE share_state.shards SET owner = 'other', owner_epoch = owner_epoch + 1 WHERE shard = 2"
        )
        coordinator.coordinator._in_company = IN_COMPANY
        codes = await asyncio.gather(*(coordinator.write(key, 0, 1, (3, 3, 2, 1)) for key in keys))
        assert set(codes) == {16}, "nothing was written of what shared the commit"
        await until(lambda: 2 not in coordinator.ownership.owned)  # it looked at once, no lease is over for long
        codes = await asyncio.gather(*(coordinator.write(key, 0, 1, (3, 3, 2, 1)) for key in keys))
        assert [code in (14, 16) for code in codes] == [shard_of(share_key(key), SHARDS) == 2 for key in keys]
        assert 0 in codes


async def until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0.01)


async def test_a_state_moves_with_its_shard_and_back(database_url: str) -> None:
    """Each owner reads what the other wrote, not what it remembers."""
    keys = [new_key(partition=number) for number in range(12)]
    async with running(database_url, node_id="a") as a:
        for key in keys:
            await a.init(key)
            await a.write(key, 0, 0, (1, 1, 0, 1))
        async with running(database_url, node_id="b") as b:
            await until(lambda: len(b.ownership.owned) == SHARDS // 2)
            for key in keys:
                first, second = (a, b) if shard_of(share_key(key), SHARDS) in a.ownership.owned else (b, a)
                assert await first.write(key, 0, 1, (2, 2, 2, 1)) == 0
                assert await second.write(key, 0, 9, (9, 9, 2, 1)) == 16
            await b.ownership.stop()
            await until(lambda: len(a.ownership.owned) == SHARDS)
            for key in keys:
                assert held(await a.read(key)) == (0, [(1, 1, 0, 1), (2, 2, 2, 1)])
                assert await a.write(key, 0, 2, (3, 3, 2, 1)) == 0


async def test_writes_in_progress_are_committed_before_their_shard_is_returned(database_url: str) -> None:
    key = new_key()
    async with session(database_url) as admin, running(database_url, node_id="a") as a:
        await a.init(key)
        async with admin.transaction():
            await admin.execute("LOCK TABLE share_state.share_records IN EXCLUSIVE MODE")
            write = asyncio.create_task(a.write(key, 0, 1, (2, 2, 2, 1)))
            await lock_waiter(database_url)
            stop = asyncio.create_task(a.ownership.stop())
            await until(lambda: not a.ownership.owned)
            late = asyncio.create_task(a.write(key, 0, 2, (3, 3, 2, 1)))
            await asyncio.sleep(0)
            assert not stop.done()
        assert await write == 0
        await stop
        assert await late in (14, 16)
        async with running(database_url, node_id="b") as b:
            assert held(await b.read(key)) == (0, [(2, 2, 2, 1)])


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


async def test_a_commit_without_an_answer_is_error_15_and_read_again(module_database: str) -> None:
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


async def test_a_write_that_failed_is_error_15_and_not_stored(module_database: str) -> None:
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


async def test_a_lost_write_that_arrives_late_changes_nothing(module_database: str) -> None:
    """The write was answered with 15 and the state was read again: a late arrival would undo later decisions."""
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


async def test_sc_035_without_a_database_every_partition_is_error_15(database_url: str) -> None:
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

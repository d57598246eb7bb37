"""The group coordinator on a real database: changes side by side, and changes whose outcome is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from sharequeue_coordinator.coordinator import GroupCoordinator
from sharequeue_coordinator.writing import Database

from sharequeue.coordinators import CoordinatorClient
from sharequeue.ownership import Ownership
from sharequeue.protocol.errors import StorageError, TopicAlreadyExists, UnknownTopicOrPartition
from sharequeue.protocol.shards import CLUSTER_SHARD
from sharequeue.service import Clock
from sharequeue.shard_store import ShardStore
from tests.storage.database import session
from tests.storage.lossy_proxy import LossyProxy


@asynccontextmanager
async def running(database_url: str) -> AsyncIterator[GroupCoordinator]:
    """A group coordinator that owns everything. No share coordinator is there to be called."""

    async def connect() -> Any:
        return await asyncpg.connect(database_url, command_timeout=10)

    ownership = Ownership(
        connect,
        ShardStore("groups"),
        node_id="test",
        url="http://test",
        shards=(CLUSTER_SHARD, *range(4)),
        lease_ms=10**6,
    )
    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=8, command_timeout=10)
    client = CoordinatorClient("http://127.0.0.1:1", "share")
    coordinator = GroupCoordinator(
        Database(pool, ownership),
        client,
        cluster_token="",
        kafka_defaults=False,
        max_partitions=100,
        deletion_retry_ms=10,
        clock=Clock(),
        gateway_lease_ms=3000,
        group_max_size=200,
        initialize_retry_interval_ms=30_000,
    )
    try:
        await coordinator.load()
        await ownership.start()
        yield coordinator
    finally:
        await ownership.close()
        await client.close()
        pool.terminate()


async def test_settings_of_a_group_changed_side_by_side_are_all_kept(module_database: str, name: str) -> None:
    changes = {
        "share.delivery.count.limit": "7",
        "share.record.lock.duration.ms": "20000",
        "share.auto.offset.reset": "latest",
        "share.isolation.level": "read_committed",
    }
    async with running(module_database) as coordinator:
        await asyncio.gather(
            *(coordinator.update_group_config(name, {setting: value}) for setting, value in changes.items())
        )
        assert changes.items() <= (await coordinator.group_config(name)).items()


# Outcomes that are lost


async def stored(database_url: str, query: str, name: str) -> None:
    """Wait until the query, about the topic `name`, finds something."""
    async with session(database_url) as admin:
        while True:
            if await admin.fetchval(f"SELECT 1 FROM groups.topics WHERE name = $1 AND {query}", name):
                return
            await asyncio.sleep(0.01)


async def practise(coordinator: GroupCoordinator, name: str) -> None:
    """Have the statements prepared, so that each is one message to the database, and its outcome another."""
    await coordinator.create_topic(name, 1, {})
    await coordinator.update_topic(name, 2, {}, [])
    await coordinator.delete_topic(name)


async def test_a_topic_is_made_though_the_commits_answer_was_lost(module_database: str, name: str) -> None:
    async with LossyProxy(module_database).running() as proxy, running(proxy.url) as coordinator:
        await practise(coordinator, name)
        before = coordinator.changes.version
        proxy.lose_answers = True
        task = asyncio.create_task(coordinator.create_topic(name, 3, {}))
        await stored(module_database, "NOT deleting", name)
        proxy.cut()
        topic = await task
        assert coordinator.known([name], []) == [topic]
        assert coordinator.changes.after(before) == ([topic.topic_id], [])
        with pytest.raises(TopicAlreadyExists):
            await coordinator.create_topic(name, 3, {})


async def test_a_topic_that_was_stored_unnoticed_is_known_once_it_is_made_again(
    module_database: str, name: str
) -> None:
    """The first request reaches the database after all, when its caller has long been told that it failed."""
    async with LossyProxy(module_database).running() as proxy, running(proxy.url) as coordinator:
        await practise(coordinator, name)
        proxy.hold_requests = True
        task = asyncio.create_task(coordinator.create_topic(name, 3, {}))
        await proxy.held.wait()
        proxy.cut()
        with pytest.raises(StorageError):
            await task
        assert coordinator.known([name], []) == []
        await proxy.deliver()
        await stored(module_database, "NOT deleting", name)
        with pytest.raises(TopicAlreadyExists):
            await coordinator.create_topic(name, 3, {})
        assert [topic.name for topic in coordinator.known([name], [])] == [name]
        await coordinator.delete_topic(name)
        assert (await coordinator.create_topic(name, 5, {})).partitions == 5


async def test_a_topic_grows_and_goes_though_the_commits_answers_were_lost(module_database: str, name: str) -> None:
    async with LossyProxy(module_database).running() as proxy, running(proxy.url) as coordinator:
        await practise(coordinator, name)
        await coordinator.create_topic(name, 3, {})
        proxy.lose_answers = True
        growth = asyncio.create_task(coordinator.update_topic(name, 4, {"retention.ms": 5}, []))
        await stored(module_database, "partitions = 4", name)
        proxy.cut()
        grown = await growth
        assert coordinator.known([name], []) == [grown]
        assert (grown.partitions, grown.config["retention.ms"]) == (4, "5")
        await practise(coordinator, f"{name}-other")
        proxy.lose_answers = True
        deletion = asyncio.create_task(coordinator.delete_topic(name))
        await stored(module_database, "deleting AND partitions = 4", name)
        proxy.cut()
        await deletion
        assert coordinator.known([name], [grown.topic_id]) == []
        with pytest.raises(UnknownTopicOrPartition):
            coordinator.topic(name)


async def test_what_could_not_be_found_out_at_once_is_found_out_when_the_database_is_back(
    database_url: str, name: str
) -> None:
    database = database_url.rsplit("/", 1)[1]
    async with (
        session(database_url.rsplit("/", 1)[0] + "/sharequeue") as admin,
        LossyProxy(database_url).running() as proxy,
        running(proxy.url) as coordinator,
    ):
        await practise(coordinator, name)
        proxy.lose_answers = True
        task = asyncio.create_task(coordinator.create_topic(name, 3, {}))
        await stored(database_url, "NOT deleting", name)
        await admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")
        await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", database)
        proxy.cut()
        with pytest.raises(StorageError):
            await task
        assert coordinator.known([name], []) == []
        finishing = asyncio.create_task(coordinator.finish())
        try:
            before = coordinator.changes.version
            await admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")
            await coordinator.changes.wait(before, 20)
            assert [topic.partitions for topic in coordinator.known([name], [])] == [3]
        finally:
            finishing.cancel()

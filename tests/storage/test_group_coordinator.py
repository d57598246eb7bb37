"""The group coordinator on a real database: changes side by side, and changes whose outcome is lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from sharequeue_coordinator.coordinator import GroupCoordinator

from sharequeue.wire import Client


@asynccontextmanager
async def running(database_url: str) -> AsyncIterator[GroupCoordinator]:
    """A group coordinator that has read its topics. No share coordinator is there to be called."""
    pool = await asyncpg.create_pool(database_url, min_size=1, max_size=8, command_timeout=10)
    client = Client("http://127.0.0.1:1")
    coordinator = GroupCoordinator(
        pool, client, cluster_token="", kafka_defaults=False, max_partitions=100, deletion_retry_ms=10
    )
    try:
        await coordinator.load()
        yield coordinator
    finally:
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

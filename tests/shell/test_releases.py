"""Releasing what a member holds in many share-partitions: other work of the gateway goes on between them."""

import asyncio

from tests.shell.coordinator_wire import CoordinatorWire
from tests.shell.test_load_registry import Parts, run
from tests.shell.test_lock_writes import led_with_a_lock

MANY = 200_000
"""Takes many times as long as a slice."""


def test_a_release_over_many_share_partitions_lets_others_run() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led = await led_with_a_lock(coordinator, gateway)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        running = asyncio.create_task(others())
        outcomes = await gateway.leader.release_member([led] * MANY, "m")
        running.cancel()
        assert len(outcomes) == 1
        assert turns >= 2

    run(work)


def test_a_share_partition_that_is_unloaded_during_a_release_is_left_to_its_next_leader() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led = await led_with_a_lock(coordinator, gateway)
        gateway.leader.unload(led)
        assert await gateway.leader.release_member([led], "m") == []

    run(work)

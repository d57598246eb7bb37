"""Loads under way that are not to go on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sharequeue_gateway.cluster import Cluster
from sharequeue_gateway.leader_epochs import LeaderEpochs
from sharequeue_gateway.led_index import LedIndex
from sharequeue_gateway.loading import Loader
from sharequeue_gateway.loads import Loads
from sharequeue_gateway.metadata import Metadata, Topic

from sharequeue.coordinators import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import CoordinatorNotAvailable
from sharequeue.protocol.messages import Topic as Described
from sharequeue.service import Clock
from tests.core.coordinator_wire import CoordinatorWire

ORDERS = Topic(Described(name="orders", topic_id="id-1", partitions=2, config={"max.message.bytes": "1000"}))


def run(work: Callable[[CoordinatorWire, Loads], Awaitable[None]]) -> None:
    """With a gateway that is alone; neither Redis nor the log nor a share coordinator is asked here."""

    async def main() -> None:
        async with CoordinatorWire().listening() as coordinator:
            client = CoordinatorClient(coordinator.url, "group")
            cluster = Cluster(client, "gateway-0", "http://127.0.0.1:1", cluster_token="")
            epochs = LeaderEpochs(cluster.next_leader_epoch)
            elsewhere: Any = None
            loader = Loader(
                clock=Clock(),
                metadata=Metadata(client, kafka_defaults=False, auto_create_topics=True),
                share_coordinator=elsewhere,
                record_log=elsewhere,
                lock_timers=elsewhere,
                take_from_former=elsewhere,
                epochs=epochs,
            )
            loads = Loads(
                LedIndex(),
                clock=Clock(),
                cluster=cluster,
                epochs=epochs,
                loader=loader,
                max_share_partitions=10,
                on_loaded=lambda led, letters: None,
            )
            await work(coordinator, loads)
            await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("lost", [False, True], ids=["asked", "asked, and not answered"])
def test_a_load_of_a_group_that_is_deleted_asks_for_nothing_more(lost: bool) -> None:
    """Its question would be repeated until it is answered, and begin the group again."""

    async def work(coordinator: CoordinatorWire, loads: Loads) -> None:
        asking = asyncio.create_task(loads.get("g", [(ORDERS, 0), (ORDERS, 1)]))
        answer = await coordinator.asked(apis.INITIALIZE_SHARE_PARTITIONS)
        (load,) = loads._tasks
        if lost:
            answer.set_result(None)
        loads.abandon(lambda key: key.partition == 1)
        assert [type(outcome) for outcome in await asking] == [CoordinatorNotAvailable] * 2
        await asyncio.wait([load])
        assert load.cancelled()
        assert not loads._tasks

    run(work)


def test_what_is_abandoned_before_it_begins_is_told_too() -> None:
    async def work(coordinator: CoordinatorWire, loads: Loads) -> None:
        asking = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        while not loads._tasks:  # noqa: ASYNC110 - the load is a task that has not begun
            await asyncio.sleep(0)
        loads.abandon(lambda key: key.group_id == "g")
        loads.abandon(lambda key: key.group_id == "g")
        assert [type(outcome) for outcome in await asking] == [CoordinatorNotAvailable]

    run(work)


def test_other_groups_go_on() -> None:
    async def work(coordinator: CoordinatorWire, loads: Loads) -> None:
        asking = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        await coordinator.asked(apis.INITIALIZE_SHARE_PARTITIONS)
        (load,) = loads._tasks
        loads.abandon(lambda key: key.group_id == "h")
        await asyncio.sleep(0)
        assert not load.cancelling()
        assert not asking.done()
        load.cancel()
        asking.cancel()

    run(work)


def test_what_is_asked_for_after_it_was_abandoned_is_loaded() -> None:
    async def work(coordinator: CoordinatorWire, loads: Loads) -> None:
        first = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        await coordinator.asked(apis.INITIALIZE_SHARE_PARTITIONS)
        loads.abandon(lambda key: key.group_id == "g")
        second = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        await coordinator.asked(apis.INITIALIZE_SHARE_PARTITIONS)
        await first
        assert not second.done()
        (load,) = (load for load, keys in loads._tasks.items() if keys)
        load.cancel()
        second.cancel()

    run(work)

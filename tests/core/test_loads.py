"""Loads under way when what they load is deleted, or led by others; and what is not known yet."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Generation, Node
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import Metadata, Topic
from sharequeue_gateway.cluster.redis_client import redis_client
from sharequeue_gateway.delivery.acknowledging import Acknowledger
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loader import Loader
from sharequeue_gateway.leader.persister import Persister
from sharequeue_gateway.locks.lock_store import LockTimers
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.share_partition.machine import RestoredLock, SharePartition

from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import ApiError, CoordinatorNotAvailable, InvalidRecordState
from sharequeue.protocol.internal import (
    DescribeTopicsResponse,
    InitializeSharePartitionsResponse,
    PartitionStateResult,
    ShareStateResponse,
    TopicStateResult,
)
from sharequeue.protocol.messages import Acknowledgement
from sharequeue.protocol.messages import Topic as Described
from sharequeue.protocol.types import SharePartitionKey
from tests.core.coordinator_wire import CoordinatorWire


def described(partitions: int) -> Described:
    return Described(name="orders", topic_id="id-1", partitions=partitions, config={"max.message.bytes": "1000"})


ORDERS = Topic(described(2))
KEY = SharePartitionKey("g", "id-1", 0)
ELSEWHERE = Node("gateway-1", "http://127.0.0.1:1")
INITIALIZED = InitializeSharePartitionsResponse(config={}, topics=[])
STATE = PartitionStateResult(partition=0, error_code=0, error_message=None, state_epoch=1, start_offset=0)
NEVER = PartitionStateResult(partition=1, error_code=42, error_message="not initialised")
NEVER_FETCHED = ShareStateResponse(results=[TopicStateResult(topic_id="id-1", partitions=[NEVER])])
READ = ShareStateResponse(results=[TopicStateResult(topic_id="id-1", partitions=[STATE])])


def run(work: Callable[[CoordinatorWire, Leader], Awaitable[None]]) -> None:
    """With a gateway that is alone, and has neither Redis nor a log. Both coordinators are the one."""

    async def main() -> None:
        async with CoordinatorWire().listening() as coordinator:
            client, share_coordinator = CoordinatorClient(coordinator.url, "group"), ShareStateClient(coordinator.url)
            metadata = Metadata(client, kafka_defaults=False, auto_create_topics=True)
            cluster = Cluster(client, "gateway-0", "http://127.0.0.1:1", cluster_token="")
            epochs = LeaderEpochs(cluster.next_leader_epoch)
            redis = redis_client("redis://127.0.0.1:1/0")
            lock_timers = LockTimers(redis, Clock(), "gateway-0", 50)
            nowhere: Any = None
            loader = Loader(
                clock=Clock(),
                metadata=metadata,
                share_coordinator=share_coordinator,
                record_log=nowhere,
                lock_timers=lock_timers,
                take_from_former=Routing(cluster).gateways.take_from_former,
                take_from_others=Routing(cluster).gateways.take_from_others,
                epochs=epochs,
            )
            leader = Leader(
                clock=Clock(),
                record_log=nowhere,
                metadata=metadata,
                cluster=cluster,
                epochs=epochs,
                loader=loader,
                persister=Persister(share_coordinator, deadline_ms=100),
                lock_timers=lock_timers,
                activity=nowhere,
                max_share_partitions=10,
                idle_ms=60_000,
            )
            await work(coordinator, leader)
            await redis.aclose()
            await client.close()
            await share_coordinator.close()

    asyncio.run(main())


@pytest.mark.parametrize("lost", [False, True], ids=["asked", "asked, and not answered"])
def test_a_load_of_a_group_that_is_deleted_asks_for_nothing_more(lost: bool) -> None:
    """Its question would be repeated until it is answered, and begin the group again."""

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        loads = leader.loads
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
    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        loads = leader.loads
        asking = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        while not loads._tasks:  # noqa: ASYNC110 - the load is a task that has not begun
            await asyncio.sleep(0)
        loads.abandon(lambda key: key.group_id == "g")
        loads.abandon(lambda key: key.group_id == "g")
        assert [type(outcome) for outcome in await asking] == [CoordinatorNotAvailable]

    run(work)


def test_other_groups_go_on() -> None:
    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        loads = leader.loads
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
    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        loads = leader.loads
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


def test_a_load_that_has_just_ended_is_not_abandoned() -> None:
    """It is done, but the event loop has not told of that yet."""

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.told(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        answer = await coordinator.asked(apis.READ_STATE)
        loading = leader.loads._loading[KEY]
        loading.add_done_callback(lambda _: leader.unload_group("g", None, end=True))
        answer.set_result(READ)
        (led,) = await asking
        assert faults == []
        assert isinstance(led, LedSharePartition)
        assert led.fenced

    run(work)


def test_a_load_of_what_another_gateway_takes_is_done_again() -> None:
    """That one has heard first that it leads; what was read here may be what was before it led."""

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.told(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        answer = await coordinator.asked(apis.READ_STATE)
        await leader.let_go([KEY])
        answer.set_result(READ)
        (led,) = await asking
        assert isinstance(led, LedSharePartition)
        assert led.fenced
        assert list(leader.all()) == []

    run(work)


@pytest.mark.parametrize("heard", [False, True], ids=["taken", "led elsewhere"])
def test_nobody_waits_where_leadership_moves_during_the_load(heard: bool) -> None:
    """Nothing there would ever wake it."""

    class Client:
        async def until_gone(self) -> None:
            await asyncio.Event().wait()

        def gone(self) -> bool:
            return False

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        nowhere: Any = None
        waiting = WaitingFetch(Client())
        fetcher = Fetcher(leader, nowhere, nowhere, Clock())
        asking = asyncio.create_task(fetcher.delayed.wait(waiting, "g", [(ORDERS, 0)], 60))
        await coordinator.told(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        answer = await coordinator.asked(apis.READ_STATE)
        if heard:
            leader._cluster.generation = Generation(1, (ELSEWHERE,))
            await leader.hand_over(missed=False)
        else:
            await leader.let_go([KEY])
        answer.set_result(READ)
        await asyncio.wait_for(asking, 10)
        waiting.close()

    run(work)


def test_a_load_while_another_gateway_led_is_done_again() -> None:
    """This one leads again when it has loaded: what it read may be what was before the other one."""

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        cluster = leader._cluster
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        answer = await coordinator.asked(apis.INITIALIZE_SHARE_PARTITIONS)
        for number, node in ((1, ELSEWHERE), (2, cluster.me)):
            cluster.generation = Generation(number, (node,))
            await leader.hand_over(missed=False)
        answer.set_result(INITIALIZED)
        await coordinator.told(apis.READ_STATE, READ)
        (led,) = await asking
        assert isinstance(led, LedSharePartition)
        assert led.fenced
        assert list(leader.all()) == []

    run(work)


@pytest.mark.parametrize(
    ("elsewhere", "left_ms", "due"),
    [
        (False, (20_000, 25_000), False),
        (False, (-1_000, 25_000), True),
        (True, (-1_000, 25_000), False),
        (True, (-1_000, -500), True),
    ],
)
def test_locks_are_kept_for_who_leads_now_until_the_last_one_ends(
    elsewhere: bool, left_ms: tuple[int, int], due: bool
) -> None:
    """Who still leads here loads when the first one ends."""

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        now_ms = Clock().now_ms()
        loaded = SharePartition.load(
            ShareGroupConfig(),
            state_epoch=1,
            leader_epoch=0,
            start_offset=0,
            state_batches=[],
            locks=[RestoredLock(offset, offset, "m", 1, now_ms + left_ms[offset]) for offset in (0, 1)],
            now_ms=now_ms - 3_000,
        )
        led = LedSharePartition(KEY, "orders", loaded.share_partition, now_ms)
        leader.loads.keep_locks(led)
        if elsewhere:
            leader._cluster.generation = Generation(1, (ELSEWHERE,))
        assert leader.loads.given_up_and_due() == ([KEY] if due else [])
        assert leader.loads.tell_locks([KEY]) == [led]

    run(work)


def test_a_load_while_others_joined_is_led() -> None:
    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        answer = await coordinator.asked(apis.INITIALIZE_SHARE_PARTITIONS)
        leader._cluster.generation = Generation(1, (leader._cluster.me,))
        await leader.hand_over(missed=False)
        answer.set_result(INITIALIZED)
        await coordinator.told(apis.READ_STATE, READ)
        assert await asking == list(leader.all())

    run(work)


def test_a_partition_that_somebody_acknowledges_is_asked_for_before_it_is_denied() -> None:
    """Another gateway, which has heard of it, handed its records out."""

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        metadata = leader._metadata
        metadata._learn(described(1))
        acknowledgement = Acknowledgement(topic="orders", partition=1, first_offset=0, last_offset=0, type="accept")
        acknowledging = asyncio.create_task(
            Acknowledger(leader, metadata, Clock()).acknowledge("g", "m", [acknowledgement], atomic=False)
        )
        await coordinator.told(apis.DESCRIBE_TOPICS, DescribeTopicsResponse(topics=[described(2)]))
        await coordinator.told(apis.READ_STATE, NEVER_FETCHED)
        (result,) = await acknowledging
        assert result.kafka_code == InvalidRecordState.error.kafka_code

    run(work)


def test_who_led_at_the_own_address_is_not_asked_to_let_go() -> None:
    """It is gone, and this gateway, which has another name, would be asked itself in the middle of a load."""

    async def work(_: CoordinatorWire, leader: Leader) -> None:
        cluster = leader._cluster
        for url, asked in (cluster.me.url, False), ("http://127.0.0.1:2", True):
            former = Node("gateway-1", url)
            cluster._note_former(Generation(1, (former,)))
            assert (cluster.former_leader_of(KEY) == former) is asked

    run(work)


@pytest.mark.parametrize(
    ("topic_id", "partition"), [("id-2", 0), ("id-1", 1), (None, 0)], ids=["topic", "partition", "no topic"]
)
def test_the_state_of_another_share_partition_fails_the_load(topic_id: str | None, partition: int) -> None:
    """Its start offset would skip records, or deliver finished ones again. The next load reads the state again."""

    async def work(coordinator: CoordinatorWire, leader: Leader) -> None:
        other = structs.replace(STATE, partition=partition)
        mixed_up = ShareStateResponse(results=[TopicStateResult(topic_id=topic_id, partitions=[other])])
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.told(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        await coordinator.told(apis.READ_STATE, mixed_up)
        (refused,) = await asking
        assert isinstance(refused, ApiError)
        assert refused.error.kafka_code == -1
        assert list(leader.all()) == []
        again = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.told(apis.READ_STATE, READ)
        assert await again == list(leader.all())

    run(work)

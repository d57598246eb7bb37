"""Loads of share-partitions that are deleted or led by another gateway during the load, and unknown partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest
from msgspec import structs
from redis.asyncio import Redis
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Generation, Node
from sharequeue_gateway.cluster.leader_epochs import LeaderEpochs
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.cluster.redis_client import RedisKeys, redis_client
from sharequeue_gateway.delivery.acknowledging import Acknowledger
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.waiting import WaitingFetches
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue
from sharequeue_gateway.leader.kept_locks import KeptLocks
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_index import LedIndex
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.loading.hand_over import HandOver
from sharequeue_gateway.leader.loading.load_registry import Loads
from sharequeue_gateway.leader.loading.loader import Loader
from sharequeue_gateway.leader.lock_entries import LockRecorder
from sharequeue_gateway.leader.persister import Persister
from sharequeue_gateway.locks.lock_store import LockStore
from sharequeue_gateway.record_log.removing.readers import Readers
from sharequeue_gateway.routing.routing import Routing

from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import KAFKA_CODES, InvalidRecordState
from sharequeue.protocol.messages.cluster import (
    DescribeTopicsResponse,
    Gateway,
    GatewayGeneration,
    InitializeSharePartitionsResponse,
    RegisterGatewayResponse,
)
from sharequeue.protocol.messages.leaders import LeaderAcknowledgeRequest
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.messages.share_state import PartitionStateResult, SharePartitionResult, ShareStateResponse
from sharequeue.protocol.messages.topics import Topic as Described
from sharequeue.protocol.types import RestoredLock, SharePartitionKey
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable
from tests.core.restored import load
from tests.shell.coordinator_wire import CoordinatorWire


def described(partitions: int) -> Described:
    return Described(name="orders", topic_id="id-1", partitions=partitions, config={"max.message.bytes": "1000"})


ORDERS = KnownTopic(described(2))
KEY = SharePartitionKey("g", "id-1", 0)
ELSEWHERE = Node("gateway-1", "http://127.0.0.1:1")
INITIALIZED = InitializeSharePartitionsResponse(config={})
STATE = PartitionStateResult(partition=0, error_code=0, error_message=None, state_epoch=1, start_offset=0)
NEVER = PartitionStateResult(partition=1, error_code=42, error_message="not initialised")
NEVER_FETCHED = ShareStateResponse(results=[SharePartitionResult("g", "id-1", NEVER)])
READ = ShareStateResponse(results=[SharePartitionResult("g", "id-1", STATE)])


class Parts(NamedTuple):
    """The leader of a gateway that has neither Redis nor a log, with its collaborators."""

    leader: Leader
    loads: Loads
    kept_locks: KeptLocks
    hand_over: HandOver
    metadata: Metadata
    cluster: Cluster
    lock_store: LockStore


def run(work: Callable[[CoordinatorWire, Parts], Awaitable[None]]) -> None:
    """Run a test with a gateway that is alone. One server is both its coordinators."""

    async def main() -> None:
        async with CoordinatorWire().listening() as coordinator:
            client, share_coordinator = CoordinatorClient(coordinator.url, "group"), ShareStateClient(coordinator.url)
            redis = redis_client("redis://127.0.0.1:1/0")
            await work(coordinator, parts(client, share_coordinator, redis))
            await redis.aclose()
            await client.close()
            await share_coordinator.close()

    asyncio.run(main())


def parts(client: CoordinatorClient, share_coordinator: ShareStateClient, redis: Redis) -> Parts:
    metadata = Metadata(client, kafka_defaults=False, auto_create_topics=True)
    cluster = Cluster(client, "gateway-0", "http://127.0.0.1:1", cluster_token="token")
    epochs = LeaderEpochs(cluster.next_leader_epoch)
    lock_store = LockStore(redis, "gateway-0", 50, RedisKeys())
    nowhere: Any = None

    async def known(_: object, statement: str, group_id: str, *places: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Every group is among the readers of the log."""
        topic_ids, partitions = places
        hold_ms = ShareGroupConfig().hold_ms
        return [
            (topic_id, partition, 1, 0, hold_ms, False, 0)
            for topic_id, partition in zip(topic_ids, partitions, strict=True)
        ]

    loader = Loader(
        clock=Clock(),
        metadata=metadata,
        share_coordinator=share_coordinator,
        record_log=nowhere,
        readers=Readers(known),
        lock_timers=lock_store,
        take_from_former=Routing(cluster).gateways.take_from_former,
        take_from_others=Routing(cluster).gateways.take_from_others,
        epochs=epochs,
    )
    dead_letters = DeadLetterQueue()
    loads = Loads(
        LedIndex(), loader, dead_letters, clock=Clock(), cluster=cluster, epochs=epochs, max_share_partitions=10
    )
    locks = LockRecorder(lock_store, loads, cluster, Clock())
    persister = Persister(share_coordinator, deadline_ms=100)
    leader = Leader(loads, locks, persister, dead_letters, nowhere, Clock())
    hand_over = HandOver(loads, cluster, epochs, lock_store, lambda: None)
    return Parts(leader, loads, loads.kept_locks, hand_over, metadata, cluster, lock_store)


@pytest.mark.parametrize("lost", [False, True], ids=["asked", "asked, and not answered"])
def test_a_load_of_a_deleted_group_is_cancelled(lost: bool) -> None:
    """Otherwise the load would repeat its call until it is answered, and so create the group again."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        loads = gateway.loads
        asking = asyncio.create_task(loads.get("g", [(ORDERS, 0), (ORDERS, 1)]))
        answer = await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        (load,) = loads._tasks
        if lost:
            answer.set_result(None)
        loads.cancel(lambda key: key.partition == 1)
        assert [type(outcome) for outcome in await asking] == [CoordinatorNotAvailable] * 2
        await asyncio.wait([load])
        assert load.cancelled()
        assert not loads._tasks

    run(work)


def test_a_load_cancelled_before_it_begins_is_answered() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        loads = gateway.loads
        asking = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        while not loads._tasks:  # noqa: ASYNC110 - the load is a task that has not begun
            await asyncio.sleep(0)
        loads.cancel(lambda key: key.group_id == "g")
        loads.cancel(lambda key: key.group_id == "g")
        assert [type(outcome) for outcome in await asking] == [CoordinatorNotAvailable]

    run(work)


def test_cancelling_the_loads_of_one_group_keeps_those_of_others() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        loads = gateway.loads
        asking = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        (load,) = loads._tasks
        loads.cancel(lambda key: key.group_id == "h")
        await asyncio.sleep(0)
        assert not load.cancelling()
        assert not asking.done()
        load.cancel()
        asking.cancel()

    run(work)


def test_a_load_asked_for_after_a_cancelled_one_begins() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        loads = gateway.loads
        first = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        loads.cancel(lambda key: key.group_id == "g")
        second = asyncio.create_task(loads.get("g", [(ORDERS, 0)]))
        await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        await first
        assert not second.done()
        (load,) = (load.task for load in loads._loading.values())
        load.cancel()
        second.cancel()

    run(work)


def test_a_load_that_has_just_ended_is_not_cancelled() -> None:
    """The load is done, but its callbacks have not run yet."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        faults: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        answer = await coordinator.expect(apis.READ_STATE)
        loading = gateway.loads._loading[KEY].outcome
        loading.add_done_callback(lambda _: leader.group_reset("g", None, end=True))
        answer.set_result(READ)
        (led,) = await asking
        assert faults == []
        assert isinstance(led, LedSharePartition)
        assert led.fenced

    run(work)


def test_a_load_is_fenced_when_another_gateway_takes_its_share_partition() -> None:
    """The other gateway heard first that it leads; the state read here may be older than its first write."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        answer = await coordinator.expect(apis.READ_STATE)
        await gateway.hand_over.yield_to_next([KEY])
        answer.set_result(READ)
        (led,) = await asking
        assert isinstance(led, LedSharePartition)
        assert led.fenced
        assert list(leader.led) == []

    run(work)


@pytest.mark.parametrize("heard", [False, True], ids=["taken", "led elsewhere"])
def test_a_fetch_does_not_wait_when_leadership_moves_during_its_load(heard: bool) -> None:
    """Otherwise nothing would ever wake it."""

    class Client:
        gone = False

        def when_gone(self, callback: Callable[[], None] | None) -> None: ...

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        nowhere: Any = None
        waiting = WaitingFetches().new(Client())
        fetcher = Fetcher(leader, nowhere, nowhere, gateway.cluster, Clock(), WaitingFetches())
        asking = asyncio.create_task(fetcher.delayed.wait(waiting, "g", [(ORDERS, 0)], 3600))
        await coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        answer = await coordinator.expect(apis.READ_STATE)
        if heard:
            gateway.cluster.follow(Generation(1, (ELSEWHERE,)))
            await gateway.hand_over.generation_changed(missed=False)
        else:
            await gateway.hand_over.yield_to_next([KEY])
        answer.set_result(READ)
        await asyncio.wait_for(asking, 60)
        waiting.close()

    run(work)


def test_a_load_is_fenced_when_another_gateway_led_during_it() -> None:
    """This gateway leads again when the load ends: the state it read may be older than the other's first write."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader, cluster = gateway.leader, gateway.cluster
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        answer = await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        for number, node in ((1, ELSEWHERE), (2, cluster.me)):
            cluster.follow(Generation(number, (node,)))
            await gateway.hand_over.generation_changed(missed=False)
        answer.set_result(INITIALIZED)
        await coordinator.answer(apis.READ_STATE, READ)
        (led,) = await asking
        assert isinstance(led, LedSharePartition)
        assert led.fenced
        assert list(leader.led) == []

    run(work)


@pytest.mark.parametrize(
    ("elsewhere", "left_ms", "kept"),
    [(False, (-1_000, -500), True), (True, (-1_000, 25_000), True), (True, (-1_000, -500), False)],
)
def test_locks_are_kept_for_the_new_leader_until_the_last_one_ends(
    elsewhere: bool, left_ms: tuple[int, int], kept: bool
) -> None:
    """A gateway that still leads keeps them for its next load."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        now_ms = Clock().now_ms()
        loaded = load(
            ShareGroupConfig(),
            state_epoch=1,
            leader_epoch=0,
            start_offset=0,
            state_batches=[],
            locks=[RestoredLock(offset, offset, "m", 1, now_ms + left_ms[offset], 30_000) for offset in (0, 1)],
            now_ms=now_ms - 3_000,
        )
        led = LedSharePartition(KEY, loaded.share_partition, "orders", now_ms)
        gateway.kept_locks.keep(led)
        if elsewhere:
            gateway.cluster.follow(Generation(1, (ELSEWHERE,)))
        gateway.kept_locks.drop_ended()
        assert gateway.kept_locks.give([KEY]) == ([led] if kept else [])

    run(work)


def test_a_load_survives_a_generation_that_keeps_its_leader() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        answer = await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)
        gateway.cluster.follow(Generation(1, (gateway.cluster.me,)))
        await gateway.hand_over.generation_changed(missed=False)
        answer.set_result(INITIALIZED)
        await coordinator.answer(apis.READ_STATE, READ)
        assert await asking == list(leader.led)

    run(work)


def test_an_unknown_partition_of_an_acknowledgement_is_looked_up() -> None:
    """Another gateway, which knows the partition already, delivered its records."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader, metadata = gateway.leader, gateway.metadata
        known = DescribeTopicsResponse(topics=[described(1)])
        await asyncio.gather(metadata.topic("orders"), coordinator.answer(apis.DESCRIBE_TOPICS, known))
        acknowledgement = Acknowledgement(topic="orders", partition=1, first_offset=0, last_offset=0, type="accept")
        request = LeaderAcknowledgeRequest(member_id="m", acknowledgements=[acknowledgement])
        acknowledging = asyncio.create_task(Acknowledger(leader, metadata, Clock()).acknowledge("g", request))
        await coordinator.answer(apis.DESCRIBE_TOPICS, DescribeTopicsResponse(topics=[described(2)]))
        await coordinator.answer(apis.READ_STATE, NEVER_FETCHED)
        (result,) = await acknowledging
        assert result.kafka_code == KAFKA_CODES[InvalidRecordState.error]

    run(work)


def test_a_former_leader_at_our_own_address_is_not_called() -> None:
    """The former gateway is gone; this one, under another name, would call itself in the middle of a load."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        cluster = gateway.cluster
        for url, asked in (cluster.me.url, False), ("http://127.0.0.1:2", True):
            others = GatewayGeneration(number=1, previous=0, gateways=[Gateway(node_id="gateway-1", url=url)])
            registered = RegisterGatewayResponse(leader_epoch=1, lease_ms=1000, generation=others)
            await asyncio.gather(cluster.register(), coordinator.answer(apis.REGISTER_GATEWAY, registered))
            assert (cluster.former_leader_of(KEY) == Node("gateway-1", url)) is asked

    run(work)


@pytest.mark.parametrize(
    ("topic_id", "partition"), [("id-2", 0), ("id-1", 1), ("", 0)], ids=["topic", "partition", "no topic"]
)
def test_the_state_of_another_share_partition_fails_the_load(topic_id: str, partition: int) -> None:
    """Its start offset would skip records, or deliver finished ones again. The next load reads the state again."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        other = structs.replace(STATE, partition=partition)
        mixed_up = ShareStateResponse(results=[SharePartitionResult("g", topic_id, other)])
        asking = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
        await coordinator.answer(apis.READ_STATE, mixed_up)
        (refused,) = await asking
        assert isinstance(refused, ApiError)
        assert KAFKA_CODES[refused.error] == -1
        assert list(leader.led) == []
        again = asyncio.create_task(leader.get("g", [(ORDERS, 0)]))
        await coordinator.answer(apis.READ_STATE, READ)
        assert await again == list(leader.led)

    run(work)

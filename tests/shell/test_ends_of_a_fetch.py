"""What a fetch leaves behind that ends early: it acquires nothing more, and no lock that its answer does not name."""

import asyncio
import time
from collections.abc import Sequence
from copy import copy
from typing import Any, cast

import pytest
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.delivery.fetcher import Fetcher
from sharequeue_gateway.delivery.held_records import HeldRecords
from sharequeue_gateway.delivery.repeated_fetches import RepeatedFetches
from sharequeue_gateway.delivery.waiting import Event, Life, WaitingFetches
from sharequeue_gateway.leader.led_index import Sought, WholeTopics
from sharequeue_gateway.leader.reports.activity import Activity
from sharequeue_gateway.record_log.postgres import PostgresRecordLog
from sharequeue_gateway.record_log.reading.cache import BatchCache
from sharequeue_gateway.record_log.record_batch import RecordBatch

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.errors import StorageError
from sharequeue.protocol.messages.leaders import Asked, FetchLimits
from sharequeue.protocol.types import AcquireMode, TopicIdPartition
from tests.shell.coordinator_wire import CoordinatorWire
from tests.shell.test_load_registry import KEY, ORDERS, Parts, run
from tests.shell.test_lock_writes import led_with_a_lock, locks_left
from tests.shell.test_work_for_a_fetch import Client

PLACE = ("id-1", 0)
NO_DATABASE: Any = None


def fetcher_of(gateway: Parts, log: BatchCache) -> Fetcher:
    """A fetcher over a log that is all in memory. Member m holds its only record."""
    log.set_ends(PLACE, 0, 1)
    in_memory = cast(PostgresRecordLog, log)
    gateway.leader.activity = Activity(
        NO_DATABASE, Clock(), gateway.metadata.name_of, flush_ms=60_000, retention_ms=60_000
    )
    repeated = RepeatedFetches(HeldRecords(gateway.leader, gateway.metadata, in_memory, Clock()), gateway.lock_store)
    return Fetcher(gateway.leader, in_memory, repeated, gateway.cluster, Clock(), WaitingFetches())


def append(log: BatchCache) -> None:
    log.add(PLACE, RecordBatch.encode(1, [b',"timestamp_ms":1,"key":null,"value":1}'], 1), 2)


def asked(fetch_id: str | None = None) -> Asked:
    now_ms = Clock().now_ms()
    limits = FetchLimits(10, 1 << 20, 1, 500, AcquireMode.RECORD_LIMIT, now_ms + 60_000)
    return Asked("g", "n", limits, now_ms, fetch_id=fetch_id)


OVER = (Event.GATEWAY_STOPS, Event.REPEATED, Event.CLIENT_HANGS_UP)


@pytest.mark.parametrize("event", OVER, ids=lambda event: event.name.lower())
def test_a_waiting_fetch_that_ends_acquires_nothing(event: Event) -> None:
    """Records that come at the same moment are for another fetch: none of their deliveries is spent on this one."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led, log, waiting = (
            await led_with_a_lock(coordinator, gateway),
            BatchCache(1 << 20),
            WaitingFetches().new(Client()),
        )
        fetcher = fetcher_of(gateway, log)
        fetching = asyncio.create_task(fetcher.fetch(waiting, asked(), [(ORDERS, 0)]))
        while not fetcher.fetches.waiting:  # noqa: ASYNC110 - the fetch is a task that has not begun
            await asyncio.sleep(0)
        waiting.on(event)
        append(log)
        led.wake()
        async with asyncio.timeout(60):
            assert await fetching == ([], [])
        assert led.machine.held_by("n", 0, 9) == []
        waiting.close()

    run(work)


@pytest.mark.parametrize("fetch_id", [None, "f-1"], ids=["no fetch_id", "fetch_id"])
def test_a_share_partition_is_not_handed_over_with_a_lock_that_no_answer_names(fetch_id: str | None) -> None:
    """It is let go as soon as the fetch has acquired. Redis is away, so the next leader gets the locks from memory."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led, log, waiting = (
            await led_with_a_lock(coordinator, gateway),
            BatchCache(1 << 20),
            WaitingFetches().new(Client()),
        )
        fetcher = fetcher_of(gateway, log)
        append(log)
        gateway.lock_store.degraded = True
        gateway.cluster._keep_lease(time.monotonic(), 60_000)
        fetching = asyncio.create_task(fetcher.fetch(waiting, asked(fetch_id), [(ORDERS, 0)]))
        while not led.machine.held_by("n", 0, 9):  # noqa: ASYNC110 - the event loop runs step by step
            await asyncio.sleep(0)
        await gateway.hand_over.yield_to_next([KEY])
        acquired, _ = await fetching
        answered = [one.first_offset for item in acquired for one in item.ranges]
        assert [lock.first_offset for lock in locks_left(gateway) if lock.member_id == "n"] == answered
        waiting.close()

    run(work)


def test_a_repeat_that_waits_for_the_earlier_fetch_ends_with_its_group() -> None:
    """Otherwise it would load the share-partition after the deletion, and so create the group again."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        fetcher = fetcher_of(gateway, BatchCache(1 << 20))
        earlier, repeat = WaitingFetches().new(Client()), WaitingFetches().new(Client())
        gateway.cluster._keep_lease(time.monotonic(), 60_000)
        first = asyncio.create_task(fetcher.fetch(earlier, asked("f-1"), [(ORDERS, 0)]))
        await coordinator.expect(apis.INITIALIZE_SHARE_PARTITIONS)  # which is not answered
        second = asyncio.create_task(fetcher.fetch(repeat, asked("f-1"), [(ORDERS, 0)]))
        async with asyncio.timeout(60):
            while earlier.life is not Life.REPLACED:  # noqa: ASYNC110 - the event loop runs step by step
                await asyncio.sleep(0)
        fetcher.fetches.end("g")
        gateway.leader.group_reset("g", None, end=True)
        async with asyncio.timeout(60):
            assert (await first, await second) == (([], []), ([], []))
        assert coordinator._questions.empty(), "nothing is loaded again"
        for waiting in (earlier, repeat):
            waiting.close()

    run(work)


def whole_topic() -> WholeTopics:
    """The topic, with its first partition alone."""
    topic = copy(ORDERS)
    topic.partitions = 1
    return WholeTopics([topic], 1)


def test_a_fetch_of_a_whole_topic_that_is_woken_often_does_not_grow() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led, waiting = await led_with_a_lock(coordinator, gateway), WaitingFetches().new(Client())
        fetcher = fetcher_of(gateway, BatchCache(1 << 20))
        fetching = asyncio.create_task(fetcher.fetch(waiting, asked(), whole_topic()))
        kept = []
        async with asyncio.timeout(60):
            for _ in range(5):
                while waiting.woken or waiting not in fetcher.fetches.waiting:  # noqa: ASYNC110 - until it waits again
                    await asyncio.sleep(0)
                sought = cast(Sought, fetcher.fetches.waiting[waiting])
                kept.append((len(sought.topics), len(sought.looked_at)))
                led.wake()
            waiting.on(Event.GATEWAY_STOPS)
            await fetching
        waiting.close()
        assert kept == [(1, kept[0][1])] * 5

    run(work)


class Ends(BatchCache):
    """A log whose ends are asked for. `asked`: of how many, by each question. `lost`: nobody knows theirs."""

    def __init__(self, *lost: TopicIdPartition) -> None:
        super().__init__(1 << 20)
        self.asked: list[int] = []
        self.lost = lost

    def known_log_start(self, place: TopicIdPartition) -> int:
        known = self.partition(place)
        return -1 if known is None else known.log_start_offset

    async def learn_ends(self, places: Sequence[TopicIdPartition]) -> None:
        self.asked.append(len(places))
        for place in places:
            if place not in self.lost:
                self.set_ends(place, 0, 1)
        if self.lost:
            raise StorageError("a partition has no leader")


def test_log_ends_of_a_few_share_partitions_are_learned_together_once_the_first_is_unknown() -> None:
    """Partitions that nobody has read lately come in turn: else each of them has a question of its own."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led, log = await led_with_a_lock(coordinator, gateway), Ends()
        fetcher = fetcher_of(gateway, log)
        log.drop(PLACE)
        for leds in ([led], [led, led], [led, led]):
            assert await fetcher._takeable(leds, [], Clock().now_ms()) == leds
        assert log.asked == [2]

    run(work)


def test_a_log_end_that_cannot_be_learned_is_the_fault_of_its_share_partition_alone() -> None:
    """Otherwise one partition of Kafka without a leader ends the delivery of all others."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led, faults = await led_with_a_lock(coordinator, gateway), list[PartitionFault]()
        lost = copy(led)
        lost.key = led.key._replace(partition=1)
        fetcher = fetcher_of(gateway, log := Ends(("id-1", 1)))
        log.drop(PLACE)
        assert await fetcher._takeable([lost, led], faults, Clock().now_ms()) == [led]
        assert [(fault.partition, fault.error.code) for fault in faults] == [(1, "KAFKA_STORAGE_ERROR")]

    run(work)

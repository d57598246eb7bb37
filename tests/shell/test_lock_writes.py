"""Locks that a fetch may get, by the events during their write to Redis."""

import asyncio

import pytest
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.rounds import all_locks
from sharequeue_gateway.locks.lock_store import Found
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.acquisition import AcquiredRange, Acquisition

from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.protocol.types import AcquireMode, RestoredLock
from tests.shell.coordinator_wire import CoordinatorWire
from tests.shell.test_load_registry import INITIALIZED, KEY, ORDERS, READ, Parts, run

ACQUIRED = [AcquiredRange(0, 0, 1, 0, 0)]


async def led_with_a_lock(coordinator: CoordinatorWire, gateway: Parts) -> LedSharePartition:
    """A loaded share-partition where member m holds offset 0. Redis counts as reachable, and answers nothing."""
    loading = asyncio.create_task(gateway.leader.get("g", [(ORDERS, 0)]))
    await coordinator.answer(apis.INITIALIZE_SHARE_PARTITIONS, INITIALIZED)
    await coordinator.answer(apis.READ_STATE, READ)
    (led,) = await loading
    assert isinstance(led, LedSharePartition)
    gateway.lock_store.degraded = False
    assert [(acquired.first_offset, acquired.last_offset) for acquired in acquire(led, "m", 0, 1)] == [(0, 0)]
    return led


def acquire(led: LedSharePartition, member_id: str, offset: int, count: int) -> list[AcquiredRange]:
    """Acquire records for a member. Returns: their ranges."""
    read = [RecordBatch.encode(offset, [b',"timestamp_ms":1,"key":null,"value":1}'] * count, 1)]
    acquiring = Acquisition(led.machine, member_id, AcquireMode.RECORD_LIMIT, 500, Clock().now_ms())
    assert acquiring.acquire(read, fetch_offset=offset, max_records=count)
    return acquiring.acquired


@pytest.mark.parametrize(
    ("event", "written", "recorded"),
    [
        pytest.param("", True, True, id="nothing happens"),
        pytest.param("", False, False, id="Redis knows a higher leader epoch"),
        pytest.param("let go", True, True, id="let go: the next leader finds them"),
        pytest.param("let go", False, False, id="let go, and Redis knows a higher leader epoch"),
        pytest.param("let go, Redis away", True, False, id="let go, and Redis may have missed them"),
        pytest.param("reset", True, False, id="the group is reset"),
        pytest.param("Redis away", True, False, id="neither Redis nor the lease keeps others out"),
    ],
)
def test_a_fetch_gets_only_locks_that_the_next_leader_will_find(event: str, written: bool, recorded: bool) -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        led = await led_with_a_lock(coordinator, gateway)
        recording = asyncio.create_task(leader.locks.record(led, "m", ACQUIRED))
        await asyncio.sleep(0)
        (write,) = gateway.lock_store._gathered
        letting_go = None
        if event.startswith("let go"):
            letting_go = asyncio.create_task(gateway.hand_over.yield_to_next([KEY]))
            await asyncio.sleep(0)
            assert led.fenced
        if event == "reset":
            leader.group_reset("g", None, end=True)
        gateway.lock_store.degraded = event.endswith("Redis away")
        write.done.set_result(written)
        assert await recording is recorded
        assert led.writes == 0
        if letting_go is not None:
            await letting_go

    run(work)


@pytest.mark.parametrize("kept", [False, True])
def test_all_locks_of_one_that_was_unloaded_in_a_pause_are_written_while_they_are_kept(kept: bool) -> None:
    """It may be loaded again with the same leader epoch: its old locks must not replace those of the new load."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led = await led_with_a_lock(coordinator, gateway)
        leader, kept_locks = gateway.leader, gateway.kept_locks
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(leader, "led", [led, led])
            writes = all_locks(leader, kept_locks)
            assert next(writes).locks
            leader.unload(led)
            if kept:
                kept_locks.keep(led)
            assert len(list(writes)) == kept

    run(work)


def test_the_entries_of_a_former_leader_count_until_a_write_of_all_locks() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        async def load(*_: object) -> list[Found]:
            return [Found([], 9)]

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(gateway.lock_store, "load", load)
            led = await led_with_a_lock(coordinator, gateway)
        assert led.lock_entries == 9
        led.all_locks()
        assert led.lock_entries == 1

    run(work)


def test_letting_go_waits_for_lock_writes_in_progress() -> None:
    """Otherwise the next leader reads Redis before they are there."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        led = await led_with_a_lock(coordinator, gateway)
        recording = asyncio.create_task(leader.locks.record(led, "m", ACQUIRED))
        await asyncio.sleep(0)
        letting_go = asyncio.create_task(gateway.hand_over.yield_to_next([KEY]))
        await asyncio.wait([letting_go], timeout=0.05)
        assert not letting_go.done()
        gateway.lock_store._gathered[0].done.set_result(True)
        assert await recording
        await letting_go

    run(work)


def locks_left(gateway: Parts) -> list[RestoredLock]:
    """The locks that the next leader gets."""
    return [lock for led in gateway.kept_locks.give([KEY]) for lock in led.machine.locks() if lock.member_id]


@pytest.mark.parametrize("how", ["let go", "unloaded: the outcome of a write is not known"])
def test_a_lock_of_a_fetch_that_still_reads_another_partition_is_not_handed_over(how: str) -> None:
    """The answer of that fetch will not have it, so nobody would settle it."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        led = await led_with_a_lock(coordinator, gateway)
        ranges = acquire(led, "n", 1, 2)
        led.note_unanswered("n", ranges, Clock().now_ms())
        if how == "let go":
            await gateway.hand_over.yield_to_next([KEY])
        else:
            leader.unload(led)
            gateway.kept_locks.keep(led)
        assert [(lock.first_offset, lock.last_offset, lock.member_id) for lock in locks_left(gateway)] == [(0, 0, "m")]
        assert not await leader.locks.record(led, "n", ranges)

    run(work)


def test_a_lock_withheld_from_its_fetch_is_not_handed_over() -> None:
    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        leader = gateway.leader
        led = await led_with_a_lock(coordinator, gateway)
        recording = asyncio.create_task(leader.locks.record(led, "m", ACQUIRED))
        await asyncio.sleep(0)
        letting_go = asyncio.create_task(gateway.hand_over.yield_to_next([KEY]))
        await asyncio.sleep(0)
        gateway.lock_store.degraded = True
        gateway.lock_store._gathered[0].done.set_result(True)
        assert not await recording
        await letting_go
        assert locks_left(gateway) == []

    run(work)


def test_entries_of_locks_whose_end_is_durable_leave_redis_without_a_fetch() -> None:
    """The last fetch of a group took thousands of single records; what ended their locks is durable by now."""

    async def work(coordinator: CoordinatorWire, gateway: Parts) -> None:
        led = await led_with_a_lock(coordinator, gateway)
        led.lock_entries = 3000
        gateway.leader.locks.tidy(led)
        (waiting,) = gateway.lock_store._gathered
        gateway.lock_store._gathered.clear()
        assert (waiting.write.whole, [lock[:2] for lock in waiting.write.locks]) == (True, [(0, 0)]), "it is held"
        gateway.leader.locks.tidy(led)
        assert not gateway.lock_store._gathered, "a few may stay"

    run(work)

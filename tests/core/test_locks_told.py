"""Which locks a client learns of, by what happens while they are written to Redis."""

import asyncio
import time

import pytest
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.lock_entries import Recorded
from sharequeue_gateway.record_log.log import RecordBatch
from sharequeue_gateway.share_partition.acquisition import Acquisition
from sharequeue_gateway.share_partition.machine import AcquiredRange, RestoredLock, SharePartition

from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.types import AcquireMode
from tests.core.coordinator_wire import CoordinatorWire
from tests.core.test_loads import KEY, run

ACQUIRED = [AcquiredRange(0, 0, 1, 0)]


def led_with_a_lock(leader: Leader) -> LedSharePartition:
    now_ms = int(time.time() * 1000)
    loaded = SharePartition.load(
        ShareGroupConfig(),
        state_epoch=1,
        leader_epoch=0,
        start_offset=0,
        state_batches=[],
        locks=[RestoredLock(0, 0, "m", 1, now_ms + 20_000)],
        now_ms=now_ms,
    )
    led = LedSharePartition(KEY, "orders", loaded.share_partition, now_ms)
    leader._led.add(led)
    return led


@pytest.mark.parametrize(
    ("meanwhile", "written", "recorded"),
    [
        pytest.param("", True, Recorded.RECORDED, id="nothing happens"),
        pytest.param("", False, Recorded.LED_ELSEWHERE, id="Redis knows a higher leader epoch"),
        pytest.param("let go", True, Recorded.RECORDED, id="let go: the next leader finds them"),
        pytest.param("let go", False, Recorded.LED_ELSEWHERE, id="let go, and Redis knows a higher leader epoch"),
        pytest.param("let go, Redis away", True, Recorded.LED_ELSEWHERE, id="let go, and Redis may have missed them"),
        pytest.param("reset", True, Recorded.LED_ELSEWHERE, id="the group is reset"),
        pytest.param("Redis away", True, Recorded.UNCERTAIN, id="neither Redis nor the lease keeps others out"),
    ],
)
def test_a_client_learns_of_locks_that_the_next_leader_finds(meanwhile: str, written: bool, recorded: Recorded) -> None:
    async def work(_: CoordinatorWire, leader: Leader) -> None:
        led = led_with_a_lock(leader)
        recording = asyncio.create_task(leader.locks.record(led, "m", ACQUIRED))
        await asyncio.sleep(0)
        (write,) = leader._lock_timers._gathered
        letting_go = None
        if meanwhile.startswith("let go"):
            letting_go = asyncio.create_task(leader.let_go([KEY]))
            await asyncio.sleep(0)
            assert led.fenced
        if meanwhile == "reset":
            leader.unload_group("g", None, end=True)
        leader._lock_timers.degraded = meanwhile.endswith("Redis away")
        write.done.set_result(written)
        assert await recording is recorded
        assert led.writes == 0
        if letting_go is not None:
            await letting_go

    run(work)


def test_whoever_lets_go_waits_for_locks_under_way() -> None:
    """Else the next leader reads Redis before they are there."""

    async def work(_: CoordinatorWire, leader: Leader) -> None:
        led = led_with_a_lock(leader)
        recording = asyncio.create_task(leader.locks.record(led, "m", ACQUIRED))
        await asyncio.sleep(0)
        letting_go = asyncio.create_task(leader.let_go([KEY]))
        await asyncio.wait([letting_go], timeout=0.05)
        assert not letting_go.done()
        leader._lock_timers._gathered[0].done.set_result(True)
        assert await recording is Recorded.RECORDED
        await letting_go

    run(work)


def locks_left(leader: Leader) -> list[RestoredLock]:
    """What whoever leads next is told of."""
    return [lock for led in leader.loads.tell_locks([KEY]) for lock in led.machine.locks() if lock.member_id]


@pytest.mark.parametrize("how", ["let go", "unloaded: the outcome of a write is not known"])
def test_a_lock_of_a_fetch_that_still_reads_another_partition_is_not_handed_over(how: str) -> None:
    """That fetch is not answered with it, so that nobody would settle it."""

    async def work(_: CoordinatorWire, leader: Leader) -> None:
        led = led_with_a_lock(leader)
        now_ms = int(time.time() * 1000)
        read = [RecordBatch.encode(1, [b',"timestamp_ms":1,"key":null,"value":1}'] * 2, 1)]
        acquiring = Acquisition(led.machine, "n", AcquireMode.RECORD_LIMIT, 500, now_ms)
        assert acquiring.acquire(read, fetch_offset=1, max_records=2)
        ranges = acquiring.acquired
        led.note_unanswered("n", ranges, now_ms)
        if how == "let go":
            await leader.let_go([KEY])
        else:
            leader.unload(led)
            leader.loads.give_up(led)
        assert [(lock.first_offset, lock.last_offset, lock.member_id) for lock in locks_left(leader)] == [(0, 0, "m")]
        assert await leader.locks.record(led, "n", ranges) is Recorded.LED_ELSEWHERE

    run(work)


def test_a_lock_that_is_not_told_because_redis_may_have_missed_it_is_not_handed_over() -> None:
    async def work(_: CoordinatorWire, leader: Leader) -> None:
        led = led_with_a_lock(leader)
        recording = asyncio.create_task(leader.locks.record(led, "m", ACQUIRED))
        await asyncio.sleep(0)
        letting_go = asyncio.create_task(leader.let_go([KEY]))
        await asyncio.sleep(0)
        leader._lock_timers.degraded = True
        leader._lock_timers._gathered[0].done.set_result(True)
        assert await recording is Recorded.LED_ELSEWHERE
        await letting_go
        assert locks_left(leader) == []

    run(work)

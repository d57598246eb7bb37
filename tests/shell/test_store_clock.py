"""The gateway's clock follows the one that all gateways share, whatever this machine's wall clock does."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.store_clock import adjust

from sharequeue.clock import Clock
from sharequeue.protocol.errors import StorageError

HOUR_MS = 3_600_000


def store_clock(ahead_ms: float, *, answers_after_s: float = 0.0) -> Callable[[], Awaitable[float]]:
    """A clock that is so far ahead of this machine's; it is read when the question arrives."""

    async def ask() -> float:
        now_ms = time.time() * 1000 + ahead_ms
        await asyncio.sleep(answers_after_s)
        return now_ms

    return ask


def distance_ms(clock: Clock) -> float:
    return clock.now_ms() - time.time() * 1000


def jumps() -> float:
    return metrics.CLOCK_JUMPS._value.get()


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, 700, -700])
def test_the_clock_goes_where_the_shared_one_is(ahead_ms: int) -> None:
    clock, before = Clock(), jumps()
    asyncio.run(adjust(clock, store_clock(ahead_ms)))
    assert distance_ms(clock) == pytest.approx(ahead_ms, abs=50)
    assert jumps() - before == (abs(ahead_ms) > 1000), "only a jump of more than a second counts"


def test_a_slow_answer_moves_a_right_clock_by_nothing() -> None:
    clock = Clock()
    asyncio.run(adjust(clock, store_clock(0, answers_after_s=0.3)))
    assert distance_ms(clock) == pytest.approx(0, abs=50)


def test_a_slow_answer_moves_a_wrong_clock_to_the_nearer_bound() -> None:
    clock = Clock()
    asyncio.run(adjust(clock, store_clock(5000, answers_after_s=0.3)))
    assert distance_ms(clock) == pytest.approx(4700, abs=100)


def test_without_an_answer_the_clock_goes_on() -> None:
    async def away() -> float:
        raise StorageError("PostgreSQL is away")

    clock, before = Clock(time.time() * 1000 + HOUR_MS), jumps()
    asyncio.run(adjust(clock, away))
    assert distance_ms(clock) == pytest.approx(HOUR_MS, abs=50)
    assert jumps() == before


def test_the_wall_clock_of_this_machine_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    assert clock.now_ms() - right() * 1000 == pytest.approx(0, abs=50)

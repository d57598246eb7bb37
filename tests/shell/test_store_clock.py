"""The gateway's clock follows the one that all gateways share, whatever this machine's wall clock does."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster import store_clock as store_clock_module
from sharequeue_gateway.cluster.store_clock import adjust

from sharequeue import clock as clock_module
from sharequeue.clock import Clock
from sharequeue.protocol.errors import StorageError

HOUR_MS = 3_600_000


class Turned:
    """This machine's clocks, which the test turns."""

    def __init__(self) -> None:
        self.monotonic_s = 500.0
        self.wall_s = 1_700_000_000.0

    def monotonic(self) -> float:
        return self.monotonic_s

    def time(self) -> float:
        return self.wall_s

    def turn(self, seconds: float) -> None:
        self.monotonic_s += seconds
        self.wall_s += seconds

    def store_clock(self, ahead_ms: float, *, answers_after_s: float = 0.0) -> Callable[[], Awaitable[float]]:
        """A clock that is so far ahead of this machine's; it is read when the question arrives."""

        async def ask() -> float:
            now_ms = self.wall_s * 1000 + ahead_ms
            self.turn(answers_after_s)
            return now_ms

        return ask

    def distance_ms(self, clock: Clock) -> float:
        return clock.now_ms() - self.wall_s * 1000


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Turned:
    clocks = Turned()
    for module in (clock_module, store_clock_module):
        monkeypatch.setattr(module, "time", clocks)
    return clocks


def jumps() -> float:
    return metrics.CLOCK_JUMPS._value.get()


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS, 700, -700])
def test_the_clock_goes_where_the_shared_one_is(turned: Turned, ahead_ms: int) -> None:
    clock, before = Clock(), jumps()
    asyncio.run(adjust(clock, turned.store_clock(ahead_ms)))
    assert turned.distance_ms(clock) == pytest.approx(ahead_ms, abs=1)
    assert jumps() - before == (abs(ahead_ms) > 1000), "only a jump of more than a second counts"


def test_a_slow_answer_moves_a_right_clock_by_nothing(turned: Turned) -> None:
    clock = Clock()
    asyncio.run(adjust(clock, turned.store_clock(0, answers_after_s=30)))
    assert turned.distance_ms(clock) == pytest.approx(0, abs=1)


def test_a_slow_answer_moves_a_wrong_clock_to_the_nearer_bound(turned: Turned) -> None:
    clock = Clock()
    asyncio.run(adjust(clock, turned.store_clock(50_000, answers_after_s=30)))
    assert turned.distance_ms(clock) == pytest.approx(20_000, abs=1)


def test_without_an_answer_the_clock_goes_on(turned: Turned) -> None:
    async def away() -> float:
        raise StorageError("PostgreSQL is away")

    clock, before = Clock(turned.wall_s * 1000 + HOUR_MS), jumps()
    turned.turn(30)
    asyncio.run(adjust(clock, away))
    assert turned.distance_ms(clock) == pytest.approx(HOUR_MS, abs=1)
    assert jumps() == before


def test_the_wall_clock_of_this_machine_is_read_once(turned: Turned) -> None:
    clock, right_ms = Clock(), turned.wall_s * 1000
    turned.wall_s += 3600
    assert clock.now_ms() == pytest.approx(right_ms, abs=1)

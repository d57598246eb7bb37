"""Paced work: it rests after each slice, in proportion to what the slice took. On a clock that the test turns."""

import asyncio

import pytest

from sharequeue import slices
from sharequeue.slices import MOST_REST_S, Pace


class Turned:
    """The clock of paced work. `rests`: how long it slept."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.rests: list[float] = []

    def perf_counter(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now_s += seconds


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> Turned:
    clock = Turned()
    monkeypatch.setattr(slices, "time", clock)
    monkeypatch.setattr(slices, "asyncio", clock)
    return clock


def test_a_rest_is_as_long_as_the_slice_says(turned: Turned) -> None:
    async def paced() -> None:
        pace = Pace(3)
        for took_s in (0.004, 0.001, 0.002):
            turned.now_s += took_s
            await pace.rest()

    asyncio.run(paced())
    assert turned.rests == pytest.approx([0.012, 0.003, 0.006])


def test_a_slice_that_waited_long_has_a_bounded_rest(turned: Turned) -> None:
    async def paced() -> None:
        pace = Pace(3)
        turned.now_s += 100
        await pace.rest()

    asyncio.run(paced())
    assert turned.rests == [MOST_REST_S]

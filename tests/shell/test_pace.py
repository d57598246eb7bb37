"""Paced work: it rests after each slice, in proportion to what the slice took."""

import asyncio
import time

from sharequeue.slices import MOST_REST_S, Pace


def work(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def test_a_rest_is_as_long_as_the_slice_says() -> None:
    async def paced() -> None:
        pace = Pace(3)
        for _ in range(3):
            began = time.perf_counter()
            work(0.004)
            await pace.rest()
            assert time.perf_counter() - began >= 0.004 * (1 + 3)

    asyncio.run(paced())


def test_a_slice_that_waited_long_has_a_bounded_rest() -> None:
    async def paced() -> None:
        pace = Pace(1e6)
        began = time.perf_counter()
        work(0.001)
        await pace.rest()
        assert MOST_REST_S <= time.perf_counter() - began < 100, "not 1,000 seconds"

    asyncio.run(paced())

"""Long work in slices, so that other tasks run between them; at a pace, so that it takes a part of the time."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

SLICE_S: Final = 0.005
"""The length of a slice in seconds."""
MOST_REST_S: Final = 0.02
"""The longest rest: a slice that waited for something else took long for another reason."""

Item = TypeVar("Item")


class Slices:
    """The slices of one piece of work. A slice begins when the pause before it has ended.

    slices = Slices()
    for item in many:
        if slices.over():
            await slices.pause()
    """

    __slots__ = ("_ends_at",)

    def __init__(self) -> None:
        self._ends_at = time.perf_counter() + SLICE_S

    def over(self) -> bool:
        """Return whether the slice has ended: it is time for a pause."""
        return time.perf_counter() > self._ends_at

    async def pause(self) -> None:
        """Let other tasks run, then begin the next slice."""
        await asyncio.sleep(0)
        self._ends_at = time.perf_counter() + SLICE_S


async def in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """Yield items whose work is done in slices. No pause comes between the making of an item and its work."""
    slices = Slices()
    for item in items:
        yield item
        if slices.over():
            await slices.pause()


class Pace:
    """The pace of one piece of work that several statements or slices do: after each of them it rests in proportion.

    So other requests have most of the time, of this process and of what it calls, however long the work is.
    """

    __slots__ = ("_began", "_rest")

    def __init__(self, rest: float) -> None:
        """`rest`: pause after a slice for `rest` times its duration, at most MOST_REST_S."""
        self._rest = rest
        self._began = time.perf_counter()

    async def rest(self) -> None:
        """A slice has ended. Returns when the next one may begin."""
        took = time.perf_counter() - self._began
        await asyncio.sleep(min(self._rest * took, MOST_REST_S))
        self._began = time.perf_counter()

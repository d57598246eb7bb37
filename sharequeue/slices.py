"""Cuts long work into slices, so that other tasks run between them."""

import asyncio
import time
from typing import Final

SLICE_S: Final = 0.01
"""The length of a slice in seconds."""


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
        """Whether the slice has ended: it is time for a pause."""
        return time.perf_counter() > self._ends_at

    async def pause(self) -> None:
        """Let other tasks run, then begin the next slice."""
        await asyncio.sleep(0)
        self._ends_at = time.perf_counter() + SLICE_S

"""Garbage collection in short parts: a stop of the event loop does not grow with the number of objects in memory.

    each 50 ms: collect new objects ──4 ms spent so far──▶ full collection ──took long──▶ the rest is frozen

A full collection looks at every object, for 0.7 µs each: 10,000 waiting fetches are 650,000 objects, so it stopped the
event loop for half a second. Python itself starts a collection when 10,000 more objects were made than freed. While one
crowd leaves and another comes, that is never the case, and a collection of the new objects alone took 280 ms. So the
time decides here. What a full collection leaves is frozen if it took long, and the next one looks at newer objects.

Reference counting still frees a frozen object. A cycle that becomes garbage while it is frozen stays in memory. The
services break the cycles of their connections and requests: of 28,500 fetches that were frozen while they waited, fewer
than 500 of 2,000,000 objects stayed.
"""

import asyncio
import gc
import time
from typing import Any, Final

NEW_OBJECTS: Final = 10_000
"""Within a turn of the event loop, new objects are collected after so many."""
NEVER: Final = 1 << 30
LOOK_S: Final = 0.05
SPENT_S: Final = 0.004
"""The time that collections of new objects take until a full one follows."""
LONG_S: Final = 0.01
"""What a full collection leaves is frozen if it took this long."""


class Collector:
    """Collects garbage. The objects that exist when it is made live as long as the process: it never looks at them."""

    def __init__(self) -> None:
        self._spent_s = self._began_s = 0.0
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS, NEVER, NEVER)
        gc.callbacks.append(self._collecting)
        gc.enable()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Collect from now on, while the loop runs."""
        self.collect()
        loop.call_later(LOOK_S, self.start, loop)

    def collect(self) -> None:
        """Collect new objects; everything that is not frozen, if it is time for that."""
        gc.collect(0)
        if self._spent_s >= SPENT_S:
            self._spent_s = 0.0
            gc.collect()
            if self._spent_s >= LONG_S:
                gc.freeze()
            self._spent_s = 0.0

    def _collecting(self, phase: str, _: dict[str, Any]) -> None:
        """Python calls this before and after each collection, also after one that it starts by itself."""
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self._spent_s += time.thread_time() - self._began_s

"""Garbage collection in short parts: a stop of the event loop does not grow with the number of objects in memory.

    new objects ──▶ collected once or twice while they are young ──▶ full collection ──took long──▶ the rest is frozen

A full collection looks at every object, for 0.7 µs each: 10,000 waiting fetches are 650,000 objects, so it stopped the
event loop for half a second. Here it comes after 50,000 new objects, and what it leaves is frozen if it took long. So
the next one looks at the newer objects alone. Reference counting still frees a frozen object. A cycle that becomes
garbage while it is frozen stays in memory. The services break the cycles of their connections and requests: of 28,500
fetches that were frozen while they waited, fewer than 500 of 2,000,000 objects stayed.
"""

import gc
import time
from typing import Any, Final

NEW_OBJECTS: Final = 10_000
"""A request allocates about 1,000 objects, which reference counting frees at its end: collect rarely."""
LONG_S: Final = 0.01
"""What a full collection leaves is frozen if it took this long."""


def collect_in_parts() -> None:
    """Enable garbage collection. The objects that exist now live as long as the process: none looks at them."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, 2, 0)
    gc.callbacks.append(_Freezing())
    gc.enable()


class _Freezing:
    """Called before and after each collection."""

    def __init__(self) -> None:
        self._began_s = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began_s = time.thread_time()
        elif time.thread_time() - self._began_s > LONG_S:
            gc.freeze()

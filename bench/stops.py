"""How long an event loop stops: the one of this process, or the one of a service, from outside."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

import httpx

PAUSE_S: Final = 0.005
"""Between two calls of a Pinger: without it, on two cores, the calls slow what they watch."""


async def longest_stop(work: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """The longest time in ms for which this event loop did nothing else,
    and the CPU that this process took in one stop.

    The CPU does not depend on what else the machine does.
    """
    longest = used = 0.0

    async def watch() -> None:
        nonlocal longest, used
        while True:
            before, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            longest = max(longest, 1000 * (time.perf_counter() - before))
            used = max(used, 1000 * (time.process_time() - cpu))

    watching = asyncio.create_task(watch())
    await work()
    watching.cancel()
    return longest, used


class Pinger(threading.Thread):
    """Asks a service for a sign of life all the time; knows the longest time that it took."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.longest_ms = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        with httpx.Client(base_url=self._url) as client:
            client.get("/livez")
            while not self.ended.wait(PAUSE_S):
                before = time.perf_counter()
                client.get("/livez")
                self.longest_ms = max(self.longest_ms, 1000 * (time.perf_counter() - before))

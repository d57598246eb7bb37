"""An event loop whose time a test turns: timers are over when the test says so, however busy the machine is."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class TurnedLoop(asyncio.SelectorEventLoop):
    """`turn` moves the time on; timers that are due then run in the next turns of the loop."""

    turned_s = 0.0

    def time(self) -> float:
        return self.turned_s

    async def turn(self, seconds: float) -> None:
        """Move on, and let all timers run that are over."""
        self.turned_s += seconds
        for _ in range(5):
            await asyncio.sleep(0)


def run(work: Callable[[TurnedLoop], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=TurnedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, TurnedLoop)
        runner.run(work(loop))

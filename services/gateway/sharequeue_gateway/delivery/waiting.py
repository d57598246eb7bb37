"""One fetch on its way: what wakes it, whether its client is still there, and what goes on beside it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from sharequeue.protocol.messages import AcknowledgementResult

Result = TypeVar("Result")

LISTEN_AFTER_S: Final = 0.02
"""How long others may work for a fetch before its client is listened to: mostly they have answered by then."""


class WaitingFetch:
    """One fetch on its way. `woken`: something happened since it last looked.

    `watch` returns when the client has hung up; it is listened to from the first wait on, and `gone` tells before.
    """

    __slots__ = (
        "_event",
        "_gone",
        "_served",
        "_watch",
        "_watcher",
        "client_gone",
        "ended",
        "failed_acknowledgement",
        "finished",
        "replaced",
        "woken",
    )

    def __init__(self, watch: Callable[[], Coroutine[None, None, None]], gone: Callable[[], bool]) -> None:
        self._event = asyncio.Event()
        self._watch = watch
        self._gone = gone
        self._watcher: asyncio.Task[None] | None = None
        self._served: asyncio.Task[Any] | None = None
        self.woken = False
        self.client_gone = False
        self.failed_acknowledgement = False
        self.replaced = False
        self.finished = False
        self.ended = False

    @property
    def over(self) -> bool:
        """Whether nothing may be acquired any more."""
        return self.finished or self.untold

    @property
    def untold(self) -> bool:
        """Whether nobody is to be told either what was acquired."""
        return self.client_gone or self.replaced or self.ended

    def gone(self) -> bool:
        """Whether the client has hung up by now, as far as this host has heard; then the fetch is over."""
        if self._watcher is None and not self.client_gone:
            self.client_gone = self._gone()
        return self.client_gone

    def _start_listening(self) -> None:
        if self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        await self._watch()
        self.client_gone = True
        self.wake()

    def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    def wake(self) -> None:
        self.woken = True
        self._event.set()
        served = self._served
        if served is not None and self._settled:
            self._served = None
            served.cancel()

    @property
    def _settled(self) -> bool:
        return self.over or self.failed_acknowledgement

    def finish(self) -> None:
        """Answer it now, with what it has: this gateway stops."""
        self.finished = True
        self.wake()

    def end(self) -> None:
        """Answer it now: its group is set anew. It must not go on anywhere."""
        self.ended = True
        self.wake()

    async def wait(self, seconds: float) -> bool:
        """Wait for a wake-up. Returns: False when the time is over."""
        self._start_listening()
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        self.woken = False
        return True

    def start_acknowledging(
        self, work: Coroutine[None, None, list[AcknowledgementResult]]
    ) -> asyncio.Task[list[AcknowledgementResult]]:
        """Acknowledge beside the fetch; if one fails the fetch ends at once, so that it is told."""

        async def acknowledge() -> list[AcknowledgementResult]:
            results = await work
            if any(result.status in ("failed", "unknown") for result in results):
                self.failed_acknowledgement = True
                self.wake()
            return results

        return asyncio.get_running_loop().create_task(acknowledge())

    async def unless_over(self, work: Coroutine[None, None, Result]) -> Result | None:
        """Do `work`, which others do for this fetch; None when the fetch is over before: then it is cancelled."""
        if self._settled:
            work.close()
            return None
        task = asyncio.current_task()
        assert task is not None
        self._served = task
        listening = asyncio.get_running_loop().call_later(LISTEN_AFTER_S, self._start_listening)
        try:
            return await work
        except asyncio.CancelledError:
            if self._served is not None or task.cancelling() > 1:  # somebody else ends this task
                raise
            return None
        finally:
            if self._served is None:
                task.uncancel()
            self._served = None
            listening.cancel()

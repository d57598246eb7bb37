"""Async code for callers that are not async: an event loop in a thread of its own."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from sharequeue.client.errors import IllegalState

T = TypeVar("T")
A = TypeVar("A", bound=AbstractAsyncContextManager[Any])


class LoopThread:
    """An event loop that runs in a thread of its own until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sharequeue client", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        return self._loop.is_closed()

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread. Returns: its answer. Raises: IllegalState: stopped."""

        async def called() -> T:
            return function()

        return self.wait_for(called)

    def wait_for(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await a coroutine in the loop's thread. Raises: IllegalState: stopped. An interrupt cancels the coroutine."""
        if self.stopped:
            raise IllegalState("it is closed")
        future = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def later(self, answer: Awaitable[T]) -> "concurrent.futures.Future[T]":
        """Await something in the loop's thread, in the background."""

        async def awaited() -> T:
            return await answer

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop)

    def stop(self) -> None:
        """End the thread. Once stopped, this does nothing."""
        if self.stopped:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class OnThread(Generic[A]):
    """An async object that lives in the loop of a thread."""

    def __init__(self, thread: LoopThread, inner: A) -> None:
        self._thread = thread
        self._inner = inner

    def __enter__(self) -> Self:
        self._thread.wait_for(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.wait_for(lambda: self._inner.__aexit__(kind, fault, trace))


class OwnThread(OnThread[A]):
    """An async object with a thread of its own, which ends with it."""

    def __init__(self, make: Callable[[], A]) -> None:
        thread = LoopThread()
        try:
            super().__init__(thread, thread.call(make))
        except BaseException:
            thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(lambda: self._inner.__aexit__(kind, fault, trace))

    def _end(self, close: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Close the object, then end the thread. Once it has ended, this does nothing."""
        if self._thread.stopped:
            return
        try:
            self._thread.wait_for(close)
        finally:
            self._thread.stop()

"""Async code for callers that are not async: an event loop in a thread of its own.

A program that ends without `close` flushes its producers, all together, for a few seconds: first when its main thread
has ended and names can still be resolved, then when all threads have. A line on stderr for each producer says how many
of its records may be lost.
"""

import asyncio
import atexit
import concurrent.futures.thread  # whose handler at the end of the main thread runs after the one below
import os
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from sharequeue.client.errors import IllegalState

T = TypeVar("T")
A = TypeVar("A", bound=AbstractAsyncContextManager[Any])
AT_EXIT_S: Final = 3.0
"""The time of each of the two flushes, for all producers together."""


class LoopThread:
    """An event loop that runs in a thread of its own until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sharequeue client", daemon=True)
        self._thread.start()

    @property
    def stopped(self) -> bool:
        return self._loop.is_closed()

    @property
    def forked(self) -> bool:
        """Return whether this process is a child, which has no such thread."""
        return os.getpid() != self._process

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop's thread. Returns: its answer. Raises: IllegalState: stopped."""

        async def called() -> T:
            return function()

        return self.wait_for(called)

    def wait_for(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await a coroutine in the loop's thread. Raises: IllegalState: stopped. An interrupt cancels the coroutine."""
        if self.forked:
            raise IllegalState("it was made before a fork, and its thread is in the parent: make one in each process")
        if self.stopped:
            raise IllegalState("it is closed")
        future = asyncio.run_coroutine_threadsafe(function(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def next(self, function: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As `wait_for`, for the next element of an iteration. Raises: StopIteration: there is none."""
        try:
            return self.wait_for(function)
        except StopAsyncIteration:
            raise StopIteration from None

    def iterate(self, make: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield what an iterator yields that lives in the loop's thread."""
        inner = self.call(make)

        async def element() -> T:
            return await anext(inner)

        while True:
            try:
                found = self.wait_for(element)
            except StopAsyncIteration:
                return
            yield found

    def later(self, answer: Awaitable[T]) -> "concurrent.futures.Future[T]":
        """Await something in the loop's thread, in the background."""

        async def awaited() -> T:
            return await answer

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop)

    def stop(self) -> None:
        """End the thread. Once stopped, this does nothing."""
        if self.stopped or self.forked:
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
        if hasattr(self._inner, "_flush_at_exit"):
            _OPEN.add(self)

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


_OPEN: Final["weakref.WeakSet[OwnThread[Any]]"] = weakref.WeakSet()
"""Those that have something to flush."""


def _flush_all(*, last: bool) -> None:
    used = [each for each in list(_OPEN) if not (each._thread.stopped or each._thread.forked)]
    for flush in [each._thread.later(each._inner._flush_at_exit(AT_EXIT_S)) for each in used]:
        lost = flush.result()
        if last and lost and sys.stderr is not None:
            print(f"sharequeue: the program ended without `close`, and {lost}", file=sys.stderr)


getattr(threading, "_register_atexit", atexit.register)(_flush_all, last=False)
atexit.register(_flush_all, last=True)

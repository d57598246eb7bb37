"""The client without async: an event loop in a thread of its own, and a face that passes every call to it."""

import asyncio
import concurrent.futures
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, ClassVar, Self

from sharequeue import client
from sharequeue.client.deliveries import Record


class Face:
    """An object of the async client, used from ordinary code: every method is that one's, and returns when it is done.

    What an async method would hand back to be awaited later comes as a `concurrent.futures.Future`.
    """

    kind: ClassVar[Callable[..., Any]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sharequeue client", daemon=True)
        self._thread.start()
        try:
            self._async = self._run(functools.partial(type(self).kind, *arguments, **options))
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop.is_closed():
            return
        try:
            self._run(lambda: self._async.__aexit__(kind, fault, trace))
        finally:
            self._stop()

    def close(self) -> None:
        """Close as the async client does, and end the thread. Once closed, this does nothing."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._async.close)
        finally:
            self._stop()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self._async, name)
        if not inspect.ismethod(attribute) or getattr(attribute, "any_thread", False):
            return attribute

        @functools.wraps(attribute)
        def call(*arguments: Any, **options: Any) -> Any:
            return self._run(lambda: attribute(*arguments, **options))

        return call

    def _run(self, function: Callable[[], Any]) -> Any:
        """Run a function in the loop's thread and wait for what it answers, awaiting it if need be."""
        if self._loop.is_closed():
            raise client.IllegalState("it is closed")
        future = asyncio.run_coroutine_threadsafe(_awaited(function), self._loop)
        try:
            answer = future.result()
        except BaseException:
            future.cancel()  # an interrupt of this thread ends the call
            raise
        return self._later(answer) if isinstance(answer, client.Pending) else answer

    def _later(self, pending: Awaitable[Any]) -> concurrent.futures.Future[Any]:
        return asyncio.run_coroutine_threadsafe(_awaited(lambda: pending), self._loop)

    def _stop(self) -> None:
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _awaited(function: Callable[[], Any]) -> Any:
    answer = function()
    return await answer if inspect.isawaitable(answer) else answer


class Producer(Face):
    """`sharequeue.client.Producer` without async; `send_soon` returns a `concurrent.futures.Future`.

    Example:
        with Producer("http://127.0.0.1:8080") as producer:
            where = producer.send("orders", {"id": 1})
    """

    kind = client.Producer


class ShareConsumer(Face):
    """`sharequeue.client.ShareConsumer` without async.

    Example:
        with ShareConsumer("http://127.0.0.1:8080", "billing", ["orders"]) as consumer:
            for record in consumer:            # asking for the next record accepts this one
                print(record.value)
    """

    kind = client.ShareConsumer

    def __iter__(self) -> Iterator[Record]:
        while True:
            yield self._run(self._async.__anext__)

"""The tasks that answer requests, one request after another.

A new task for each request costs about as much as decoding the request. So a task that has answered one waits for the
next one, of whichever connection.

                serve                    answered
    new task ───────────▶ at a request ───────────▶ idle ──▶ at a request …
                               │
                               └─ it failed, was cancelled, or ran an application; or MOST_IDLE are idle ──▶ ended

There are never more tasks than requests, and MOST_IDLE. A task for an application ends with its request, because an
application may leave context variables behind. Endpoints of ours set `REQUEST` alone, and reset it.
"""

import asyncio
import contextvars
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp

from sharequeue.http.wire.asgi_adapter import serve_asgi
from sharequeue.http.wire.connection_exchange import ConnectionExchange

MOST_IDLE: Final = 64

Served = Callable[[ConnectionExchange, "asyncio.Task[None]", BaseException | None], None]
"""Called when a handler ends, answered or not. Arguments: the exchange, its task, and its exception or None."""


class Workers:
    """The tasks of one server."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.idle: list[Worker] = []
        self.context = contextvars.copy_context()

    def serve(self, exchange: ConnectionExchange, served: Served) -> "asyncio.Task[None]":
        """Begin to answer a request. Returns: the task, until it calls `served`."""
        while self.idle:
            worker = self.idle.pop()
            if not worker.next.done():  # it was not cancelled while it was idle
                worker.begin(exchange, served)
                worker.next.set_result(None)
                return worker.task
        return Worker(self, exchange, served).task


class Worker:
    """One task. `next` ends when an idle one gets a request."""

    __slots__ = ("_request", "_workers", "next", "task")

    def __init__(self, workers: Workers, exchange: ConnectionExchange, served: Served) -> None:
        self._workers = workers
        self.next: asyncio.Future[None]
        self.begin(exchange, served)
        loop = asyncio.get_running_loop()
        self.task = loop.create_task(self._run(loop), context=workers.context.copy())
        self.task.add_done_callback(self._ended)

    def begin(self, exchange: ConnectionExchange, served: Served) -> None:
        self._request: tuple[ConnectionExchange, Served] | None = (exchange, served)

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        idle = self._workers.idle
        while self._request is not None:
            exchange, served = self._request
            found = exchange.found
            if found is None:
                await serve_asgi(self._workers.app, exchange)
                return
            await found.endpoint.serve(exchange, found.parameters)
            self._request = None
            served(exchange, self.task, None)
            if len(idle) >= MOST_IDLE or self.task.cancelling():
                return
            del exchange, served, found  # an idle task keeps no request and no connection in memory
            self.next = loop.create_future()
            idle.append(self)
            await self.next

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """The task has ended, perhaps in the middle of a request."""
        if self._request is not None:
            exchange, served = self._request
            self._request = None
            served(exchange, task, None if task.cancelled() else task.exception())

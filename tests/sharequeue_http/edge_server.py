"""A small application behind the real edge: uvicorn and our protocol on a socket, in a thread of its own."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from ssl import SSLContext

import uvicorn
import uvloop
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sharequeue.protocol.messages.operations import Empty
from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue_http.answer import Answer, Stream
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call
from sharequeue_http.exchange import Exchange
from sharequeue_http.forms.api import Api
from sharequeue_http.limits import HttpLimits
from sharequeue_http.wire.edge import Edge
from sharequeue_http.wire.protocol import protocol_of

PLAIN = ((b"content-type", b"text/plain"),)
MAX_REQUEST_BYTES = 1 << 20
LARGE_BYTES = 11 << 20
"""More than the sockets of a connection hold by themselves."""


class AsgiApplication:
    """For Starlette: an application, not a function that takes a request."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._application(scope, receive, send)


async def say_nothing(_: Scope, receive: Receive, send: Send) -> None:
    """Return without an answer."""


class EdgeServer:
    """The port of a server, and the events in it."""

    def __init__(self) -> None:
        self.port = 0
        self.loop: asyncio.AbstractEventLoop
        self.edge: Edge
        self.server: uvicorn.Server
        self.received: list[bytes] = []
        """The bodies that endpoints were given."""
        self.gone = threading.Event()
        """Set when the client of a waiting call hung up."""
        self.large = 0
        """Large answers that were made."""
        self.written = 0
        """Parts of a streamed answer that the connection took."""

    def application(self) -> App:
        app = App("edge", "for tests")

        async def echo(call: Call) -> Answer:
            self.received.append(call.raw)
            return Answer(call.raw, headers=PLAIN)

        async def decode(call: Call) -> Answer:
            self.received.append(call.raw)
            return Answer(call.request.topic.encode(), headers=PLAIN)

        async def wait(call: Call) -> Answer:
            gone = asyncio.Event()
            call.exchange.when_gone(gone.set)
            await gone.wait()
            self.gone.set()
            return Answer(b"", headers=PLAIN)

        async def stream(call: Call) -> Stream:
            return Stream(self._parts(), PLAIN)

        async def broken(call: Call) -> Stream:
            return Stream(self._broken(), PLAIN)

        async def connection(call: Call) -> Answer:
            exchange = call.exchange
            assert isinstance(exchange, Exchange)
            tls = exchange.connection.transport.get_extra_info("ssl_object")
            return Answer(str(tls and tls.version()).encode(), headers=PLAIN)

        async def large(_: Call) -> Answer:
            self.large += 1
            return Answer(b"x" * LARGE_BYTES, headers=PLAIN)

        async def slow(call: Call) -> Answer:
            await asyncio.sleep(0.1)
            return await echo(call)

        async def not_modified(_: Call) -> Stream:
            return Stream(self._parts(), PLAIN)

        async def remove(_: Call) -> Empty:
            return Empty()

        async def headers(call: Call) -> Answer:
            return Answer(b"\n".join(b"%b=%b" % header for header in call.exchange.headers), headers=PLAIN)

        for method, path, request, raw, handler in (
            ("POST", "/echo", None, True, echo),
            ("POST", "/json", TopicPartitions, False, decode),
            ("GET", "/wait", None, False, wait),
            ("GET", "/stream", None, False, stream),
            ("GET", "/large", None, False, large),
            ("GET", "/broken", None, False, broken),
            ("GET", "/connection", None, False, connection),
            ("GET", "/headers", None, False, headers),
            ("POST", "/headers", None, True, headers),
            ("POST", "/slow", None, True, slow),
            ("GET", "/not-modified", None, False, not_modified),
            ("DELETE", "/thing", None, False, remove),
        ):
            status = {"/thing": 204, "/not-modified": 304}.get(path, 200)
            api = Api(
                method + path,
                f"{method} {path}",
                "",
                request=request,
                response=Empty,
                status=status,
                tag="Tests",
                raw_body=raw,
            )
            serve(app, api, handler, max_request_bytes=MAX_REQUEST_BYTES)
        app.router.routes.append(Route("/asgi-silent", endpoint=AsgiApplication(say_nothing)))

        @app.get("/raises")
        async def raises() -> None:
            raise RuntimeError("a fault of the application")

        return app

    async def _parts(self) -> AsyncGenerator[bytes, None]:
        for _ in range(200):
            yield b"x" * 100_000
            self.written += 1

    async def _broken(self) -> AsyncGenerator[bytes, None]:
        yield b"one"
        raise RuntimeError("the rest cannot be made")


async def _run(server: EdgeServer, app: App, limits: HttpLimits, connections: int, tls: SSLContext | None) -> None:
    edge = server.edge = Edge(app, limits, connections)
    http = protocol_of(edge, None if tls is None else lambda: tls)
    config = uvicorn.Config(app, http=http, ws="none", lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    server.server = uvicorn.Server(config)
    server.loop = asyncio.get_running_loop()
    watching = server.loop.create_task(edge.watch())
    await server.server.serve([socket.create_server(("127.0.0.1", server.port), backlog=512)])
    watching.cancel()


@contextlib.contextmanager
def edge_server(
    limits: HttpLimits | None = None,
    *,
    connections: int = 1000,
    prepare: Callable[[App], None] = lambda _: None,
    tls: SSLContext | None = None,
) -> Iterator[EdgeServer]:
    """A server that runs while this lasts.

    Args:
        prepare: called with our application before it is served.
    """
    server = EdgeServer()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server.port = probe.getsockname()[1]
    app = server.application()
    prepare(app)
    thread = threading.Thread(target=lambda: uvloop.run(_run(server, app, limits or HttpLimits(), connections, tls)))
    thread.start()
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port)):
            break
    try:
        yield server
    finally:
        server.server.should_exit = True
        thread.join()

"""Runs one service: uvicorn and the service's own loops as siblings, with signals, readiness and metrics.

A loop that dies ends the process, and the log has its error: a service that looks alive and does half of its work is
worse than one that is gone. No other module touches signals.
"""

import asyncio
import contextlib
import functools
import logging
import re
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, disable_created_metrics, generate_latest

from sharequeue import __version__
from sharequeue.http.answer import Answer
from sharequeue.http.application.app import App, serve
from sharequeue.http.application.endpoint import Call
from sharequeue.http.limits import HttpLimits
from sharequeue.http.wire.edge import Edge
from sharequeue.http.wire.protocol import protocol_of
from sharequeue.log import configure, fields
from sharequeue.protocol import apis
from sharequeue.protocol.codec import encode
from sharequeue.protocol.messages.operations import Empty, Readiness, ReadinessQuery
from sharequeue.service.addresses import check_address
from sharequeue.service.allocator import release_large_blocks
from sharequeue.service.garbage import Collector
from sharequeue.service.series import plain
from sharequeue.service.settings import ServiceSettings, SettingsError, load
from sharequeue.slices import Slices

try:
    import uvloop
except ModuleNotFoundError:  # there is none for Windows
    uvloop = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

S = TypeVar("S", bound=ServiceSettings)
Loop = Callable[[], Coroutine[None, None, None]]
ReadinessCheck = Callable[[bool], Awaitable[Readiness]]
"""The answer of `/readyz`; its argument is whether `strict` was asked for."""

BUILD = Gauge("sharequeue_build_info", "1, with the version of this service as a label.", ["version"])
BUILD.labels(__version__).set(1)
_HELP: Final = re.compile("^# HELP .*$", re.MULTILINE)
RESERVED_FILES: Final = 256
"""Open files that are not for connections of clients: stores, other services, logs."""


def serve_operations(app: App, ready: ReadinessCheck, series: Callable[[], Iterator[str]] | None = None) -> None:
    """Add `/livez`, `/readyz` and `/metrics`.

    Args:
        series: parts of `/metrics` besides the registry of prometheus_client; they are written in slices.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double every counter
    scraping = asyncio.Lock()

    async def livez(_: Call) -> Empty:
        return Empty()

    async def readyz(call: Call) -> Answer:
        request: ReadinessQuery = call.request
        readiness = await ready(request.strict)
        return Answer(encode(readiness), status=503 if readiness.status == "unavailable" else 200)

    async def metrics(_: Call) -> Answer:
        async with scraping:  # one answer is written at a time, however many are asked for
            parts = [_HELP.sub(lambda found: plain(found[0]), generate_latest().decode()).encode()]
            slices = Slices()
            for part in () if series is None else series():
                parts.append(part.encode())
                if slices.over():
                    await slices.pause()
        return Answer(b"".join(parts), headers=((b"content-type", CONTENT_TYPE_LATEST.encode()),))

    serve(app, apis.LIVEZ, livez)
    serve(app, apis.READYZ, readyz)
    serve(app, apis.METRICS, metrics)


class Service(NamedTuple):
    """What one process runs.

    `loops`: coroutine functions that run as long as the service does. `stop`: awaited after a signal, while
    the server still takes requests: it hands over, finishes and releases. `close`: awaited at the very end.
    """

    app: App
    loops: Sequence[Loop]
    stop: Loop | None = None
    close: Loop | None = None


def start(name: str, kind: type[S], prefix: str, prepare: Callable[[S], Awaitable[Service]]) -> int:
    """Run the service of this name with the settings that the environment has behind the prefix.

    Returns: the exit code: 2 for settings that it refuses, otherwise as `run`.
    """
    try:
        settings = load(kind, prefix)
        settings.check(prefix)
        check_address(settings.host, settings.allow_unauthenticated, prefix)
    except (SettingsError, ValueError) as fault:
        print(f"sharequeue {name}: {fault}", file=sys.stderr)
        return 2
    configure(settings.log_level)
    return run(functools.partial(prepare, settings), settings.host, settings.port, settings)


def run(prepare: Callable[[], Awaitable[Service]], host: str, port: int, limits: HttpLimits) -> int:
    """Serve until SIGTERM, SIGINT or the death of a loop.

    Args:
        prepare: makes the service, inside the event loop.
        limits: the limits of a connection.
    Returns: the exit code: 0 after a signal, 1 when a loop died or the address cannot be bound; the log says which.
    """
    release_large_blocks()
    try:
        (uvloop or asyncio).run(_run(prepare, host, port, limits))
    except OSError as fault:
        cause = str(fault) or type(fault).__name__  # a timeout has no text
        log.error("cannot start", extra=fields(host=host, port=port, cause=cause))
        return 1
    except Exception as fault:
        log.exception("the service died of a fault of its own: %s", _first_of(fault))
        return 1
    return 0


def _first_of(fault: BaseException) -> str:
    """A fault in one line; of a group, its first."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return f"{type(fault).__name__}: {fault}"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of IPv4 or IPv6, or on a name's IPv4 address. Raises: OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=4096)


async def _run(prepare: Callable[[], Awaitable[Service]], host: str, port: int, limits: HttpLimits) -> None:
    listener = listen(host, port)
    service = await prepare()
    Collector().start(asyncio.get_running_loop())
    log.info("listening", extra=fields(host=host, port=listener.getsockname()[1]))
    try:
        await _serve(service, listener, limits)
    finally:
        if service.close is not None:
            await service.close()


def allow_open_files(limits: HttpLimits) -> int:
    """Raise the soft limit of open files to the hard one. Returns: how many connections that allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse the limit that they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return limits.max_connections
    possible = max(soft - RESERVED_FILES, soft // 2)
    if possible < limits.max_connections:
        log.info(
            "the limit of open files allows fewer connections than max_connections",
            extra=fields(open_files=soft, connections=possible, max_connections=limits.max_connections),
        )
    return min(possible, limits.max_connections)


async def _serve(service: Service, listener: socket.socket, limits: HttpLimits) -> None:
    edge = Edge(service.app, limits, allow_open_files(limits))
    config = uvicorn.Config(
        service.app,
        http=protocol_of(edge),
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        server_header=False,
        date_header=False,
    )
    server = _Server(config)
    stopping = asyncio.Event()
    running_loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        running_loop.add_signal_handler(signal_number, stopping.set)

    async with asyncio.TaskGroup() as group:
        loops = {group.create_task(loop()): loop for loop in (*service.loops, edge.watch)}
        ends = group.create_task(_until_one_ends(loops))
        serving = group.create_task(server.serve(sockets=[listener]))

        async def stop_when_asked() -> None:
            await stopping.wait()
            log.info("stopping")
            if service.stop is not None:
                await service.stop()
            server.should_exit = True
            await serving
            for task in (ends, *loops):
                task.cancel()

        stopper = group.create_task(stop_when_asked())
        await serving
        if not stopping.is_set():
            stopper.cancel()
            raise RuntimeError("the server ended by itself")


async def _until_one_ends(loops: Mapping["asyncio.Task[None]", Loop]) -> None:
    """Raises: RuntimeError: a loop returned. One that raises ends the service by itself."""
    ended, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
    for task in ended:
        if not task.cancelled() and task.exception() is None:
            raise RuntimeError(f"{_name_of(loops[task])} ended; it must run as long as the service")


def _name_of(loop: Loop) -> str:
    """The name of a loop's function, without the arguments that are bound to it."""
    function = loop.func if isinstance(loop, functools.partial) else loop
    return str(getattr(function, "__qualname__", function))


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, which would re-raise the signal and skip our clean-up."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # uvicorn's own signature
        yield

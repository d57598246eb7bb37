"""Runs one service, or several in one process: uvicorn and the loops of each as siblings, with signals.

    signal ──▶ the last service stops ──▶ the one before it stops ──▶ … ──▶ the process ends
    a loop or a service dies ─────────────────────────────────────────▶ the process ends

A loop that dies ends the process, and the log has its error: a service that looks alive and does half of its work is
worse than one that is gone. No other module touches signals.
"""

import asyncio
import contextlib
import functools
import logging
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, NamedTuple

import uvicorn

from sharequeue.service.allocator import release_large_blocks
from sharequeue.service.garbage import Collector
from sharequeue.service.in_process import InProcess
from sharequeue.service.operations import Operations, serve_operations
from sharequeue.service.settings import ServiceSettings, SettingsError, load
from sharequeue_http.application.app import App
from sharequeue_http.calling.caller import SERVED_HERE
from sharequeue_http.calling.connections import TRUSTED, Reread
from sharequeue_http.limits import HttpLimits
from sharequeue_http.log import SERVICE, configure, fields
from sharequeue_http.wire.edge import Edge
from sharequeue_http.wire.protocol import protocol_of

try:
    import uvloop
except ModuleNotFoundError:  # there is none for Windows
    uvloop = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

Loop = Callable[[], Coroutine[None, None, None]]
RESERVED_FILES: Final = 256
"""Open files of a service that are not for connections of clients: stores, other services, logs, operations."""
OPERATIONS_CONNECTIONS: Final = 64


class Service(NamedTuple):
    """A program that runs as a service.

    `url`: under which other services call it. `loops`: coroutine functions that run as long as the service does.
    `operations`: what it says about itself.
    `stop`: awaited after a signal, while the server still takes requests: it hands over, finishes and releases.
    `close`: awaited at the very end.
    """

    app: App
    url: str
    loops: Sequence[Loop]
    operations: Operations
    stop: Loop | None = None
    close: Loop | None = None


class Program(NamedTuple):
    """A service that can be started. `prefix`: of its variables. `prepare`: makes it, inside the event loop."""

    name: str
    settings: type[ServiceSettings]
    prefix: str
    prepare: Callable[[Any], Awaitable[Service]]


def start(*programs: Program) -> int:
    """Run services in this process, with the settings that the environment has for each.

    Returns: the exit code: 2 for settings that it refuses, otherwise as `run`.
    """
    parts = []
    for program in programs:
        try:
            settings = load(program.settings, program.prefix)
            settings.check(program.prefix)
        except (SettingsError, ValueError) as fault:
            print(f"sharequeue {program.name}: {fault}", file=sys.stderr)
            return 2
        parts.append((program, settings))
    configure({program.name: settings.log_level for program, settings in parts})
    return run(*parts)


def run(*parts: tuple[Program, ServiceSettings]) -> int:
    """Serve until SIGTERM, SIGINT or the death of a loop. The last service is the one that clients call. It stops
    first, and the others in the opposite order of their starts.

    Returns: the exit code: 0 after a signal, 1 when a loop died or an address cannot be bound; the log says which.
    """
    release_large_blocks()
    try:
        (uvloop or asyncio).run(_run(parts))
    except Exception:  # the log has it
        return 1
    return 0


def _first_of(fault: BaseException) -> str:
    """A fault in one line; of a group, its first."""
    while isinstance(fault, BaseExceptionGroup):
        fault = fault.exceptions[0]
    return f"{type(fault).__name__}: {fault}"


async def _run(parts: Sequence[tuple[Program, ServiceSettings]]) -> None:
    """Run the services side by side. When all are prepared, signals stop them, and garbage is collected."""
    loop = asyncio.get_running_loop()
    stopping = [asyncio.Event() for _ in parts]
    unprepared = set(range(len(parts)))

    async def run_one(place: int, program: Program, settings: ServiceSettings) -> None:
        SERVICE.set(program.name)
        TRUSTED.set(settings.ca_file or None)
        try:
            certificate = settings.certificate()
            listeners = [listen(settings.host, settings.port)]
            if settings.operations_port is not None:
                listeners.append(listen(settings.operations_host or settings.host, settings.operations_port))
            service = await program.prepare(settings)
            unprepared.remove(place)
            if not unprepared:
                Collector().start(loop)
                for signal_number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(signal_number, stopping[-1].set)
            ports = zip(("port", "operations_port"), [each.getsockname()[1] for each in listeners], strict=False)
            log.info("listening", extra=fields(host=settings.host, **dict(ports)))
            connections = allow_open_files(settings, len(parts), for_clients=place == len(parts) - 1)
            if len(parts) == 1:
                service = service._replace(url="")  # nothing here calls it
            try:
                apart = len(listeners) > 1
                app = serve_operations(service.app, service.operations, settings.cluster_token, apart=apart)
                edges = [Edge(service.app, settings, connections)]
                if apart:
                    edges.append(Edge(app, settings, OPERATIONS_CONNECTIONS))
                await _serve(service, edges, listeners, certificate, stopping[place])
            finally:
                if service.close is not None:
                    await service.close()
        except OSError as fault:  # a service that runs dies of groups of faults
            cause = str(fault) or type(fault).__name__  # a timeout has no text
            log.error("cannot start", extra=fields(host=settings.host, port=settings.port, cause=cause))
            raise
        except Exception as fault:
            log.exception("the service died of a fault of its own: %s", _first_of(fault))
            raise
        if place:
            stopping[place - 1].set()

    async with asyncio.TaskGroup() as group:
        for place, part in enumerate(parts):
            group.create_task(run_one(place, *part))


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address of IPv4 or IPv6, or on a name's IPv4 address. Raises: OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=4096)


def allow_open_files(limits: HttpLimits, services: int, *, for_clients: bool) -> int:
    """Raise the soft limit of open files to the hard one. Returns: how many connections that allows to a service.

    `services`: of this process. Those that take no clients are called without a connection, and need few.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse the limit that they report
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if not for_clients:
        return min(RESERVED_FILES, limits.max_connections)
    if soft == resource.RLIM_INFINITY:
        return limits.max_connections
    possible = max(soft - services * RESERVED_FILES, soft // 2)
    if possible < limits.max_connections:
        log.info(
            "the limit of open files allows fewer connections than max_connections",
            extra=fields(open_files=soft, connections=possible, max_connections=limits.max_connections),
        )
    return min(possible, limits.max_connections)


def _server(edge: Edge, certificate: Reread | None) -> "_Server":
    config = uvicorn.Config(
        edge.app,
        http=protocol_of(edge, None if certificate is None else certificate.now),
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        server_header=False,
        date_header=False,
    )
    config.load()
    return _Server(config)


async def _serve(
    service: Service,
    edges: Sequence[Edge],
    listeners: Sequence[socket.socket],
    certificate: Reread | None,
    stopping: asyncio.Event,
) -> None:
    """Serve the calls on the first edge and listener, and operations on the second, if there is one."""
    servers = [_server(edge, certificate) for edge in edges]
    here = InProcess(service.url, service.app, servers[0].server_state.tasks) if service.url else None
    if here is not None:
        SERVED_HERE[service.url] = here

    watching = [edge.watch for edge in edges]
    try:
        async with asyncio.TaskGroup() as group:
            loops = {group.create_task(loop()): loop for loop in (*service.loops, *watching)}
            ends = group.create_task(_until_one_ends(loops))
            serving = [
                group.create_task(server.serve(sockets=[listener]))
                for server, listener in zip(servers, listeners, strict=True)
            ]

            async def stop_when_asked() -> None:
                await stopping.wait()
                log.info("stopping")
                if service.stop is not None:
                    await service.stop()
                SERVED_HERE.pop(service.url, None)  # a call from now on learns that nobody listens
                for server in servers:
                    server.should_exit = True
                await asyncio.wait(serving)
                for task in (ends, *loops):
                    task.cancel()

            stopper = group.create_task(stop_when_asked())
            await asyncio.wait(serving, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.is_set():
                stopper.cancel()
                raise RuntimeError("the server ended by itself")
    finally:
        SERVED_HERE.pop(service.url, None)  # one that died answers nothing from its memory
        if here is not None:
            here.end()


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

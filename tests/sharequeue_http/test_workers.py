"""A task answers one request after another: no request may notice the ones before it."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator

import pytest
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sharequeue_http.answer import Answer
from sharequeue_http.application.app import App, serve
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.api import Api
from sharequeue_http.log import REQUEST
from sharequeue_http.wire.protocol import MOST_IDLE
from tests.http.calls import wait_until
from tests.sharequeue_http.edge_server import PLAIN, AsgiApplication, EdgeServer, edge_server
from tests.sharequeue_http.raw import Raw

LEFT: contextvars.ContextVar[str] = contextvars.ContextVar("left", default="")


class Tasks:
    """What the calls below have seen of the tasks that served them."""

    def __init__(self) -> None:
        self.seen: list[asyncio.Task[None] | None] = []
        self.waiting = 0
        self.go_on = threading.Event()

    async def note(self, _: Call) -> Answer:
        """Answers with the request id that the task has in its context."""
        self.seen.append(asyncio.current_task())
        request = REQUEST.get()
        return Answer(b"" if request is None else request.request_id.encode(), headers=PLAIN)

    async def wait(self, call: Call) -> Answer:
        """Answers when `go_on` is set."""
        self.waiting += 1
        while not self.go_on.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.005)
        return await self.note(call)

    async def cancel(self, call: Call) -> Answer:
        """Is cancelled from outside, as by a stop of the server."""
        self.seen.append(asyncio.current_task())
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)
        return Answer(b"", headers=PLAIN)

    async def swallow(self, call: Call) -> Answer:
        """Is cancelled, and answers all the same."""
        with contextlib.suppress(asyncio.CancelledError):
            await self.cancel(call)
        return Answer(b"answered", headers=PLAIN)

    async def leave(self, _: Scope, receive: Receive, send: Send) -> None:
        """An application that sets a context variable, and answers with its value from before."""
        found = LEFT.get()
        LEFT.set("left behind")
        self.seen.append(asyncio.current_task())
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(found))]})
        await send({"type": "http.response.body", "body": found.encode()})

    def prepare(self, app: App) -> None:
        handlers: list[Callable] = [self.note, self.wait, self.cancel, self.swallow]  # type: ignore[type-arg]
        for handler in handlers:
            path = f"/{handler.__name__}"
            serve(app, Api(path, f"GET {path}", "", request=None, response=None, status=200, tag="Tests"), handler)
        app.router.routes.append(Route("/leave", endpoint=AsgiApplication(self.leave)))


@pytest.fixture
def tasks() -> Tasks:
    return Tasks()


@pytest.fixture
def server(tasks: Tasks) -> Iterator[EdgeServer]:
    with edge_server(prepare=tasks.prepare) as server:
        yield server


def get(server: EdgeServer, path: str, request_id: str = "r") -> bytes:
    with Raw(server.port) as raw:
        raw.send(f"GET {path} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {request_id}\r\n\r\n".encode())
        return raw.answer().body


def test_a_task_serves_the_next_request_of_any_connection(server: EdgeServer, tasks: Tasks) -> None:
    assert [get(server, "/note", request_id) for request_id in ("one", "two", "three")] == [b"one", b"two", b"three"]
    assert len(set(tasks.seen)) == 1


def test_requests_at_the_same_time_have_tasks_of_their_own_and_few_stay(server: EdgeServer, tasks: Tasks) -> None:
    many = MOST_IDLE + 6
    connections = [Raw(server.port) for _ in range(many)]
    for number, raw in enumerate(connections):
        raw.send(f"GET /wait HTTP/1.1\r\nHost: a\r\nX-Request-Id: r{number}\r\n\r\n".encode())
    wait_until(lambda: tasks.waiting == many)
    tasks.go_on.set()
    assert [raw.answer().body for raw in connections] == [b"r%d" % number for number in range(many)]
    for raw in connections:
        raw.socket.close()
    assert len(set(tasks.seen)) == many
    wait_until(lambda: sum(not task.done() for task in tasks.seen if task is not None) == MOST_IDLE)


def test_a_cancelled_request_ends_its_task_alone(server: EdgeServer, tasks: Tasks) -> None:
    with Raw(server.port) as raw:
        raw.send(b"GET /cancel HTTP/1.1\r\nHost: a\r\n\r\n")
        assert raw.rest() == b""  # reset: it has no answer
    assert get(server, "/note", "next") == b"next"
    cancelled, after = tasks.seen
    assert cancelled is not after
    assert cancelled is not None
    assert cancelled.cancelled()


def test_a_task_that_swallowed_its_cancellation_serves_no_other_request(server: EdgeServer, tasks: Tasks) -> None:
    assert get(server, "/swallow") == b"answered"
    assert get(server, "/note", "next") == b"next"
    cancelled, after = tasks.seen
    assert cancelled is not after


def test_a_task_that_was_cancelled_while_idle_gets_no_request(server: EdgeServer, tasks: Tasks) -> None:
    get(server, "/note")
    (idle,) = tasks.seen
    assert idle is not None
    done = threading.Event()

    def cancel() -> None:
        idle.cancel()
        idle.add_done_callback(lambda _: done.set())

    server.loop.call_soon_threadsafe(cancel)
    assert get(server, "/note", "next") == b"next"
    assert done.wait(60)
    assert tasks.seen[1] is not idle


def test_an_application_leaves_no_context_variable_to_the_next_request(server: EdgeServer, tasks: Tasks) -> None:
    assert [get(server, "/leave") for _ in range(3)] == [b"", b"", b""]
    assert len(set(tasks.seen)) == 3

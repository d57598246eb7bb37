"""Middleware and dependencies see each request first, whatever serves it; without them endpoints are served straight.

The calls are rows of the gateway, with handlers of their own, and come over a socket through our protocol.
"""

from collections.abc import Awaitable, Callable, Iterator

import pytest
from fastapi import Depends, HTTPException, Request
from fastapi.routing import APIRoute
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sharequeue.http.answer import Answer, Stream
from sharequeue.http.application.app import App, create_app, serve
from sharequeue.http.application.endpoint import Call
from sharequeue.http.origins import Callers
from sharequeue.protocol import apis
from tests.hostile.edge_server import EdgeServer, edge_server
from tests.hostile.raw import Answered, Raw, head
from tests.http.calls import wait_until

BODIES = {
    apis.PRODUCE_RECORDS: b'{"records":[{"value":1}]}',
    apis.PRODUCE_RAW_RECORD: b"bytes",
    apis.PRODUCE_ARROW: b"bytes",
    apis.FETCH_RECORDS: b'{"topics":["a"]}',
    apis.ACKNOWLEDGE_RECORDS: b'{"member_id":"m","acknowledgements":[]}',
    apis.LIVEZ: b"",
    apis.READ_RECORDS: b"",
}
"""Calls, and the body of a request. READ_RECORDS streams its answer."""
CALLS = [pytest.param(api, id=api.operation_id) for api in BODIES]


class Refusing:
    """Refuses every request before it is read."""

    def __init__(self, app: ASGIApp) -> None:
        pass

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await JSONResponse({"refused": scope["path"]}, status_code=403)(scope, receive, send)


class Passing:
    """Passes each request on and keeps its path."""

    def __init__(self, app: ASGIApp, seen: list[str]) -> None:
        self._app = app
        self._seen = seen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._seen.append(scope["path"])
        await self._app(scope, receive, send)


async def pass_on(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    return await call_next(request)


async def refuse() -> None:
    raise HTTPException(403, "nobody may call", headers={"WWW-Authenticate": "Bearer"})


async def read_body(request: Request) -> None:
    await request.body()


def add_rows(app: App) -> None:
    """Serve the calls: each handler answers the path parameters and the size of the body."""

    async def parts(call: Call):  # type: ignore[no-untyped-def]
        yield b"one "
        yield repr(dict(call.path)).encode()

    async def stream(call: Call) -> Stream:
        return Stream(parts(call), ())

    async def tell(call: Call) -> Answer:
        return Answer(repr((dict(call.path), len(call.raw), call.exchange.gone())).encode())

    for api in BODIES:
        serve(app, api, stream if api is apis.READ_RECORDS else tell)


def ask(server: EdgeServer, api: apis.Api, topic: str = "a%2Fb", *headers: str) -> Answered:
    """Call over a connection of its own. Slashes of names are encoded."""
    path = api.path.format(topic=topic, group="g", partition=0)
    with Raw(server.port) as raw:
        lines = ("Content-Type: application/json", f"Content-Length: {len(BODIES[api])}", *headers)
        raw.send(head(f"{api.method} {path}", *lines) + BODIES[api])
        return raw.answer()


def straight_answers() -> dict[str, bytes]:
    with edge_server(prepare=add_rows) as server:
        assert server.edge.paths is not None
        return {api.operation_id: ask(server, api).body for api in BODIES}


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    """What each call answers where nothing is in between."""
    return straight_answers()


def refusing_middleware(app: App) -> None:
    add_rows(app)
    app.add_middleware(Refusing)


def refusing_dependency(app: App) -> None:
    app.router.dependencies.append(Depends(refuse))
    add_rows(app)


def late_refusing_dependency(app: App) -> None:
    add_rows(app)
    app.router.dependencies.append(Depends(refuse))


@pytest.fixture(scope="module", params=[refusing_middleware, refusing_dependency, late_refusing_dependency])
def refusing(request: pytest.FixtureRequest) -> Iterator[EdgeServer]:
    with edge_server(prepare=request.param) as server:
        yield server


@pytest.mark.parametrize("api", CALLS)
def test_middleware_that_refuses_everything_refuses_each_call(refusing: EdgeServer, api: apis.Api) -> None:
    assert ask(refusing, api).status == 403


def test_a_refusal_of_a_dependency_is_a_problem_document() -> None:
    with edge_server(prepare=refusing_dependency) as server:
        answer = ask(server, apis.FETCH_RECORDS, "t", "X-Request-Id: mine")
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.headers["www-authenticate"], answer.headers["x-request-id"]) == ("Bearer", "mine")
    assert b'"detail":"nobody may call"' in answer.body


def test_middleware_sees_each_request_and_changes_no_answer(expected: dict[str, bytes]) -> None:
    seen: list[str] = []

    def prepare(app: App) -> None:
        add_rows(app)
        app.add_middleware(Passing, seen=seen)

    with edge_server(prepare=prepare) as server:
        assert {api.operation_id: ask(server, api).body for api in BODIES} == expected
    assert seen == [api.path.format(topic="a%2Fb", group="g", partition=0) for api in BODIES]


@pytest.mark.parametrize("several", [False, True])
def test_middleware_that_reads_ahead_changes_no_answer(expected: dict[str, bytes], several: bool) -> None:
    """Starlette's own way to write middleware: it waits for the disconnect and hands the body on."""

    def prepare(app: App) -> None:
        add_rows(app)
        for _ in range(1 + several):
            app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)
        app.router.dependencies.append(Depends(read_body))

    with edge_server(prepare=prepare) as server:
        assert {api.operation_id: ask(server, api).body for api in BODIES} == expected


@pytest.mark.parametrize("several", [False, True])
def test_a_client_that_leaves_is_noticed_behind_middleware(several: bool) -> None:
    def prepare(app: App) -> None:
        for _ in range(1 + several):
            app.add_middleware(BaseHTTPMiddleware, dispatch=pass_on)

    with edge_server(prepare=prepare) as server:
        with Raw(server.port) as raw:
            raw.send(head("GET /wait"))
            wait_until(lambda: not server.edge.idle)
        assert server.gone.wait(60)


def test_middleware_comes_too_late_once_the_application_is_served() -> None:
    app = create_app("edge", "for tests")
    assert app.straight is app.paths
    with pytest.raises(RuntimeError, match="has started"):
        app.add_middleware(Refusing)


def test_the_check_of_callers_leaves_endpoints_served_straight() -> None:
    app = create_app("edge", "for tests", Callers())
    assert app.straight is app.paths


def test_middleware_sees_a_preflight_before_the_check_of_callers() -> None:
    app = create_app("edge", "for tests", Callers())
    app.add_middleware(Passing, seen=[])
    assert [middleware.cls.__name__ for middleware in app.user_middleware] == ["Passing", "CheckedCallers"]
    assert app.straight is None


def test_each_endpoint_is_a_route_of_the_application() -> None:
    app = create_app("edge", "for tests")
    add_rows(app)
    routes = {(route.name, route.path) for route in app.routes if isinstance(route, APIRoute)}
    assert routes == {(api.operation_id, api.path) for api in BODIES}

"""The application of a service: FastAPI, with a route for each row of `sharequeue.protocol.apis` and its handler.

    request ──▶ HttpProtocol ──straight──────────────────────────────────▶ Endpoint.serve
                     │                                                          ▲
                     └──ASGI──▶ middleware ──▶ router ──▶ dependencies ─────────┤
                                     │            └──▶ routes of FastAPI, 404, 405
                                     └──▶ refused

An endpoint checks, reads, answers and fails by itself, so ASGI adds nothing but a tenth of the CPU of a call. The
protocol serves it straight, as long as there is nothing on the other way that must see the request.
`App.straight` decides that.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from sharequeue.http.application.asgi_exchange import AsgiExchange
from sharequeue.http.application.checked_callers import CheckedCallers
from sharequeue.http.application.endpoint import Admission, Endpoint, Handler
from sharequeue.http.application.paths import Paths, split_path
from sharequeue.http.origins import Callers
from sharequeue.http.problems import problem_answer
from sharequeue.http.request_id import request_id_from
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import ApiError, InvalidRequest, UnknownPath
from sharequeue.protocol.types import MAX_CALL_BYTES

DEFAULT_MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
INTERNAL_MAX_REQUEST_BYTES: Final = 128 * 1024 * 1024
"""The limit for calls between services: a client's request can become a several times larger write of state."""


class App(FastAPI):
    """A FastAPI application whose endpoints may be served past ASGI. `callers` is asked about each request."""

    def __init__(self, title: str, description: str, callers: Callers | None) -> None:
        self.paths = Paths()
        self.callers = callers
        self._answers: dict[Callable[..., Any], Endpoint] = {}
        """The endpoint of each route, by the function that FastAPI calls for the route."""
        self._own = [] if callers is None else [Middleware(CheckedCallers, callers=callers, paths=self.paths)]
        super().__init__(
            title=title, description=description, docs_url=None, redoc_url=None, openapi_url=None, middleware=self._own
        )

    def add_endpoint(self, endpoint: Endpoint) -> None:
        """Make an endpoint a route."""

        async def answer(request: Request) -> Response:
            return _EndpointResponse(endpoint, request, self._parameters(endpoint, request))

        self.paths.add(endpoint)
        self._answers[answer] = endpoint
        self._add_route(answer)

    def _add_route(self, answer: Callable[..., Any]) -> None:
        api = self._answers[answer].api
        methods = ["GET", "HEAD"] if api.method == "GET" else [api.method]
        self.add_api_route(
            api.path, answer, methods=methods, name=api.operation_id, response_model=None, include_in_schema=False
        )

    def _parameters(self, endpoint: Endpoint, request: Request) -> Mapping[str, str]:
        """The parameters in the path as it was sent; in the router's path a slash within a name is still encoded."""
        found = self.paths.find(endpoint.api.method.encode(), request.scope["raw_path"])
        return request.path_params if found is None or found.endpoint is not endpoint else found.parameters

    @cached_property
    def straight(self) -> Paths | None:
        """The endpoints that are served past ASGI; None: middleware or a dependency must see each request first.

        This is decided once, at the first request or before. Middleware cannot be added after that.
        """
        dependencies = self.router.dependencies
        routes = self.router.routes
        for index, route in enumerate(routes):  # FastAPI gives a route the dependencies that there are when it is added
            if isinstance(route, APIRoute) and route.endpoint in self._answers and route.dependencies != dependencies:
                self._add_route(route.endpoint)
                routes[index] = routes.pop()
        return None if dependencies or self.user_middleware != self._own else self.paths

    def add_middleware(self, middleware_class: Any, *args: Any, **kwargs: Any) -> None:
        if "straight" in vars(self):
            raise RuntimeError("the application has started; add middleware before that")
        super().add_middleware(middleware_class, *args, **kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _, scope["path"] = split_path(scope["raw_path"].decode("ascii"))
            _ = self.straight
        await super().__call__(scope, receive, send)


class _EndpointResponse(Response):
    """Stands for a response to FastAPI. When FastAPI sends it, the endpoint reads the request and answers."""

    def __init__(self, endpoint: Endpoint, request: Request, parameters: Mapping[str, str]) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._request = request
        self._parameters = parameters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = AsgiExchange(self._request, send)
        try:
            await self._endpoint.serve(exchange, self._parameters)
        finally:
            exchange.close()
        if self.background is not None:
            await self.background()


def create_app(title: str, description: str, callers: Callers | None = None) -> App:
    """A FastAPI application that answers problem documents for unknown paths and methods too.

    Args:
        callers: which requests are served; None: those of any caller.
    """
    app = App(title, description, callers)
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, _http_problem)
    return app


def serve(
    app: App,
    api: Api,
    handler: Handler,
    *,
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
    cluster_token: str | None = None,
    protect: bool = False,
    admission: Admission | None = None,
) -> None:
    """Make `api` a route of `app`.

    Args:
        handler: takes a Call, returns the response message, an Answer that is already bytes, or a Stream. May raise
            ApiError.
        max_request_bytes: a larger body of a client is refused with 413, and one of more than MAX_CALL_BYTES if the
            call is not `large`; internal calls have a limit of their own.
        cluster_token: the token that internal calls must bring; None: they need none.
        protect: this call needs the token too, although it is not internal.
        admission: asked before and after a body is read; None: nothing is bounded.
    """
    limit = max_request_bytes if api.large else min(max_request_bytes, MAX_CALL_BYTES)
    if api.internal:
        limit = INTERNAL_MAX_REQUEST_BYTES
    app.add_endpoint(Endpoint(api, handler, limit, cluster_token, protect, app.callers, admission))


async def _http_problem(request: Request, exception: Exception) -> Response:
    """The problem document for a 404 or 405 of Starlette, or for an HTTPException of a dependency."""
    assert isinstance(exception, HTTPException)
    headers: dict[str, str] = {}
    path = request.url.path
    error: ApiError
    if exception.status_code == 404:
        error = UnknownPath(f"there is nothing at {path}; /openapi.json lists what there is")
    elif exception.status_code == 405:
        error = InvalidRequest(f"{path} does not take {request.method}", status=405)
        routes = [route for route in request.app.router.routes if isinstance(route, Route)]
        here = [route for route in routes if route.path_regex.match(path)]
        headers["allow"] = ", ".join(sorted({method for route in here for method in route.methods or ()}))
    else:
        error = InvalidRequest(str(exception.detail), status=exception.status_code)
        headers.update(exception.headers or {})
    request_id = request_id_from(request.headers.get("x-request-id", "").encode())
    answer = problem_answer(error, request_id)
    own = {name.decode(): value.decode() for name, value in answer.headers}
    return Response(answer.body, error.status, {**headers, **own, "x-request-id": request_id})

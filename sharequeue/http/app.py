"""The application of a service: FastAPI, with a route for each row of `sharequeue.protocol.apis` and its handler."""

from typing import Final

import starlette.requests
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from sharequeue.http.answer import Answer
from sharequeue.http.endpoint import Admission, Endpoint, Handler
from sharequeue.http.exchange import AsgiExchange, Headers
from sharequeue.http.origins import Callers, Pairs
from sharequeue.http.paths import Paths, split_path
from sharequeue.http.problems import problem_answer
from sharequeue.http.request_id import request_id_from
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import ApiError, InvalidRequest, UnknownPath

DEFAULT_MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
INTERNAL_MAX_REQUEST_BYTES: Final = 128 * 1024 * 1024
"""What services may send each other: a client's request can become a several times larger write of state."""


class App(FastAPI):
    """FastAPI, but our endpoints are called straight away.

    They read, answer and fail by themselves; the layers around a FastAPI route would cost them a tenth of the CPU of a
    call. Everything else, unknown paths and methods first of all, takes the usual way. `callers` is asked about each
    request first, whichever way it takes.
    """

    def __init__(self, title: str, description: str, callers: Callers | None) -> None:
        super().__init__(title=title, description=description, docs_url=None, redoc_url=None, openapi_url=None)
        self.paths = Paths()
        self.callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _, scope["path"] = split_path(scope["raw_path"].decode("ascii"))
            found = self.paths.find(scope["method"].encode(), scope["raw_path"])
            if found is not None:
                scope["path_params"] = found.parameters
                await found.endpoint(scope, receive, send)
                return
            if self.callers is not None:
                await self._admitted(self.callers, scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    async def _admitted(self, callers: Callers, scope: Scope, receive: Receive, send: Send) -> None:
        """What is not for an endpoint, of callers that are checked."""
        sent: Headers = scope["headers"]
        headers = dict(sent)
        shared = callers.answer_headers(headers.get(b"origin"))
        request_id = request_id_from(headers.get(b"x-request-id"))
        try:
            refusal = callers.refusal(scope["method"], sent, headers)
            if refusal is not None:
                raise refusal
            preflight = callers.preflight(scope["method"], headers)
            answer = None if preflight is None else Answer(b"", status=200, headers=preflight)
        except ApiError as error:
            answer = problem_answer(error, request_id)
        if answer is None:
            await super().__call__(scope, receive, _with_headers(send, shared) if shared else send)
            return
        exchange = AsgiExchange(scope, receive, send)
        await exchange.answer(
            answer.status or 200, (*answer.headers, (b"x-request-id", request_id.encode()), *shared), answer.body
        )


def _with_headers(send: Send, headers: Pairs) -> Send:
    """`send` with headers that an answer gets besides, unless it has them: an endpoint that FastAPI called adds them too."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message["headers"]
            message = {**message, "headers": [*own, *(pair for pair in headers if pair not in own)]}
        await send(message)

    return send_with_headers


def create_app(title: str, description: str, callers: Callers | None = None) -> App:
    """A FastAPI application whose unknown paths and methods answer problem documents too.

    Args:
        callers: which requests are served; None: those of any caller.
    """
    app = App(title, description, callers)
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, _no_such_route)
    return app


def serve(
    app: "App",
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
        max_request_bytes: a larger body of a client is refused with 413; internal calls have a limit of their own.
        cluster_token: what internal calls must bring; None asks nothing.
        protect: ask the token of this call too, although clients may make it elsewhere.
        admission: asked before and after a body is read; None lets all in.
    """
    limit = INTERNAL_MAX_REQUEST_BYTES if api.internal else max_request_bytes
    endpoint = Endpoint(api, handler, limit, cluster_token, protect, app.callers, admission)
    app.router.routes.append(Route(api.path, endpoint=endpoint, methods=[api.method], name=api.operation_id))
    app.paths.add(endpoint)


async def _no_such_route(request: starlette.requests.Request, exception: Exception) -> Response:
    """404 and 405, which Starlette raises."""
    status = exception.status_code if isinstance(exception, HTTPException) else 500
    error: ApiError = UnknownPath(f"there is nothing at {request.url.path}; /openapi.json lists what there is")
    if status == 405:
        error = InvalidRequest(f"{request.url.path} does not take {request.method}", status=405)
    request_id = request_id_from(request.headers.get("x-request-id", "").encode())
    answer = problem_answer(error, request_id)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    if status == 405:
        routes = [route for route in request.app.router.routes if isinstance(route, Route)]
        here = [route for route in routes if route.path_regex.match(request.url.path)]
        headers["allow"] = ", ".join(sorted({method for route in here for method in route.methods or ()}))
    return Response(answer.body, status, {**headers, "x-request-id": request_id})

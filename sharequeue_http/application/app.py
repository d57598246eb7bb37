"""The application of a service: the endpoints of its calls, and FastAPI for everything else.

    request ──▶ HttpProtocol ──▶ the path and method of a call ──▶ Endpoint.serve
                     │
                     └──ASGI──▶ CheckedCallers ──▶ routes of FastAPI: pages for people, 404, 405
                                      └──▶ refused, or a preflight answered

An endpoint checks, reads, answers and fails by itself. ASGI would add nothing but a tenth of the CPU of a call, so no
call goes that way. Middleware is refused, because it would not see the calls.
"""

from typing import Any, Final, NoReturn

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Admission, Endpoint, Guard, Handler
from sharequeue_http.application.pace import Pace
from sharequeue_http.application.paths import Paths
from sharequeue_http.exchange import Headers, request_id_from, split_path
from sharequeue_http.forms.api import MAX_CALL_BYTES, Api
from sharequeue_http.forms.errors import ApiError, InvalidRequest, UnknownPath
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.origins import Callers, Pairs
from sharequeue_http.problems import problem_answer

DEFAULT_MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
INTERNAL_MAX_REQUEST_BYTES: Final = 128 * 1024 * 1024
"""The limit for calls between services: a client's request can become a several times larger write of state."""


class App(FastAPI):
    """A FastAPI application, and the endpoints that are served past it. `callers` is asked about each request."""

    def __init__(self, title: str, description: str, callers: Callers | None) -> None:
        self.paths = Paths()
        self.callers = callers
        self.pace = Pace()
        checks = [] if callers is None else [Middleware(CheckedCallers, callers=callers)]
        super().__init__(
            title=title, description=description, docs_url=None, redoc_url=None, openapi_url=None, middleware=checks
        )

    def add_middleware(self, middleware_class: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("no middleware sees the calls of this application: put a proxy before the service")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _, scope["path"] = split_path(scope["raw_path"].decode("ascii"))
        await super().__call__(scope, receive, send)


class CheckedCallers:
    """Middleware that asks `Callers` about the requests that no endpoint answers; an endpoint asks by itself.

    It refuses requests for other hosts and of other origins, answers preflights, and lets pages read the answers.
    """

    def __init__(self, app: ASGIApp, callers: Callers) -> None:
        self._app = app
        self._callers = callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent: Headers = scope["headers"]
        headers = dict(sent)
        shared = self._callers.answer_headers(headers.get(b"origin"))
        request_id = request_id_from(headers.get(b"x-request-id"))
        try:
            refusal = self._callers.refusal(scope["method"], sent, headers)
            if refusal is not None:
                raise refusal
            preflight = self._callers.preflight(scope["method"], headers)
            answer = None if preflight is None else Answer(b"", status=200, headers=preflight)
        except ApiError as error:
            answer = problem_answer(error, request_id)
        if answer is None:
            await self._app(scope, receive, _with_headers(send, shared) if shared else send)
            return
        own = (b"x-request-id", request_id.encode()), (b"content-length", b"%d" % len(answer.body))
        answer_headers = [*answer.headers, *own, *shared]
        await send({"type": "http.response.start", "status": answer.status or 200, "headers": answer_headers})
        await send({"type": "http.response.body", "body": answer.body})


def _with_headers(send: Send, headers: Pairs) -> Send:
    """`send` with further headers for an answer."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return send_with_headers


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
    guard: Guard | None = None,
) -> None:
    """Make an endpoint of `api` in `app`.

    Args:
        handler: takes a Call, returns the response message, an Answer that is already bytes, or a Stream. May raise
            ApiError.
        max_request_bytes: a larger body of a client is refused with 413, and one of more than MAX_CALL_BYTES if the
            call is not `large`; internal calls have a limit of their own.
        cluster_token: the token that internal calls must bring; None: they need none.
        protect: this call needs the token too, although it is not internal.
        admission: asked before and after a body is read; None: nothing is bounded.
        guard: asked who calls and what it may do; None: everybody may make this call.
    Raises: ValueError: there is a guard, and the row does not say what its callers need.
    """
    limit = max_request_bytes if api.large else min(max_request_bytes, MAX_CALL_BYTES)
    if guard is not None and api.access is None:
        raise ValueError(f"{api.operation_id} does not say what its callers need")
    if api.internal:
        limit = INTERNAL_MAX_REQUEST_BYTES
    app.paths.add(Endpoint(api, handler, limit, cluster_token, protect, app.callers, admission, guard, app.pace))


async def _http_problem(request: Request, exception: Exception) -> Response:
    """The problem document for a 404 or 405 of Starlette. A path with endpoints takes their methods alone."""
    assert isinstance(exception, HTTPException)
    path = request.url.path
    allowed = request.app.paths.methods(request.scope["raw_path"])
    headers = {"allow": ", ".join(allowed)} if allowed else dict(exception.headers or {})
    error: ApiError
    if allowed or exception.status_code == 405:
        error = InvalidRequest(f"{quoted(path)} does not take {quoted(request.method)}", status=405)
    elif exception.status_code == 404:
        known = "; /openapi.json lists what there is" if request.app.paths.find(b"GET", b"/openapi.json") else ""
        error = UnknownPath(f"there is nothing at {quoted(path)}{known}")
    else:
        error = InvalidRequest(str(exception.detail), status=exception.status_code)
    request_id = request_id_from(request.headers.get("x-request-id", "").encode())
    answer = problem_answer(error, request_id)
    fixed = {name.decode(): value.decode() for name, value in answer.headers}
    return Response(answer.body, error.status, {**headers, **fixed, "x-request-id": request_id})

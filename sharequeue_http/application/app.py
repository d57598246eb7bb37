"""The application of a service: the endpoints of its calls, and FastAPI for everything else.

    request ──▶ HttpProtocol ──▶ the path and method of a call ──▶ Endpoint.serve
                     │
                     └──ASGI──▶ App ──▶ routes of FastAPI: pages for people, 404, 405
                                 └──▶ refused, or a preflight answered

An endpoint checks, reads, answers and fails by itself. ASGI would add nothing but a tenth of the CPU of a call, so no
call goes that way. Middleware is refused, because it would not see the calls.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final, NoReturn

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharequeue_http.answer import Answer
from sharequeue_http.application.endpoint import Endpoint, Guard, Handler
from sharequeue_http.application.pace import Pace
from sharequeue_http.application.paths import Paths
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.exchange import Headers, request_id_from, split_path
from sharequeue_http.forms.api import MAX_CALL_BYTES, Api
from sharequeue_http.forms.errors import ApiError, InvalidRequest, UnknownPath
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.origins import Callers
from sharequeue_http.problems import problem_answer

DEFAULT_MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
INTERNAL_MAX_REQUEST_BYTES: Final = 128 * 1024 * 1024
"""The limit for calls between services: a client's request can become a several times larger write of state."""


class App(FastAPI):
    """A FastAPI application, and the endpoints that are served past it. It answers problem documents for unknown paths
    and methods.

    `callers`: asked about each request; None: any caller is served.
    """

    def __init__(self, title: str, description: str, callers: Callers | None = None) -> None:
        self.paths = Paths()
        self.callers = callers
        self.pace = Pace()
        super().__init__(title=title, description=description, docs_url=None, redoc_url=None, openapi_url=None)
        self.router.redirect_slashes = False
        self.add_exception_handler(HTTPException, _http_problem)

    def add_middleware(self, middleware_class: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError("no middleware sees the calls of this application: put a proxy before the service")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that no endpoint answers. As an endpoint, refuse other hosts and origins, answer preflights,
        and let pages read the answers."""
        _, scope["path"] = split_path(scope["raw_path"].decode("ascii"))
        answered: ASGIApp = super().__call__
        if (callers := self.callers) is None:
            await answered(scope, receive, send)
            return
        sent: Headers = scope["headers"]
        headers = dict(sent)
        request_id = request_id_from(headers.get(b"x-request-id"))
        if (refusal := callers.refusal(scope["method"], sent, headers)) is not None:
            answered = _response(problem_answer(refusal, request_id), request_id)
        elif (preflight := callers.preflight(scope["method"], headers)) is not None:
            answered = _response(Answer(b"", headers=preflight), request_id)
        shared = callers.answer_headers(headers.get(b"origin"))

        async def send_shared(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *shared]}
            await send(message)

        await answered(scope, receive, send_shared)


def calls_of(table: ModuleType, *handlers: object) -> Iterator[tuple[Api, Handler]]:
    """Pair each call of a table with its handler: the method that is named as its row, in lower case."""
    rows = {name.lower(): row for name, row in vars(table).items() if isinstance(row, Api)}
    for each in handlers:
        yield from ((row, getattr(each, name)) for name, row in rows.items() if hasattr(each, name))


def serve(
    app: App,
    api: Api,
    handler: Handler,
    *,
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
    cluster_token: str | None = None,
    protect: bool = False,
    admission: Ceiling | None = None,
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
        admission: bounds the bytes of bodies that are read and not answered; asked before and after a body is read.
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
    path = request.scope["path"]
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
    return _response(problem_answer(error, request_id), request_id, headers)


def _response(answer: Answer, request_id: str, more: Mapping[str, str] = MappingProxyType({})) -> Response:
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    return Response(answer.body, answer.status or 200, {**more, **headers, "x-request-id": request_id})

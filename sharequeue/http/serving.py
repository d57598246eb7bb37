"""The serving end of the calls: a row of `sharequeue.protocol.apis` and a handler become a route.

Decodes with msgspec, maps every exception to a problem document (RFC 9457), echoes request ids, measures.
"""

import asyncio
import contextlib
import hmac
import itertools
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

import msgspec
import starlette.requests
from fastapi import FastAPI
from prometheus_client import Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from sharequeue.http.caller import encode
from sharequeue.http.exchange import AsgiExchange, ClientGone, Exchange, Headers, too_large
from sharequeue.http.origins import Callers, Pairs
from sharequeue.http.texts import convert_texts
from sharequeue.log import REQUEST, RequestContext, fields
from sharequeue.protocol.apis import Api
from sharequeue.protocol.bounds import HARMLESS, TooMany
from sharequeue.protocol.errors import ApiError, ClusterAuthorizationFailed, InvalidRequest, UnknownPath
from sharequeue.protocol.messages import PointedDetail, Problem

log = logging.getLogger(__name__)

JSON: Final = (b"content-type", b"application/json")
PROBLEM_JSON: Final = (b"content-type", b"application/problem+json")
DEFAULT_MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
INTERNAL_MAX_REQUEST_BYTES: Final = 128 * 1024 * 1024
"""What services may send each other: a client's request can become a several times larger write of state."""

REQUEST_SECONDS = Histogram(
    "sharequeue_http_request_seconds",
    "Time to answer a request, long polls included, by operation and status.",
    ["operation", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)

REFUSED = Counter(
    "sharequeue_http_refused",
    "Requests that were refused for what they asked of the service, by status.",
    ["status"],
)
_REFUSALS: Final = {status: REFUSED.labels(str(status)) for status in (403, 408, 413, 414, 421, 429, 431)}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is already bytes, or has headers of its own."""

    body: bytes
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose parts are sent as they come to be; one that nobody takes waits. If making the parts fails, the
    connection ends, so that the client cannot take a piece for the whole."""

    parts: AsyncGenerator[bytes, None]
    headers: tuple[tuple[bytes, bytes], ...]


class Call:
    """One request as its handler sees it: path parameters, headers, the decoded body or query."""

    __slots__ = ("exchange", "path", "raw", "request", "request_id")

    def __init__(self, exchange: Exchange, path: Mapping[str, str], raw: bytes, request: Any, request_id: str) -> None:
        self.exchange = exchange
        self.path = path
        self.raw = raw
        self.request = request
        self.request_id = request_id

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        for header, value in self.exchange.headers:
            if header == wanted:
                return str(value, "latin-1")
        return None


Handler = Callable[[Call], Awaitable[Any]]


class Admission(Protocol):
    """Bounds the bytes of requests in hand. A request is always taken when there is no other."""

    def check(self, size: int) -> None:
        """Whether a body that says to have so many bytes would be taken now. Raises: ApiError (429)."""

    def take(self, size: int) -> None:
        """A body of so many bytes was read. Raises: ApiError (429): there is no room for it."""

    def release(self, size: int) -> None:
        """The request that was taken is answered."""


class Endpoint:
    """What answers one call: an exchange that `serve` is given, or as an ASGI application."""

    def __init__(
        self,
        api: Api,
        handler: Handler,
        max_request_bytes: int,
        cluster_token: str | None,
        protect: bool,
        callers: Callers | None,
        admission: Admission | None,
    ) -> None:
        self.api = api
        self._admission = admission
        self._handler = handler
        self._callers = callers
        self._max_request_bytes = max_request_bytes
        protected = cluster_token is not None and (api.internal or protect)
        self._authorization = f"Bearer {cluster_token}".encode() if protected else None
        has_type = api.request is not None
        self._decoder = msgspec.json.Decoder(api.request) if has_type and not api.query_parameters else None
        self._check_body = None if api.internal else api.check_body
        self.takes_body = api.raw_body or self._decoder is not None
        self._seconds: dict[int, Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.serve(AsgiExchange(scope, receive, send), scope["path_params"])

    async def serve(self, exchange: Exchange, path: Mapping[str, str]) -> None:
        """Answer one request. `path`: the parameters in its path."""
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(exchange.headers)
        request_id = request_id_from(headers.get(b"x-request-id"))
        traceparent = headers.get(b"traceparent")
        token = REQUEST.set(RequestContext(request_id, traceparent.decode("latin-1") if traceparent else None))
        status = 499
        try:
            answer = await self._answer(exchange, path, headers, request_id)
            shared = () if self._callers is None else self._callers.answer_headers(headers.get(b"origin"))
            answer_headers = (*answer.headers, (b"x-request-id", request_id.encode()), *shared)
            if isinstance(answer, Answer):
                status = self.api.status if answer.status is None else answer.status
                await exchange.answer(status, answer_headers, answer.body)
            else:
                status = self.api.status
                await exchange.start(status, answer_headers)
                async with contextlib.aclosing(answer.parts) as parts:
                    async for part in parts:
                        await exchange.write(part)
                await exchange.finish()
        except ClientGone:
            log.debug("client hung up before its request was whole", extra=fields(operation=self.api.operation_id))
        finally:
            REQUEST.reset(token)
            seconds = self._seconds.get(status)
            if seconds is None:
                seconds = self._seconds[status] = REQUEST_SECONDS.labels(self.api.operation_id, str(status))
            seconds.observe(time.perf_counter() - started)

    async def _answer(
        self, exchange: Exchange, path: Mapping[str, str], headers: dict[bytes, bytes], request_id: str
    ) -> Answer | Stream:
        taken = 0
        try:
            if self._callers is not None:
                refusal = self._callers.refusal(self.api.method, exchange.headers, headers)
                if refusal is not None:
                    raise refusal
            if self._authorization is not None:
                self._authorise(headers, self._authorization)
            raw = b""
            if self.takes_body:
                length = self._check_head(headers)
                if self._admission is not None:
                    self._admission.check(length)
                raw = await exchange.read(self._max_request_bytes)
                if self._admission is not None:
                    self._admission.take(len(raw))
                    taken = len(raw)
            request = self._decode(exchange.query, raw)
            call = Call(exchange, path, raw, request, request_id)
            raw = b""  # the handler lets go of it as soon as it can
            result = await self._handler(call)
            if isinstance(result, Answer | Stream):
                return result
            return Answer(b"", headers=()) if self.api.status == 204 else Answer(encode(result))
        except ApiError as error:
            return problem_answer(error, request_id)
        except ClientGone:
            raise
        except (Exception, asyncio.CancelledError) as fault:
            task = asyncio.current_task()
            if isinstance(fault, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # this request is to end; else something it waited for was cancelled
            log.exception("request failed", extra=fields(operation=self.api.operation_id))
            unexpected = ApiError("the service failed; its log names the cause under this request id")
            return problem_answer(unexpected, request_id)
        finally:
            if taken and self._admission is not None:
                self._admission.release(taken)

    @staticmethod
    def _authorise(headers: dict[bytes, bytes], authorization: bytes) -> None:
        if not hmac.compare_digest(headers.get(b"authorization", b""), authorization):
            raise ClusterAuthorizationFailed("this call is for the services alone and needs the cluster token")

    def _check_head(self, headers: dict[bytes, bytes]) -> int:
        """Refuse what can be refused before the body is asked for. Returns: the body's length; 0 if it does not say."""
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise InvalidRequest("send the body as it is: no Content-Encoding is understood here", status=415)
        if self._decoder is not None:
            media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if media_type != b"application/json" and not media_type.endswith(b"+json"):
                given = media_type.decode("latin-1")
                raise InvalidRequest(
                    f"send JSON with the header Content-Type: application/json, not {given!r}", status=415
                )
        length = headers.get(b"content-length")
        if length is None:
            return 0
        if int(length) > self._max_request_bytes:
            raise too_large(self._max_request_bytes)
        return int(length)

    def _decode(self, query: bytes, raw: bytes) -> Any:
        if self.api.query_parameters:
            return _decode_query(self.api.request, query)
        if self._decoder is None:
            return None
        try:
            if not raw.isascii():
                raw.decode()  # values are kept byte for byte and must be UTF-8 too
            if len(raw) > HARMLESS and self._check_body is not None:
                self._check_body(raw)
            return self._decoder.decode(raw)
        except TooMany as fault:
            raise too_many(fault.pointer, fault.what, fault.limit) from None
        except msgspec.ValidationError as fault:
            raise does_not_fit(str(fault)) from None
        except msgspec.DecodeError as fault:
            raise InvalidRequest(f"the body is not JSON: {fault}", status=422) from None
        except UnicodeDecodeError as fault:
            raise InvalidRequest(f"the body is not UTF-8 at byte {fault.start}", status=422) from None
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply", status=422) from None


def _decode_query(request_type: Any, query_string: bytes) -> Any:
    values: dict[str, str] = {}
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name in values:
            raise InvalidRequest(f"the query parameter {name!r} is given twice", status=422)
        values[name] = value
    try:
        request = convert_texts(values, request_type)
    except msgspec.ValidationError as fault:
        raise does_not_fit(str(fault)) from None
    for name, value in values.items():
        if getattr(request, name) is None:  # msgspec takes the word `null` for None
            detail = f"{value!r} is no value of the query parameter {name!r}; leave it out"
            raise InvalidRequest(detail, status=422, pointers=[(f"/{name}", detail)])
    return request


_TOO_LONG: Final = re.compile(r"Expected `(array|object)` of length <= (\d+)")
_MOST_QUOTED: Final = 500
"""Characters of a fault that are answered: a caller's own text stands in it."""


def does_not_fit(fault: str, within: str = "") -> InvalidRequest:
    """msgspec's "Expected `int`, got `str` - at `$.records[0].key`" as a problem with a JSON pointer.

    Args:
        within: the pointer of what was decoded, if that was a part of the body.
    """
    detail, _, place = fault.partition(" - at `")
    steps = place.rstrip("`").removeprefix("$").replace("[...]", "").replace("[", ".").replace("]", "")
    pointer = within + "".join("/" + step.replace("~", "~0") for step in steps.split(".") if step)
    too_long = _TOO_LONG.match(detail)
    if too_long:
        return too_many(pointer, "entries", int(too_long[2]))
    if len(fault) > _MOST_QUOTED:
        fault, detail, pointer = f"{fault[:_MOST_QUOTED]}…", f"{detail[:_MOST_QUOTED]}…", pointer[:_MOST_QUOTED]
    return InvalidRequest(f"the request does not fit the schema: {fault}", status=422, pointers=[(pointer, detail)])


def too_many(pointer: str, what: str, limit: int) -> InvalidRequest:
    """A list is longer than it may be."""
    return InvalidRequest(
        f"{pointer or 'the body'} has more than {limit} {what}; send them in several requests",
        status=422,
        limit=limit,
        pointers=[(pointer, f"more than {limit} {what}")],
    )


_request_prefix: Final = f"{os.getpid():x}-{time.time_ns():x}"
_request_numbers: Final = itertools.count(1)


def request_id_from(given: bytes | None) -> str:
    """The id of a request: the given one if it is fit to be echoed, else a new one."""
    if given and len(given) <= 128 and given.isascii() and given.decode().isprintable():
        return given.decode()
    return f"{_request_prefix}-{next(_request_numbers):x}"


def problem_of(error: ApiError, request_id: str) -> Problem:
    """The problem document of an error."""
    return Problem(
        type=f"urn:sharequeue:problem:{error.error.code.lower().replace('_', '-')}",
        title=error.error.title,
        status=error.status,
        detail=error.detail,
        code=error.error.code,
        kafka_code=error.error.kafka_code,
        retriable=error.error.retriable,
        definite=error.definite,
        request_id=request_id,
        errors=[PointedDetail(pointer=pointer, detail=detail) for pointer, detail in error.pointers],
        limit=error.limit,
    )


def problem_answer(error: ApiError, request_id: str) -> Answer:
    """The answer for an error: its problem document, `Retry-After` where waiting helps."""
    body = encode({**msgspec.to_builtins(problem_of(error, request_id)), **error.extra})
    headers: tuple[tuple[bytes, bytes], ...] = (PROBLEM_JSON,)
    refusals = _REFUSALS.get(error.status)
    if refusals is not None:
        refusals.inc()
    if error.status in (429, 503):
        headers += ((b"retry-after", b"%d" % max(1, round(error.retry_after_s or 1))),)
    return Answer(body, status=error.status, headers=headers)


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


class Found(NamedTuple):
    """What answers a request. `path`: decoded; `parameters`: those in it."""

    endpoint: Endpoint
    parameters: Mapping[str, str]
    path: str
    query: bytes


def split_path(path: str) -> tuple[list[str], str]:
    """The segments of a path as it was sent, decoded, and the path: a slash in a name parts none and stays encoded."""
    segments = path.split("/")
    if "%" in path:
        segments = [unquote(segment) for segment in segments]
        path = "/".join(segment.replace("/", "%2F") for segment in segments)
    return segments, path


class Paths:
    """Endpoints by method and path: a tree whose branches are segments of paths, None where any will do."""

    END: Final = "/"  # no segment can be that
    MOST_KNOWN: Final = 1024
    LONGEST_KNOWN: Final = 256

    def __init__(self) -> None:
        self._methods: dict[str, dict[str | None, Any]] = {}
        self._known = lru_cache(self.MOST_KNOWN)(self._find)

    def add(self, endpoint: Endpoint) -> None:
        branch = self._methods.setdefault(endpoint.api.method, {})
        names = []
        for segment in endpoint.api.path.split("/"):
            parameter = segment.startswith("{")
            if parameter:
                names.append(segment[1:-1])
            branch = branch.setdefault(None if parameter else segment, {})
        branch[self.END] = (endpoint, names)

    def find(self, method: bytes, target: bytes) -> Found | None:
        """What answers a request, if that is one of the endpoints. `target`: path and query as they were sent."""
        return self._known(method, target) if len(target) <= self.LONGEST_KNOWN else self._find(method, target)

    def _find(self, method: bytes, target: bytes) -> Found | None:
        if not target.startswith(b"/") or not target.isascii() or b"#" in target:
            return None
        sent, _, query = target.partition(b"?")
        segments, path = split_path(sent.decode())
        branch = self._methods.get(method.decode())
        values = []
        for segment in segments:
            if branch is None:
                return None
            if segment != self.END and segment in branch:
                branch = branch[segment]
            else:
                branch = branch.get(None) if segment else None
                values.append(segment)
        if branch is None or self.END not in branch:
            return None
        endpoint, names = branch[self.END]
        return Found(endpoint, dict(zip(names, values, strict=True)), path, query)


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

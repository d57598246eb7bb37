"""One row per call (`sharequeue.protocol.apis`), both ends: `serve` makes it a route, `Client.call` makes it a request.

The server side decodes with msgspec, maps every exception to a problem document (RFC 9457) and echoes request ids.
"""

import asyncio
import contextlib
import hmac
import itertools
import logging
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import aiohttp
import msgspec
import starlette.requests
import yarl
from fastapi import FastAPI
from prometheus_client import Histogram
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from sharequeue.log import REQUEST, RequestContext, fields
from sharequeue.protocol.apis import Api, path_of
from sharequeue.protocol.errors import (
    BY_CODE,
    ApiError,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    InvalidRequest,
    RequestTimedOut,
    TooLarge,
    exception_type,
)
from sharequeue.protocol.messages import PointedDetail, Problem

log = logging.getLogger(__name__)

encode: Final = msgspec.json.Encoder().encode
JSON: Final = (b"content-type", b"application/json")
PROBLEM_JSON: Final = (b"content-type", b"application/problem+json")
DEFAULT_MAX_REQUEST_BYTES: Final = 10 * 1024 * 1024
SHORTEST_ATTEMPT_S: Final = 0.05  # with less time left a definite failure would be repeated into a doubtful one

REQUEST_SECONDS = Histogram(
    "sharequeue_http_request_seconds",
    "Time to answer a request, long polls included, by operation and status.",
    ["operation", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is already bytes, or has headers of its own."""

    body: bytes
    status: int | None = None
    headers: tuple[tuple[bytes, bytes], ...] = (JSON,)


class Call:
    """One request as its handler sees it: path parameters, headers, the decoded body or query."""

    __slots__ = ("_receive", "body", "path", "raw", "request", "request_id", "scope")

    def __init__(
        self, scope: Scope, receive: Receive, path: Mapping[str, str], raw: bytes, request: Any, request_id: str
    ) -> None:
        self.scope = scope
        self.path = path
        self.raw = raw
        self.request = request
        self.request_id = request_id
        self._receive = receive

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        for header, value in self.scope["headers"]:
            if header == wanted:
                return str(value, "latin-1")
        return None

    async def disconnected(self) -> None:
        """Return when the client has hung up."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def gone(self) -> bool:
        """Whether the client has hung up by now, as far as this host has heard."""
        receiving = self._receive()
        try:
            receiving.send(None)  # type: ignore[attr-defined]  # one step: it ends at once if a message is there
        except StopIteration as ended:
            return bool(ended.value["type"] == "http.disconnect")
        receiving.close()  # type: ignore[attr-defined]
        return False


Handler = Callable[[Call], Awaitable[Any]]


class _ClientGone(Exception):
    """The client hung up before its request was read."""


class Endpoint:
    """The ASGI application of one call."""

    def __init__(
        self, api: Api, handler: Handler, max_request_bytes: int, cluster_token: str | None, protect: bool
    ) -> None:
        self.api = api
        self._handler = handler
        self._max_request_bytes = max_request_bytes
        protected = cluster_token is not None and (api.internal or protect)
        self._authorization = f"Bearer {cluster_token}".encode() if protected else None
        has_type = api.request is not None
        self._decoder = msgspec.json.Decoder(api.request) if has_type and not api.query_parameters else None
        self._seconds: dict[int, Histogram] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = request_id_from(headers.get(b"x-request-id"))
        traceparent = headers.get(b"traceparent")
        token = REQUEST.set(RequestContext(request_id, traceparent.decode("latin-1") if traceparent else None))
        status = 499
        try:
            answer = await self._answer(scope, receive, headers, request_id)
            status = self.api.status if answer.status is None else answer.status
            await _send(send, status, answer.headers, answer.body, request_id)
        except _ClientGone:
            log.debug("client hung up before its request was whole", extra=fields(operation=self.api.operation_id))
        finally:
            REQUEST.reset(token)
            seconds = self._seconds.get(status)
            if seconds is None:
                seconds = self._seconds[status] = REQUEST_SECONDS.labels(self.api.operation_id, str(status))
            seconds.observe(time.perf_counter() - started)

    async def _answer(self, scope: Scope, receive: Receive, headers: dict[bytes, bytes], request_id: str) -> Answer:
        try:
            self._authorise(headers)
            raw = await self._read(receive, headers)
            request = self._decode(scope, headers, raw)
            result = await self._handler(Call(scope, receive, scope["path_params"], raw, request, request_id))
            if isinstance(result, Answer):
                return result
            return Answer(b"") if self.api.status == 204 else Answer(encode(result))
        except ApiError as error:
            return problem_answer(error, request_id)
        except _ClientGone:
            raise
        except (Exception, asyncio.CancelledError) as fault:
            task = asyncio.current_task()
            if isinstance(fault, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # this request is to end; else something it waited for was cancelled
            log.exception("request failed", extra=fields(operation=self.api.operation_id))
            unexpected = ApiError("the service failed; its log names the cause under this request id")
            return problem_answer(unexpected, request_id)

    def _authorise(self, headers: dict[bytes, bytes]) -> None:
        if self._authorization is None:
            return
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._authorization):
            raise ClusterAuthorizationFailed("this call is for the services alone and needs the cluster token")

    async def _read(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes:
        limit = self._max_request_bytes
        length = headers.get(b"content-length")
        if length is not None and int(length) > limit:
            raise _request_too_large(limit)
        message = await receive()
        if not message.get("more_body", False):
            body = self._body(message)
            if len(body) > limit:
                raise _request_too_large(limit)
            return body
        parts = [self._body(message)]
        size = len(parts[0])
        while message.get("more_body", False):
            message = await receive()
            parts.append(self._body(message))
            size += len(parts[-1])
            if size > limit:
                raise _request_too_large(limit)
        return b"".join(parts)

    @staticmethod
    def _body(message: Message) -> bytes:
        if message["type"] == "http.disconnect":
            raise _ClientGone
        body: bytes = message.get("body", b"")
        return body

    def _decode(self, scope: Scope, headers: dict[bytes, bytes], raw: bytes) -> Any:
        if self.api.query_parameters:
            return _decode_query(self.api.request, scope["query_string"])
        if self._decoder is None:
            return None
        media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media_type != b"application/json" and not media_type.endswith(b"+json"):
            given = media_type.decode("latin-1")
            raise InvalidRequest(f"send JSON with the header Content-Type: application/json, not {given!r}", status=415)
        try:
            raw.decode()  # values are kept byte for byte and must be UTF-8 too
            return self._decoder.decode(raw)
        except msgspec.ValidationError as fault:
            raise _does_not_fit(str(fault)) from None
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
        return msgspec.convert(values, request_type, strict=False)
    except msgspec.ValidationError as fault:
        raise _does_not_fit(str(fault)) from None


def _does_not_fit(fault: str) -> InvalidRequest:
    """msgspec's "Expected `int`, got `str` - at `$.records[0].key`" as a problem with a JSON pointer."""
    detail, _, place = fault.partition(" - at `")
    steps = place.rstrip("`").removeprefix("$").replace("[...]", "").replace("[", ".").replace("]", "")
    pointer = "".join("/" + step.replace("~", "~0") for step in steps.split(".") if step)
    return InvalidRequest(f"the request does not fit the schema: {fault}", status=422, pointers=[(pointer, detail)])


def _request_too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request is larger than {limit} bytes; send less in one request", limit=limit)


_request_prefix: Final = f"{os.getpid():x}-{time.time_ns():x}"
_request_numbers: Final = itertools.count(1)


def request_id_from(given: bytes | None) -> str:
    """The id of a request: the given one if it is fit to be echoed, else a new one."""
    if given and len(given) <= 128 and given.isascii() and given.decode().isprintable():
        return given.decode()
    return f"{_request_prefix}-{next(_request_numbers):x}"


async def _send(
    send: Send, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes, request_id: str
) -> None:
    all_headers = [*headers, (b"content-length", b"%d" % len(body)), (b"x-request-id", request_id.encode())]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


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
    if error.status in (429, 503):
        headers += ((b"retry-after", b"%d" % max(1, round(error.retry_after_s or 1))),)
    return Answer(body, status=error.status, headers=headers)


def serve(
    app: FastAPI,
    api: Api,
    handler: Handler,
    *,
    max_request_bytes: int = DEFAULT_MAX_REQUEST_BYTES,
    cluster_token: str | None = None,
    protect: bool = False,
) -> None:
    """Make `api` a route of `app`.

    Args:
        handler: takes a Call, returns the response message, or an Answer that is already bytes. May raise ApiError.
        max_request_bytes: a larger body is refused with 413.
        cluster_token: what internal calls must bring; None asks nothing.
        protect: ask the token of this call too, although clients may make it elsewhere.
    """
    app.router.routes.append(
        Route(
            api.path,
            endpoint=Endpoint(api, handler, max_request_bytes, cluster_token, protect),
            methods=[api.method],
            name=api.operation_id,
        )
    )


def create_app(title: str, description: str) -> FastAPI:
    """A FastAPI application whose unknown paths and methods answer problem documents too."""
    app = FastAPI(title=title, description=description, docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, _no_such_route)
    return app


async def _no_such_route(request: starlette.requests.Request, exception: Exception) -> Response:
    """404 and 405, which Starlette raises."""
    status = exception.status_code if isinstance(exception, HTTPException) else 500
    detail = (
        f"{request.url.path} does not take {request.method}"
        if status == 405
        else f"there is nothing at {request.url.path}; /openapi.json lists what there is"
    )
    request_id = request_id_from(request.headers.get("x-request-id", "").encode())
    answer = problem_answer(InvalidRequest(detail, status=status), request_id)
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    if status == 405:
        routes = [route for route in request.app.router.routes if isinstance(route, Route)]
        here = [route for route in routes if route.path_regex.match(request.url.path)]
        headers["allow"] = ", ".join(sorted({method for route in here for method in route.methods or ()}))
    return Response(answer.body, status, {**headers, "x-request-id": request_id})


class Client:
    """Calls another service, or the gateway: one session, one retry policy.

    A refused connection and a definite retriable answer (503, 429) are tried again; a lost answer only if the call is
    idempotent. All attempts together end at the deadline.
    """

    def __init__(
        self, base_url: str, *, cluster_token: str | None = None, deadline_s: float = 10.0, connections: int = 256
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._headers = {} if cluster_token is None else {"Authorization": f"Bearer {cluster_token}"}
        self._deadline_s = deadline_s
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._decoders: dict[str, msgspec.json.Decoder[Any]] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self,
        api: Api,
        request: Any = None,
        *,
        path: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        retry: bool = True,
    ) -> Any:
        """Make one call.

        Args:
            request: the body (the query for GET), of type `api.request`; bytes are sent as they are.
            path: values of the path's parameters.
            deadline_s: seconds for all attempts together.
        Returns: the answer as `api.response`, or None if it has no body.
        Raises: ApiError: the other side's problem; RequestTimedOut (not definite): no answer before the deadline.
        """
        body = await self.exchange(api, request, path=path, headers=headers, deadline_s=deadline_s, retry=retry)
        if api.response is None or not body:
            return None
        decoder = self._decoders.get(api.operation_id)
        if decoder is None:
            decoder = self._decoders[api.operation_id] = msgspec.json.Decoder(api.response)
        return decoder.decode(body)

    async def exchange(
        self,
        api: Api,
        request: Any = None,
        *,
        path: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        retry: bool = True,
    ) -> bytes:
        """As `call`, but the answer's body stays bytes."""
        deadline = time.monotonic() + (self._deadline_s if deadline_s is None else deadline_s)
        url = self.base_url + (path_of(api, **path) if path else api.path)
        if api.query_parameters and request is not None:
            query = {name: str(value) for name, value in msgspec.to_builtins(request).items() if value is not None}
            url += f"?{urlencode(query)}" if query else ""
            request = None
        body = request if request is None or isinstance(request, bytes) else encode(request)
        all_headers = {**self._headers, **_context_headers(), **(headers or {})}
        if body is not None and "Content-Type" not in all_headers:
            all_headers["Content-Type"] = "application/json"
        pause_s = 0.05
        definite = True
        while True:
            try:
                return await self._attempt(api, url, body, all_headers, deadline)
            except ApiError as error:
                definite = error.definite = definite and error.definite
                may_repeat = error.error.retriable and (definite or api.idempotent)
                pause = max(pause_s * random.uniform(0.5, 1.0), error.retry_after_s or 0)
                if not retry or not may_repeat or time.monotonic() + pause + SHORTEST_ATTEMPT_S >= deadline:
                    raise
                await asyncio.sleep(pause)
                pause_s = min(pause_s * 2, 1.0)

    async def _attempt(self, api: Api, url: str, body: bytes | None, headers: dict[str, str], deadline: float) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=60),
                skip_auto_headers=("User-Agent", "Accept-Encoding") if self._headers else (),
            )
        remaining_s = max(deadline - time.monotonic(), 0.001)
        try:
            async with self._session.request(
                api.method,
                yarl.URL(url, encoded=True),
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=remaining_s),
            ) as response:
                answer = await response.read()
        except aiohttp.ClientConnectorError as fault:
            raise CoordinatorNotAvailable(f"cannot reach {self.base_url}: {fault}") from fault
        except TimeoutError as fault:
            raise RequestTimedOut(f"{self.base_url} did not answer {api.operation_id} in time") from fault
        except aiohttp.ClientError as fault:
            raise RequestTimedOut(f"the connection to {self.base_url} was lost: {fault!r}") from fault
        if response.status < 400:
            return answer
        raise _error_of(answer, response.status, response.headers.get("Retry-After"))


def _context_headers() -> dict[str, str]:
    context = REQUEST.get()
    if context is None:
        return {}
    headers = {"X-Request-Id": context.request_id}
    if context.traceparent:
        headers["traceparent"] = context.traceparent
    return headers


def _error_of(body: bytes, status: int, retry_after: str | None) -> ApiError:
    """The exception for a problem document another service answered."""
    try:
        problem = msgspec.json.decode(body)
        error = BY_CODE[problem["code"]]
        detail, definite = problem["detail"], bool(problem["definite"])
    except (msgspec.DecodeError, KeyError, TypeError):
        text = body[:200].decode("utf-8", "replace")
        return ApiError(f"unexpected answer {status}: {text}", status=502, definite=False)
    pointers = [(fault["pointer"], fault["detail"]) for fault in problem.get("errors", [])]
    known = {*Problem.__struct_fields__} - {"results", "failed_count"}
    answered = exception_type(error)(
        detail,
        error=error,
        status=status,
        definite=definite,
        retry_after_s=float(retry_after) if retry_after and retry_after.isdigit() and status == 429 else None,
        limit=problem.get("limit"),
        pointers=pointers,
        extra={name: value for name, value in problem.items() if name not in known},
    )
    with contextlib.suppress(msgspec.ValidationError):
        answered.problem = msgspec.convert(problem, Problem)
    return answered

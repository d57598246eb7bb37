"""The serving end of a call: checks a request, reads its body, decodes it, calls the handler and sends its answer.

A request is decoded from its query, as texts, or from its JSON body; a fault says where and why. Every exception
becomes a problem document. Every answer carries the request's id, and its time is measured.
"""

import asyncio
import codecs
import contextlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import msgspec

from sharequeue_http.answer import Answer, Stream
from sharequeue_http.application.pace import Pace
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.distribution import Distribution, Histograms, OfEachService
from sharequeue_http.exchange import ClientGone, Exchange, request_id_from, too_large
from sharequeue_http.forms import mistakes
from sharequeue_http.forms.api import ALWAYS_FITS, Api
from sharequeue_http.forms.codec import decoder_of, encode
from sharequeue_http.forms.errors import ApiError, AuthenticationFailed, InvalidRequest
from sharequeue_http.forms.texts import convert_texts
from sharequeue_http.log import REQUEST, RequestContext, fields
from sharequeue_http.origins import Callers
from sharequeue_http.problems import problem_answer

log = logging.getLogger(__name__)

REQUEST_SECONDS: Final = OfEachService(
    Histograms,
    "sharequeue_http_request_seconds",
    "Time to answer a request, long polls included; 499 means that the client hung up.",
    ("operation", "status"),
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)

LARGE_BYTES: Final = 1 << 20
"""A larger body is decoded in a thread, because checking and decoding 10 MB may take 200 ms."""
_UTF8_SLICE: Final = 1 << 16


class Caller(msgspec.Struct, frozen=True):
    """The sender of a call. `principal`: empty where no guard asks who it is."""

    principal: str = ""


NOBODY: Final = Caller()


class Guard(Protocol):
    """Knows callers, and decides what each of them may do. An endpoint without one serves everybody."""

    def caller(self, api: Api, exchange: Exchange, headers: Mapping[bytes, bytes]) -> Caller:
        """Return who makes this call, by its headers alone. Raises: ApiError: nobody who may make any."""

    async def check(self, caller: Any, api: Api, path: Mapping[str, str], request: Any) -> Mapping[str, ApiError]:
        """Check a decoded request. Returns: the names in it that are refused while the rest is served.
        Raises: ApiError: the whole call is refused."""

    def served(self, caller: Any, api: Api, call: "Call", result: Any) -> Any:
        """The result of a handler without the names that the caller may not see. The log gets a line, if the call has
        one."""

    def failed(self, api: Api, call: "Call", fault: BaseException) -> None:
        """A call has failed. The log gets a line, if the call has one and may have happened."""


class Call(msgspec.Struct, eq=False):
    """One request as its handler sees it: path parameters, headers, the decoded body or query, who makes it.

    `refused`: names in the request that its handler answers with these errors.
    """

    exchange: Exchange
    path: Mapping[str, str]
    raw: bytes
    request: Any
    request_id: str
    caller: Caller = NOBODY
    refused: Mapping[str, ApiError] = {}

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        for header, value in self.exchange.headers:
            if header == wanted:
                return str(value, "latin-1")
        return None


Handler = Callable[[Call], Awaitable[Any]]


class Endpoint:
    def __init__(
        self,
        api: Api,
        handler: Handler,
        max_request_bytes: int,
        cluster_token: str | None,
        protect: bool,
        callers: Callers | None,
        admission: Ceiling | None,
        guard: Guard | None,
        pace: Pace,
    ) -> None:
        self.api = api
        self._pace = pace
        self._guard = guard
        self._admission = admission
        self._handler = handler
        self._callers = callers
        self._as_method = "POST" if api.unsafe else api.method
        """The method by which pages of other sites are refused."""
        self._max_request_bytes = max_request_bytes
        protected = cluster_token is not None and (api.internal or protect)
        self._authorization = f"Bearer {cluster_token}".encode() if protected else None
        self._takes_json = api.request is not None and not api.query_parameters
        self._decoder = decoder_of(api.request) if self._takes_json else None
        self._check_body = None if api.internal else api.check_body
        self.takes_body = api.raw_body or self._takes_json
        self._all_seconds = REQUEST_SECONDS()
        self._seconds: dict[int, Distribution] = {}

    async def serve(self, exchange: Exchange, path: Mapping[str, str]) -> None:
        """Answer one request. `path`: the parameters in its path."""
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(exchange.headers)
        request_id = request_id_from(headers.get(b"x-request-id"))
        traceparent = headers.get(b"traceparent")
        trace = mistakes.quoted(traceparent.decode("latin-1")) if traceparent else None
        token = REQUEST.set(RequestContext(request_id, trace))
        status = 499
        try:
            answer = await self._answer(exchange, path, headers, request_id)
            answer_headers = (*answer.headers, (b"x-request-id", request_id.encode()))
            if self._callers is not None and b"origin" in headers:
                answer_headers += self._callers.answer_headers(headers[b"origin"])
            if isinstance(answer, Answer):
                status = self.api.status if answer.status is None else answer.status
                await exchange.answer(status, answer_headers, answer.body, answer.more)
            else:
                status = self.api.status
                await exchange.start(status, answer_headers)
                async with contextlib.aclosing(answer.parts) as parts:
                    async for part in parts:
                        await exchange.write(part)
                await exchange.finish()
        except ClientGone:
            log.debug("client hung up before its request was complete", extra=fields(operation=self.api.operation_id))
        finally:
            REQUEST.reset(token)
            seconds = self._seconds.get(status)
            if seconds is None:
                seconds = self._seconds[status] = self._all_seconds.of(self.api.operation_id, str(status))
            seconds.observe(time.perf_counter() - started)

    async def _answer(
        self, exchange: Exchange, path: Mapping[str, str], headers: dict[bytes, bytes], request_id: str
    ) -> Answer | Stream:
        taken, admission = 0, self._admission
        caller: Caller = NOBODY
        call: Call | None = None
        try:
            caller, length = self._check_head(exchange, headers)
            raw = b""
            if self.takes_body:
                if admission is not None:
                    admission.check(caller.principal, admission.used, size=length)
                raw = await exchange.read(self._max_request_bytes)
                if admission is not None:
                    admission.check(caller.principal, admission.used, size=len(raw))
                    taken = len(raw)
                    admission.take(caller.principal, taken)
            if len(raw) > LARGE_BYTES:
                request = await asyncio.to_thread(self._decode, exchange.query, raw)
            else:
                request = self._decode(exchange.query, raw)
            call = Call(exchange, path, raw, request, request_id, caller)
            raw, request = b"", None  # so that the handler can free both as early as possible
            if self._guard is None:
                result = await self._handler(call)
            else:
                call.refused = await self._guard.check(caller, self.api, path, call.request)
                result = self._guard.served(caller, self.api, call, await self._handler(call))
            if isinstance(result, Answer | Stream):
                return result
            return Answer(b"", headers=()) if self.api.status == 204 else Answer(encode(result))
        except ClientGone:
            raise
        except (Exception, asyncio.CancelledError) as fault:
            if call is None and isinstance(fault, AuthenticationFailed):
                fault.__traceback__ = None  # its frames have the head, and thousands of requests may wait
                for name in headers.keys() - {b"origin"}:
                    del headers[name]
                await self._pace.hold(exchange)
            return self._failed(fault, request_id, call)
        finally:
            if admission is not None:
                admission.give(caller.principal, taken)

    def _decode(self, query: bytes, raw: bytes) -> Any:
        """The request as the call's type; None if it has none. Raises: InvalidRequest."""
        if self.api.query_parameters:
            return _decode_query(self.api.request, query)
        if self._decoder is None:
            return None
        try:
            if not raw.isascii():  # values are kept byte for byte and must be UTF-8 too
                _check_utf8(raw)
            if self._check_body is not None and len(raw) > ALWAYS_FITS:
                self._check_body(raw)
            return self._decoder.decode(raw)
        except mistakes.TooMany as fault:
            raise mistakes.too_many(fault.pointer, fault.what, fault.limit) from None
        except msgspec.ValidationError as fault:
            raise mistakes.unfit_body(fault, self.api.request) from None
        except msgspec.DecodeError as fault:
            raise mistakes.unreadable(fault, raw, self.api.request) from None
        except RecursionError:
            raise InvalidRequest("the body is nested too deeply") from None

    def _failed(self, fault: BaseException, request_id: str, call: Call | None) -> Answer:
        """The answer for an exception of the handler or of a check before it.
        Raises: CancelledError: this request must end."""
        if self._guard is not None and call is not None:
            self._guard.failed(self.api, call, fault)
        if isinstance(fault, ApiError):
            return problem_answer(fault, request_id)
        task = asyncio.current_task()
        if isinstance(fault, asyncio.CancelledError) and task is not None and task.cancelling():
            raise fault  # otherwise something that this request waited for was cancelled
        log.error("request failed", exc_info=fault, extra=fields(operation=self.api.operation_id))
        return problem_answer(ApiError("the service failed; its log names the cause under this request id"), request_id)

    def _check_head(self, exchange: Exchange, headers: dict[bytes, bytes]) -> tuple[Caller, int]:
        """Check the headers before the body is read. Returns: who calls, and the length of the body; 0 if no header
        names it. Raises: ApiError: a page that may not call, nobody who may, or a body that is not read."""
        sent = exchange.headers
        if self._callers is not None:
            refusal = self._callers.refusal(self._as_method, sent, headers)
            if refusal is not None:
                raise refusal
        wanted = self._authorization
        if wanted is not None and not hmac.compare_digest(headers.get(b"authorization", b""), wanted):
            raise AuthenticationFailed(
                "this call needs the cluster token: send the header `Authorization: Bearer` with the token of the services"
                f"{'' if self.api.internal else '; clients make it at a gateway'}"
            )
        caller = NOBODY if self._guard is None else self._guard.caller(self.api, exchange, headers)
        if not self.takes_body:
            return caller, 0
        if b"content-encoding" in headers and any(
            name == b"content-encoding" and value.lower() != b"identity" for name, value in sent
        ):
            raise InvalidRequest("send the body as it is: this service understands no Content-Encoding", status=415)
        if self._takes_json:
            media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if media_type != b"application/json" and not media_type.endswith(b"+json"):
                raise self._not_json(headers, media_type)
        length = int(headers.get(b"content-length", b"0"))
        if length > self._max_request_bytes:
            raise too_large(self._max_request_bytes)
        return caller, length

    def _not_json(self, headers: dict[bytes, bytes], media_type: bytes) -> InvalidRequest:
        if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
            return mistakes.no_body(self.api.request)
        given = mistakes.quoted(media_type.decode("latin-1"))
        return InvalidRequest(f"send JSON with the header Content-Type: application/json, not {given!r}", status=415)


def _decode_query(request_type: Any, query_string: bytes) -> Any:
    values: dict[str, str] = {}
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name in values:
            raise mistakes.wrong(f"/{mistakes.escaped(name)}", "is given twice; send the query parameter once")
        values[name] = value
    try:
        request = convert_texts(values, request_type)
    except msgspec.ValidationError as fault:
        raise mistakes.unfit_query(fault, request_type) from None
    for name, value in values.items():
        if getattr(request, name) is None:  # msgspec takes the word `null` for None
            raise mistakes.wrong(f"/{name}", f"must not be {value}; leave the query parameter out")
    return request


def _check_utf8(raw: bytes) -> None:
    """Check a body in slices: as text all of it could take four times its size. Raises: InvalidRequest."""
    start = 0
    while start < len(raw):
        part = raw[start : start + _UTF8_SLICE]
        try:
            _, used = codecs.utf_8_decode(part, "strict", start + len(part) == len(raw))
        except UnicodeDecodeError as fault:
            detail = f"the body is not UTF-8 at byte {start + fault.start}"
            raise InvalidRequest(detail, status=400) from None
        start += used

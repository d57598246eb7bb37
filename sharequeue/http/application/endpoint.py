"""The serving end of a call: checks a request, reads its body, decodes it, calls the handler and sends its answer.

Every exception becomes a problem document. Every answer carries the request's id, and its time is measured.
"""

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from sharequeue.distribution import Distribution, Histograms
from sharequeue.http.answer import Answer, Stream
from sharequeue.http.application.decoding import RequestDecoder
from sharequeue.http.exchange import ClientGone, Exchange, too_large
from sharequeue.http.origins import Callers
from sharequeue.http.problems import problem_answer
from sharequeue.http.request_id import request_id_from
from sharequeue.log import REQUEST, RequestContext, fields
from sharequeue.protocol import mistakes
from sharequeue.protocol.apis import Api
from sharequeue.protocol.codec import encode
from sharequeue.protocol.errors import ApiError, ClusterAuthorizationFailed, InvalidGroupId, InvalidRequest
from sharequeue.protocol.types import group_id_fault

log = logging.getLogger(__name__)

REQUEST_SECONDS = Histograms(
    "sharequeue_http_request_seconds",
    "Time to answer a request, long polls included; 499 means that the client hung up.",
    ("operation", "status"),
    (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)

LARGE_BYTES: Final = 1 << 20
"""A larger body is decoded in a thread, because checking and decoding 10 MB may take 200 ms."""


class Call(msgspec.Struct, eq=False):
    """One request as its handler sees it: path parameters, headers, the decoded body or query."""

    exchange: Exchange
    path: Mapping[str, str]
    raw: bytes
    request: Any
    request_id: str

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        for header, value in self.exchange.headers:
            if header == wanted:
                return str(value, "latin-1")
        return None

    def group_id(self) -> str:
        """The group id in the path. Raises: InvalidGroupId."""
        group_id = self.path["group"]
        fault = group_id_fault(group_id)
        if fault:
            raise InvalidGroupId(fault)
        return group_id


Handler = Callable[[Call], Awaitable[Any]]


class Admission(Protocol):
    """Bounds the bytes of all requests that are being answered. A request that is the only one is always admitted."""

    def check(self, size: int) -> None:
        """Check whether a body of `size` bytes would be admitted now. Raises: ApiError (429): it would not."""

    def take(self, size: int) -> None:
        """Admit a body of `size` bytes that was read. Raises: ApiError (429): there is no room for it."""

    def release(self, size: int) -> None:
        """An admitted request of `size` bytes is answered."""


class Endpoint:
    """Answers one call."""

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
        self._as_method = "POST" if api.acquires else api.method
        """The method by which pages of other sites are refused."""
        self._max_request_bytes = max_request_bytes
        protected = cluster_token is not None and (api.internal or protect)
        self._authorization = f"Bearer {cluster_token}".encode() if protected else None
        self._decoder = RequestDecoder(api)
        self.takes_body = api.raw_body or self._decoder.takes_json
        self._seconds: dict[int, Distribution] = {}

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
                seconds = self._seconds[status] = REQUEST_SECONDS.of(self.api.operation_id, str(status))
            seconds.observe(time.perf_counter() - started)

    async def _answer(
        self, exchange: Exchange, path: Mapping[str, str], headers: dict[bytes, bytes], request_id: str
    ) -> Answer | Stream:
        taken = 0
        try:
            if self._callers is not None:
                refusal = self._callers.refusal(self._as_method, exchange.headers, headers)
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
            if len(raw) > LARGE_BYTES:
                request = await asyncio.to_thread(self._decoder.decode, exchange.query, raw)
            else:
                request = self._decoder.decode(exchange.query, raw)
            call = Call(exchange, path, raw, request, request_id)
            raw, request = b"", None  # so that the handler can free both as early as possible
            result = await self._handler(call)
            if isinstance(result, Answer | Stream):
                return result
            return Answer(b"", headers=()) if self.api.status == 204 else Answer(encode(result))
        except ClientGone:
            raise
        except (Exception, asyncio.CancelledError) as fault:
            return self._failed(fault, request_id)
        finally:
            if taken and self._admission is not None:
                self._admission.release(taken)

    def _failed(self, fault: BaseException, request_id: str) -> Answer:
        """The answer for an exception of the handler or of a check before it.
        Raises: CancelledError: this request must end."""
        if isinstance(fault, ApiError):
            return problem_answer(fault, request_id)
        task = asyncio.current_task()
        if isinstance(fault, asyncio.CancelledError) and task is not None and task.cancelling():
            raise fault  # otherwise something that this request waited for was cancelled
        log.error("request failed", exc_info=fault, extra=fields(operation=self.api.operation_id))
        return problem_answer(ApiError("the service failed; its log names the cause under this request id"), request_id)

    @staticmethod
    def _authorise(headers: dict[bytes, bytes], authorization: bytes) -> None:
        if not hmac.compare_digest(headers.get(b"authorization", b""), authorization):
            raise ClusterAuthorizationFailed(
                "this call needs the cluster token: send the header `Authorization: Bearer` with the token of the services"
            )

    def _check_head(self, headers: dict[bytes, bytes]) -> int:
        """Check the headers before the body is read. Returns: the length of the body; 0 if no header names it."""
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise InvalidRequest("send the body as it is: this service understands no Content-Encoding", status=415)
        if self._decoder.takes_json:
            media_type = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if media_type != b"application/json" and not media_type.endswith(b"+json"):
                if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
                    raise mistakes.no_body(self.api.request)
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

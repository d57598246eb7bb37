"""The calling end of the calls: a row of a table of calls and a request become an answer or an exception."""

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import urlencode

import msgspec

from sharequeue_http.calling.connections import CannotConnect, ConnectionLost, Connections
from sharequeue_http.calling.login import Login
from sharequeue_http.forms.api import Api, path_of
from sharequeue_http.forms.codec import decoder_of, encode
from sharequeue_http.forms.errors import (
    KNOWN,
    MEMBERS,
    ApiError,
    AuthenticationFailed,
    CoordinatorNotAvailable,
    LoginWanted,
    RequestTimedOut,
    Throttled,
    UnexpectedAnswer,
    Unreachable,
    exception_type,
)
from sharequeue_http.forms.texts import whole_number
from sharequeue_http.log import REQUEST

_FROM_BETWEEN: Final[Mapping[int, type[ApiError]]] = {
    429: Throttled,
    502: RequestTimedOut,
    503: CoordinatorNotAvailable,
    504: RequestTimedOut,
}
"""The error for a status without a problem document, which a proxy on the way has sent: a repeat may help."""
QUOTED_BYTES: Final = 100
"""Of an answer that is not a service's, in the text of its error."""
LONGEST_RETRY_S: Final = 86_400
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
SHORTEST_ATTEMPT_S: Final = 0.05  # with less time, the repeat of a definite failure would end in doubt


MOST_CONNECTIONS: Final = 256
SERVED_HERE: Final[dict[str, Connections]] = {}
"""By URL, the services of this process, with what answers their calls without a connection."""


class CallOptions(TypedDict, total=False):
    """The options of a call besides its request.

    `path`: values of the path's parameters. `deadline_s`: seconds for all attempts together. `retry`: False
    for a single attempt.
    """

    path: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    deadline_s: float | None
    retry: bool


class Repeats:
    """Decides whether and when a failed call is repeated: after growing pauses, until the deadline.

    A call is repeated if its error is retriable and, besides, the error is definite or the call is idempotent.
    """

    def __init__(self, api: Api, deadline: float) -> None:
        self._api = api
        self._deadline = deadline
        self._definite = True
        self._next_pause_s = FIRST_PAUSE_S
        self._heard = ""
        self.pause_s = 0.0

    def after(self, error: ApiError, *, elsewhere: bool = False) -> bool:
        """Note a failure. After an indefinite one, no later failure is definite. Returns: whether to try again.

        `elsewhere`: another server is called, so at once, and whatever the error says of repeats.

        A failure without an answer gets the words of the last answer, which may say why there is none now.
        """
        if error.problem is not None:
            self._heard = error.detail
        elif self._heard:
            error.detail = f"{error.detail}; its answer before: {self._heard}"
        self._definite = error.definite = self._definite and error.definite
        self.pause_s = 0 if elsewhere else max(self._next_pause_s * random.uniform(0.5, 1.0), error.retry_after_s or 0)
        self._next_pause_s = min(self._next_pause_s * 2, LONGEST_PAUSE_S)
        may_help = elsewhere or error.error.retriable
        return may_help and (self._definite or self._api.idempotent) and self.in_time()

    def in_time(self) -> bool:
        """Return whether the pause leaves time for another attempt."""
        return time.monotonic() + self.pause_s + SHORTEST_ATTEMPT_S < self._deadline

    async def pause(self) -> None:
        await asyncio.sleep(self.pause_s)


class Client:
    """Calls another service, or the gateway: one set of connections, one retry policy.

    A refused connection and a definite retriable answer (503, 429) are retried. A lost answer is retried only if the
    call is idempotent. All attempts together end at the deadline.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        *,
        cluster_token: str | None = None,
        login: Login | None = None,
        deadline_s: float = 10.0,
        connections: int = MOST_CONNECTIONS,
        ca: str | None = None,
    ) -> None:
        """`base_url`: of several servers with the same calls, the next is called when one gives no answer.

        `ca`: a file of the authorities that a URL of https is checked by; None: those of the system.

        `login`: what each request shows of the caller, in place of a cluster token.
        """
        urls = [base_url] if isinstance(base_url, str) else base_url
        if not urls:
            raise ValueError("name at least one URL")
        self._servers = deque((url.rstrip("/"), Connections(url.rstrip("/"), connections, ca)) for url in urls)
        self.base_url, self._connections = self._servers[0]
        self.login = login or Login(cluster_token)
        self.ca = ca
        self._deadline_s = deadline_s

    async def close(self) -> None:
        for _, connections in self._servers:
            connections.close()

    async def call(
        self,
        api: Api,
        request: Any = None,
        *,
        in_doubt: Callable[[], None] | None = None,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Make one call.

        Args:
            request: the body (the query for GET), of type `api.request`; bytes are sent as they are.
            in_doubt: called before a retry if an earlier attempt may have happened.
        Returns: the answer as `api.response`, or None if it has no body.
        Raises: ApiError: the other side's problem; RequestTimedOut (not definite): no answer before the deadline.
        """
        body, _ = await self.relay(api, request, in_doubt=in_doubt, **options)
        return None if api.response is None else decoded(api, body, self.base_url)

    async def relay(
        self,
        api: Api,
        request: Any = None,
        *,
        path: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        deadline_s: float | None = None,
        retry: bool = True,
        in_doubt: Callable[[], None] | None = None,
    ) -> tuple[bytes, Mapping[str, str]]:
        """As `call`. Returns: the undecoded body of the answer, and its headers."""
        target = path_of(api, **path) if path else api.path
        if api.query_parameters and request is not None:
            query = {name: str(value) for name, value in msgspec.to_builtins(request).items() if value is not None}
            target += f"?{urlencode(query)}" if query else ""
            request = None
        body = request if request is None or isinstance(request, bytes) else encode(request)
        own_headers = {**_context_headers(), **(headers or {})}
        if body is not None and "Content-Type" not in own_headers:
            own_headers["Content-Type"] = "application/json"
        sent: Mapping[str, str] = {}
        deadline = time.monotonic() + max(self._deadline_s if deadline_s is None else deadline_s, 0.001)
        repeats = None
        while True:
            url, connections = self.base_url, SERVED_HERE.get(self.base_url, self._connections)
            try:
                sent = {**(self.login.headers() if self.login.changes else self.login.fixed), **own_headers}
                status, answer_headers, answer = await connections.request(api.method, target, sent, body, deadline)
            except (CannotConnect, ConnectionLost, TimeoutError) as fault:
                error = _unanswered(api, url, fault)
                self._turn_from(connections)
            else:
                if _is_success(api, status, answer_headers, sent.get("Accept", "")):
                    return answer, answer_headers
                error = error_of_answer(answer, status, answer_headers, f"{url} answered {api.operation_id}")
            if repeats is None:
                repeats = Repeats(api, deadline)
                if (error.definite or api.idempotent) and self._has_another_token(error, sent):
                    continue
            if not (repeats.after(error, elsewhere=self._turns_after(connections, error)) and retry):
                raise error
            if in_doubt is not None and not error.definite:
                in_doubt()
            await repeats.pause()

    def _turn_from(self, connections: Connections) -> None:
        """Use the next server, unless another call has turned from this one already."""
        if connections is self._connections:
            self._servers.rotate(-1)
            self.base_url, self._connections = self._servers[0]

    def _turns_after(self, connections: Connections, error: ApiError) -> bool:
        """Return whether the call is repeated at another server, whatever this one's error says of repeats."""
        return False

    def _has_another_token(self, error: ApiError, sent: Mapping[str, str]) -> bool:
        """Return whether the token was refused, and another is there by now."""
        if error.error is not AuthenticationFailed.error:
            return False
        with contextlib.suppress(CannotConnect):
            return self.login.headers().get("Authorization") != sent.get("Authorization")
        return False


def decoded(api: Api, body: bytes, url: str) -> Any:
    """The answer of a call, as `api.response`. Raises: UnexpectedAnswer: it has another form."""
    try:
        return decoder_of(api.response).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise UnexpectedAnswer(
            f"{url} answered {api.operation_id} with JSON of another form: {fault}", status=502
        ) from None


def _unanswered(api: Api, url: str, fault: Exception) -> ApiError:
    error: ApiError
    if isinstance(fault, CannotConnect):
        error = Unreachable(f"cannot reach {url}: {fault}")
    elif isinstance(fault, ConnectionLost):
        error = RequestTimedOut(f"the connection to {url} was lost: {fault}")
    else:
        error = RequestTimedOut(f"{url} did not answer {api.operation_id} in time")
    error.__cause__ = fault
    return error


def _is_success(api: Api, status: int, headers: Mapping[str, str], accept: str) -> bool:
    """Return whether an answer has the status and the content type of the call."""
    if status != api.status and status not in api.also:
        return False
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return api.response is None or media_type == "application/json" or (media_type != "" and media_type == accept)


def _context_headers() -> dict[str, str]:
    context = REQUEST.get()
    if context is None:
        return {}
    headers = {"X-Request-Id": context.request_id}
    if context.traceparent:
        headers["traceparent"] = context.traceparent
    return headers


def error_of_answer(body: bytes, status: int, headers: Mapping[str, str], answered: str) -> ApiError:
    """The exception for an answer that is not a success: a problem document of a service, or what a proxy has sent.

    `answered`: says where it came from, and to which call.
    """
    retry_after_s = whole_number(headers.get("retry-after", ""), LONGEST_RETRY_S) if status == 429 else None
    try:
        problem = msgspec.json.decode(body)
        error = KNOWN.by_code[problem["code"]]
        detail, definite = problem["detail"], bool(problem["definite"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        kind = _FROM_BETWEEN.get(status)
        login = "; a proxy wants a login there, or it is another service" if kind is None and status < 500 else ""
        if status in (401, 403):
            kind, login = LoginWanted, "; the answer is not a gateway's: a proxy before it wants a login"
        if (location := headers.get("location")) and 300 <= status < 400:
            detail = f"to {location[:QUOTED_BYTES]}"
        else:
            what = headers.get("content-type", "no content type")[:QUOTED_BYTES]
            detail = f"({what}): {body[:QUOTED_BYTES].decode('utf-8', 'replace')!r}"
        return (kind or UnexpectedAnswer)(
            f"{answered} with {status} {detail}{login}",
            status=status if kind else 502,
            definite=False,
            retry_after_s=retry_after_s,
        )
    pointers = [(fault["pointer"], fault["detail"]) for fault in problem.get("errors", [])]
    known = MEMBERS | KNOWN.members[error].keys()
    refusal = exception_type(error)(
        detail,
        error=error,
        status=status,
        definite=definite,
        retry_after_s=retry_after_s,
        limit=problem.get("limit"),
        pointers=pointers,
        extra={name: value for name, value in problem.items() if name not in known},
    )
    with contextlib.suppress(msgspec.ValidationError):
        refusal.problem = msgspec.convert(problem, KNOWN.problem)
    return refusal

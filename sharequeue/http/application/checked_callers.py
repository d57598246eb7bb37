"""Middleware that asks `Callers` about the requests that no endpoint answers; an endpoint asks by itself."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sharequeue.http.answer import Answer
from sharequeue.http.application.paths import Paths
from sharequeue.http.exchange import Headers
from sharequeue.http.origins import Callers, Pairs
from sharequeue.http.problems import problem_answer
from sharequeue.http.request_id import request_id_from
from sharequeue.protocol.errors import ApiError


class CheckedCallers:
    """Refuses requests for other hosts and of other origins, answers preflights, and lets pages read the answers."""

    def __init__(self, app: ASGIApp, callers: Callers, paths: Paths) -> None:
        self._app = app
        self._callers = callers
        self._paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._paths.find(scope["method"].encode(), scope["raw_path"]) is not None:
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
    """`send` with further headers for an answer, unless it has them: an endpoint that answers HEAD adds them too."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = message["headers"]
            message = {**message, "headers": [*own, *(pair for pair in headers if pair not in own)]}
        await send(message)

    return send_with_headers

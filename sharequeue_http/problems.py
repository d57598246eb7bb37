"""Problem documents, the answers to requests that fail, and how many there were. Source: RFC 9457."""

import logging
from typing import Any, Final

from prometheus_client import Counter

from sharequeue_http.answer import Answer
from sharequeue_http.distribution import OfEachService
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import KNOWN, ApiError
from sharequeue_http.log import Tally

log = logging.getLogger(__name__)

PROBLEM_JSON: Final = (b"content-type", b"application/problem+json")

REFUSED: Final = OfEachService(
    Counter,
    "sharequeue_http_refused",
    "Requests refused for what they ask of the service: 401, 403, 408, 413, 414, 421, 429, 431.",
    ["status"],
)
COUNTED: Final = (401, 403, 408, 413, 414, 421, 429, 431)

REFUSALS: Final = Tally(log, logging.INFO, "requests refused")
"""Clients' mistakes, by their code: the first at once, then how many there were in a minute."""


def problem_of(error: ApiError, request_id: str) -> dict[str, Any]:
    problem: dict[str, Any] = {
        "type": "about:blank",
        "title": error.error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.error.code,
        **KNOWN.members.get(error.error, {}),
        "retriable": error.error.retriable,
        "definite": error.definite,
        "request_id": request_id,
    }
    if error.pointers:
        problem["errors"] = [{"pointer": pointer, "detail": detail} for pointer, detail in error.pointers]
    if error.limit is not None:
        problem["limit"] = error.limit
    return problem


def problem_answer(error: ApiError, request_id: str) -> Answer:
    """The answer for an error: its problem document, with `Retry-After` if waiting helps,
    and the way to authenticate."""
    body = encode({**problem_of(error, request_id), **error.extra})
    headers: tuple[tuple[bytes, bytes], ...] = (PROBLEM_JSON,)
    if error.status in COUNTED:
        REFUSED().labels(str(error.status)).inc()
    if error.status < 500:
        REFUSALS.note(error.error.code, status=error.status, code=error.error.code, first=error.detail)
    if error.status in (429, 503):
        headers += ((b"retry-after", b"%d" % max(1, round(error.retry_after_s or 1))),)
    if error.status == 401:
        headers += ((b"www-authenticate", b"Bearer"),)
    return Answer(body, status=error.status, headers=headers)

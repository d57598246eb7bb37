"""Sends records over generated code. A repeat stores nothing twice: all tries have one idempotency key. Copy it into
your project. worker.py takes from here which requests to repeat, and when.
"""

import logging
import time
import uuid
from collections.abc import Callable
from typing import TypeVar

from sharequeue_api import ApiException, Problem, ProducedRecord, ProduceRecord, ProduceRequest, RecordsApi
from urllib3.exceptions import HTTPError, MaxRetryError, ResponseError

FIRST_PAUSE_S, MOST_PAUSE_S = 0.1, 10.0
log = logging.getLogger(__name__)
T = TypeVar("T")


class UnexpectedAnswer(ApiException):
    """Something answered that is not a gateway, such as a proxy's login page. The request may have had its effect."""


def ask(records: RecordsApi, call: Callable[[], T]) -> T:
    """Make a call. Raises: ApiException, HTTPError; UnexpectedAnswer."""
    try:
        return call()
    except ApiException as fault:
        if problem_of(fault) or may_help(fault):
            raise
        status, what = fault.status, said(fault)
    except ValueError as fault:  # an answer that does not fit its model
        status, what = 200, " ".join(str(fault).split())[:300]
    except MaxRetryError as fault:
        if not isinstance(fault.reason, ResponseError):
            raise
        status, what = 302, said(fault)  # it sends the client to and fro
    raise UnexpectedAnswer(
        status, f"{records.api_client.configuration.host} did not answer as a gateway, or a proxy wants a login: {what}"
    )


class Producer:
    """`deadline_s`: how long `send` tries, in seconds. `inject`: writes headers for records, as the function of that
    name of OpenTelemetry's propagators does with `traceparent`.
    """

    def __init__(
        self, records: RecordsApi, deadline_s: float = 120.0, inject: Callable[[dict[str, str]], None] | None = None
    ) -> None:
        self._records = records
        self._deadline_s = deadline_s
        self._inject = inject

    def send(self, topic: str, records: list[ProduceRecord], key: str | None = None) -> list[ProducedRecord]:
        """Store the records. When this returns, they are on disk.

        `key`: names these records for 24 hours, in at most 128 characters; without it, `send` makes one. Call again
        with the same key and the same records after an error: they are stored once. `inject` leaves them as they are.

        Raises: ApiException: the service refused them, or is away for too long. HTTPError: there was no answer.
            UnexpectedAnswer.
        """
        if self._inject and not key:
            made: dict[str, str] = {}
            self._inject(made)
            records = [each.model_copy(update={"headers": {**made, **(each.headers or {})}}) for each in records]
        key = key or str(uuid.uuid4())
        request = ProduceRequest(records=records)
        deadline = time.monotonic() + self._deadline_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return ask(
                    self._records,
                    lambda: self._records.produce_records(topic, request, idempotency_key=key, _request_timeout=30.0),
                ).records
            except (ApiException, HTTPError) as fault:
                if pause_s == FIRST_PAUSE_S and may_help(fault):
                    log.warning("no answer from the topic %s, trying again: %s", topic, said(fault))
                pause_s = max(retry_after_s(fault) or 0.0, pause_s)
                if not may_help(fault) or time.monotonic() + pause_s > deadline:
                    raise
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)


def problem_of(fault: ApiException | HTTPError) -> Problem | None:
    """The Problem that the service answered; None if something between answered, or nothing."""
    return fault.data if isinstance(fault, ApiException) and isinstance(fault.data, Problem) else None


def may_help(fault: ApiException | HTTPError) -> bool:
    """Whether a repeat may help: there was no answer, or the service says so, or a proxy could not reach it."""
    if not isinstance(fault, ApiException):
        return True
    problem = problem_of(fault)
    return problem.retriable if problem else not fault.status or fault.status >= 500 or fault.status in (408, 429)


def said(fault: ApiException | HTTPError) -> str:
    """The fault in one line."""
    problem = problem_of(fault)
    text = f"{problem.code}: {problem.detail}" if problem else " ".join(str(fault).split())
    return text[:500]


def retry_after_s(fault: Exception) -> float | None:
    """The seconds of the header `Retry-After`; None without it."""
    headers = getattr(fault, "headers", None) or {}
    value = headers.get("Retry-After")
    return float(value) if value is not None and value.isdecimal() else None

"""Structured logs: one JSON object per line, with the id of the request and the fields that the caller adds.

`log.warning("state write failed", extra=fields(group_id=…, cause=…))`.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Hashable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from sharequeue_http.forms.mistakes import SECRET


class RequestContext(msgspec.Struct, frozen=True):
    """Identifies the request that is being served. Calls to other services carry it.

    `began_s`: when it began, of `time.monotonic()`.
    """

    request_id: str
    traceparent: str | None
    began_s: float = msgspec.field(default_factory=time.monotonic)


REQUEST: ContextVar[RequestContext | None] = ContextVar("request", default=None)
SERVICE: ContextVar[str] = ContextVar("service", default="")
"""The service that runs: a process may run several. Empty outside of services."""


def fields(**values: Any) -> Mapping[str, Any]:
    """Make the argument `extra` of a log call: the fields of the line besides its message."""
    return {"fields": values}


class JsonFormatter(logging.Formatter):
    """Formats records as JSON lines: time (UTC), level, service, logger, message, request_id, fields, exception.

    No line has a key, wherever its caller has sent it.
    """

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            **({"service": service} if (service := SERVICE.get()) else {}),
            "logger": record.name,
            "message": record.getMessage(),
        }
        request = REQUEST.get()
        if request is not None:
            line["request_id"] = request.request_id
            if request.traceparent:
                line["traceparent"] = request.traceparent
        line.update(getattr(record, "fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return SECRET.sub("sq_…", json.dumps(line, default=str, ensure_ascii=False))


def configure(levels: Mapping[str, str]) -> None:
    """Send all logs of this process to stderr as JSON lines. `levels`: the lowest that is written, by service."""
    numbers = {service: logging.getLevelNamesMapping()[level.upper()] for service, level in levels.items()}
    lowest = min(numbers.values())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(lambda record: record.levelno >= numbers.get(SERVICE.get(), lowest))
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(lowest)


class Tally:
    """Events that come one by one or in thousands: the first has its line at once, the next ones are counted.

    event ──▶ line, count 1         events ──▶ counted ──▶ after `seconds`: one line with their count
    """

    def __init__(self, logger: logging.Logger, level: int, message: str, *, seconds: float = 60.0, most: int = 500):
        """`most`: kinds that have lines of their own at a time; the events of others are counted together."""
        self._logger = logger
        self._level = level
        self._message = message
        self._seconds = seconds
        self._most = most
        self._counts: dict[Hashable, int] = {}

    def note(self, kind: Hashable, count: int = 1, **named: Any) -> None:
        """Count events of one kind, from the event loop. `named`: the fields of its lines."""
        kind = SERVICE.get(), kind
        if kind not in self._counts and len(self._counts) >= self._most:
            kind, named = "others", {}
        if kind in self._counts:
            self._counts[kind] += count
        else:
            self._begin(kind, count, named)

    def _begin(self, kind: Hashable, count: int, named: Mapping[str, Any]) -> None:
        self._logger.log(self._level, self._message, extra=fields(count=count, **named))
        self._counts[kind] = 0
        asyncio.get_running_loop().call_later(self._seconds, self._end, kind, named)

    def _end(self, kind: Hashable, named: Mapping[str, Any]) -> None:
        """The seconds of a kind are over: write its line and count on, or forget it if nothing came."""
        count = self._counts.pop(kind)
        if count:
            self._begin(kind, count, {**named, "seconds": self._seconds})

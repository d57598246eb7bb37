"""Counts failed rounds of loops that only look, report or sweep. Each is logged, and the loop goes on with the next."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from prometheus_client import Counter

from sharequeue_http.distribution import OfEachService
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

FAILED_LOOKS: Final = OfEachService(
    Counter, "sharequeue_failed_looks", "Failed rounds of a loop in the background; the log says why.", ("loop",)
)
Loop = Literal[
    "activity", "backlog", "empty_groups", "feed", "floors", "gateways", "housekeeping", "intents", "leases", "log_ends",
    "members", "outcomes", "pending_records", "purge", "readers", "retention", "samples", "scheduled", "topics",
    "transactions",
]  # fmt: skip


def count_failed_look(loop: Loop) -> None:
    FAILED_LOOKS().labels(loop).inc()


@contextmanager
def looking(loop: Loop, failed: str, **named: Any) -> Iterator[None]:
    """Count and log an ApiError of its body, and go on. `failed`: the message of the log line; `named`: its fields."""
    try:
        yield
    except ApiError as error:
        count_failed_look(loop)
        log.warning(failed, extra=fields(**named, cause=error.detail))

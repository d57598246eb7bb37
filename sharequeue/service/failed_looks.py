"""Counts failed rounds of loops that only look, report or sweep. Each is logged, and the loop goes on with the next."""

from typing import Final, Literal

from prometheus_client import Counter

from sharequeue_http.distribution import OfEachService

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

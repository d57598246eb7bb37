"""Metrics of the record log: transactions, and what `/readyz` tells of open transactions.

The record log knows the numbers; it imports no metrics.
"""

from collections.abc import Iterator
from typing import Final

from sharequeue.service.series import Family
from sharequeue_gateway import metrics
from sharequeue_gateway.record_log.parts import Log
from sharequeue_gateway.record_log.transactions.open_store import OpenNow
from sharequeue_gateway.record_log.transactions.transaction_rules import TIME_OUT, Reason, State, Wish

QUESTIONS: Final = Family(
    "sharequeue_stability_questions_total",
    "counter",
    "Statements that asked the log for the last stable offset of a partition and the transactions aborted there. Groups "
    "whose topics meet no transaction add none.",
)
FAMILIES: Final = (QUESTIONS,)
"""As docs/metrics.md lists them."""
TOLD_FROM_MS: Final = 60_000
"""`/readyz` names an open transaction of this age. The default time-out has ended a younger one."""


def watch(record_log: Log) -> None:
    """Connect the metrics to their sources."""
    transactions = record_log.transactions
    metrics.OPEN_TRANSACTIONS.set_function(lambda: transactions.open_now.transactions)
    metrics.OLDEST_OPEN_TRANSACTION_SECONDS.set_function(lambda: transactions.open_now.age_ms / 1000)


def count_end(end: Wish, seconds: float) -> None:
    metrics.TRANSACTIONS_ENDED[_labels(*end)].inc()
    metrics.TRANSACTION_END_SECONDS.observe(seconds)


def count_forgotten(count: int) -> None:
    if count:
        metrics.TRANSACTIONS_ENDED[_labels(*TIME_OUT)].inc(count)


def _labels(state: State, reason: Reason) -> tuple[str, str]:
    return state.name.lower(), reason.name.lower()


def series(record_log: Log) -> Iterator[str]:
    """The metrics that prometheus_client does not keep, as lines of text."""
    yield from metrics.APPENDS_ELSEWHERE.lines()
    yield from metrics.TRANSACTIONS_ENDED.lines()
    yield from metrics.RECORDS_SETTLED.lines()
    yield from QUESTIONS.lines([(record_log.questions, ())])


def told(now: OpenNow, *, names: bool) -> str | None:
    """Return what `/readyz` says about the open transactions; None: nothing worth knowing. `names`: whether it names
    one: it answers everybody, and who knows the id of a transaction may be able to use it."""
    if now.oldest is None or now.age_ms <= TOLD_FROM_MS:
        return None
    owner = "" if now.transactional_id is None else f" of {now.transactional_id!r}"
    which = f"the oldest open one is {now.oldest}{owner}:" if names else "the oldest open one is"
    return (
        f"{which} open for {now.age_ms // 1000} s, wrote to {now.partitions} partitions;"
        " readers of committed records stop there. POST /v1/transactions/{transaction}/terminate aborts it"
    )

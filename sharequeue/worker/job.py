"""A record in the hand of a task."""

import time
from collections.abc import Callable
from typing import Any

from sharequeue.client import Record, tracing
from sharequeue.worker.context import Context
from sharequeue.worker.outcomes import STOPPED, verdict_of
from sharequeue.worker.task import Task


def place_of(record: Record) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}, attempt {record.attempt}"


class Job:
    """One run of a task's function. `verdict`: until it has ended, that of one which the program itself cancels.

    `given_up`: the outcome was sent while the function still runs; what it answers later is not accepted. `cancel`: of
    an async function, ends it; from its event loop alone.
    """

    __slots__ = ("began_at", "cancel", "context", "ended_at", "given_up", "payload", "record", "task", "verdict")

    def __init__(self, task: Task[Any], record: Record, payload: Any, began_at: float) -> None:
        self.task = task
        self.record = record
        self.payload = payload
        self.context = Context(record, task.options.timeout_s)
        self.began_at = began_at
        self.ended_at = 0.0
        self.verdict = STOPPED
        self.given_up = False
        self.cancel: Callable[[], Any] = lambda: None

    @property
    def hangs(self) -> bool:
        """Tell whether a plain function has taken twice its time: nothing can end it but the end of the process."""
        late = time.monotonic() >= self.context.deadline + self.task.options.timeout_s
        return late and self.given_up and not self.task.is_async

    def start_span(self) -> tracing.Span:
        """Start the span of the function, in the trace of the program that sent the record."""
        if not tracing.wanted():
            return None
        record = self.record
        more = {
            "consumer.group.name": self.task.group,
            "destination.partition.id": str(record.partition),
            "message.id": f"{record.topic}-{record.partition}-{record.offset}",
            "sharequeue.task": self.task.name,
            "sharequeue.attempt": record.attempt,
        }
        return tracing.start("process", record.topic, "CONSUMER", (record.headers,), more)

    def failed(self, fault: BaseException) -> None:
        options = self.task.options
        self.verdict = verdict_of(fault, reject_on=options.reject_on, reasons=options.reasons)

    def ended(self, span: tracing.Span) -> None:
        self.ended_at = time.monotonic()
        tracing.end(span, self.verdict.kind, self.verdict.reason)

    def arguments(self) -> tuple[Any, ...]:
        return (self.payload, self.context)[: self.task.argument_count]

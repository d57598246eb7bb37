"""A loop over generated code: fetch, handle, acknowledge; renew the locks of what takes long.
Copy it into your project.

A handler that returns accepts the record. One that raises releases it, with the error as the reason, until the group's
delivery limit makes it a dead letter; `Reject` makes it one at once.
"""

import threading
import time
import uuid
from collections.abc import Callable

from sharequeue_api import (
    Acknowledgement,
    AcknowledgementStatus,
    AcknowledgeRequest,
    AcknowledgeResponse,
    AcknowledgeType,
    ApiException,
    ConsumerRecord,
    FetchedBatch,
    FetchRequest,
    FetchResponse,
    Problem,
    RecordsApi,
)
from urllib3.exceptions import HTTPError

WAIT_MS = 10_000
MOST_PAUSE_S = 10.0


class Reject(Exception):
    """Raised by a handler: make the record a dead letter, for this reason."""


Handler = Callable[[ConsumerRecord, FetchedBatch], None]


def problem_of(fault: ApiException) -> Problem | None:
    """The Problem that the service answered; None if something between answered."""
    return fault.data if isinstance(fault.data, Problem) else None


class Worker:
    """One member of a share group. `run` handles records until `stop` is called, from any thread."""

    def __init__(
        self,
        records: RecordsApi,
        group: str,
        topics: list[str],
        handle: Handler,
        *,
        max_records: int = 100,
        lock_duration_ms: int | None = None,
    ) -> None:
        self._records = records
        self._group = group
        self._topics = topics
        self._handle = handle
        self._max_records = max_records
        self._lock_duration_ms = lock_duration_ms
        self._member_id = str(uuid.uuid4())
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End `run` after the record in hand; records that were fetched and not handled are released."""
        self._stopped.set()

    def run(self) -> None:
        pause_s, fetch_id = 0.1, str(uuid.uuid4())
        while not self._stopped.is_set():
            try:
                fetched = self._fetch(fetch_id)
            except (ApiException, HTTPError) as fault:
                problem = problem_of(fault) if isinstance(fault, ApiException) else None
                if problem is not None and not problem.retriable:
                    raise
                self._stopped.wait(retry_after_s(fault) or pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)
                continue
            pause_s, fetch_id = 0.1, str(uuid.uuid4())
            self._settle(fetched.batches)

    def _fetch(self, fetch_id: str) -> FetchResponse:
        """Wait for records. A repeat with the same id, because an answer was lost, gets the same ones."""
        request = FetchRequest(
            topics=self._topics,
            member_id=self._member_id,
            fetch_id=fetch_id,
            max_records=self._max_records,
            max_wait_ms=WAIT_MS,
            lock_duration_ms=self._lock_duration_ms,
        )
        return self._records.fetch_records(self._group, request, _request_timeout=WAIT_MS / 1000 + 10)

    def _settle(self, batches: list[FetchedBatch]) -> None:
        """Handle all records, one after another, while a thread renews the locks of those that are not settled."""
        held = list(batches)
        done = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(held, done), daemon=True)
        renewing.start()
        try:
            while held and not self._stopped.is_set():
                self._acknowledge(self._outcomes(held[0]))
                held.pop(0)
            self._acknowledge(
                [_one(b, b.first_offset, b.last_offset, AcknowledgeType.RELEASE, None, False) for b in held]
            )
        finally:
            done.set()
            renewing.join()

    def _outcomes(self, batch: FetchedBatch) -> list[Acknowledgement]:
        outcomes: list[Acknowledgement] = []
        for record in batch.records or []:
            if self._stopped.is_set():  # it was never begun, so this delivery is no attempt
                release = _one(batch, record.offset, batch.last_offset, AcknowledgeType.RELEASE, None, False)
                return [*outcomes, release]
            word, reason = AcknowledgeType.ACCEPT, None
            try:
                self._handle(record, batch)
            except Reject as fault:
                word, reason = AcknowledgeType.REJECT, str(fault)[:1024]
            except Exception as fault:
                word, reason = AcknowledgeType.RELEASE, repr(fault)[:1024]
            outcomes.append(_one(batch, record.offset, record.offset, word, reason))
        return outcomes

    def _renew(self, held: list[FetchedBatch], done: threading.Event) -> None:
        if not held:
            return
        while not done.wait(held[0].lock_duration_ms / 3000):
            renewals = [_one(b, b.first_offset, b.last_offset, AcknowledgeType.RENEW, None) for b in list(held)]
            try:
                self._send(renewals)
            except (ApiException, HTTPError):
                continue  # the next third of the lock tries again

    def _acknowledge(self, outcomes: list[Acknowledgement]) -> None:
        """Acknowledge until the outcome is known. A repeat is recognised by its delivery count."""
        deadline = time.monotonic() + 30
        while outcomes:
            try:
                results = self._send(outcomes).results
            except (ApiException, HTTPError) as fault:
                problem = problem_of(fault) if isinstance(fault, ApiException) else None
                if (problem is not None and not problem.retriable) or time.monotonic() > deadline:
                    return  # the locks ended, or will: the records come again
                time.sleep(retry_after_s(fault) or 0.5)
                continue
            both = zip(outcomes, results, strict=True)
            outcomes = [outcome for outcome, result in both if result.status == AcknowledgementStatus.UNKNOWN]

    def _send(self, acknowledgements: list[Acknowledgement]) -> AcknowledgeResponse:
        request = AcknowledgeRequest(member_id=self._member_id, acknowledgements=acknowledgements)
        return self._records.acknowledge_records(self._group, request, _request_timeout=30)


def _one(
    batch: FetchedBatch, first: int, last: int, word: AcknowledgeType, reason: str | None, begun: bool | None = None
) -> Acknowledgement:
    return Acknowledgement(
        topic=batch.topic,
        partition=batch.partition,
        first_offset=first,
        last_offset=last,
        delivery_count=batch.delivery_count,
        type=word,
        reason=reason,
        begun=begun,
    )


def retry_after_s(fault: Exception) -> float | None:
    """The seconds of the header `Retry-After`; None without it."""
    headers = getattr(fault, "headers", None) or {}
    value = headers.get("Retry-After")
    return float(value) if value is not None and value.isdecimal() else None

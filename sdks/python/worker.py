"""A loop over generated code: fetch, handle, acknowledge; renew the locks of what takes long.
Copy it into your project, beside producer.py.

A handler that returns accepts the record. One that raises releases it, with the error as the reason, until the group's
delivery limit makes it a dead letter; `Release` says when it comes again, and `Reject` makes it a dead letter at once.
What goes wrong is logged under the name of this module.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable

from producer import FIRST_PAUSE_S, MOST_PAUSE_S, may_help, retry_after_s, said
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
    RecordsApi,
)
from urllib3.exceptions import HTTPError

WAIT_MS = 10_000
log = logging.getLogger(__name__)


class Release(Exception):
    """Raised by a handler: deliver the record again after `delay_ms`, up to 12 hours, not after the group's backoff."""

    def __init__(self, reason: str, delay_ms: int) -> None:
        super().__init__(reason)
        self.delay_ms = delay_ms


class Reject(Exception):
    """Raised by a handler: make the record a dead letter, for this reason."""


Handler = Callable[[ConsumerRecord, FetchedBatch], None]


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
        """End `run` after the record in hand, or the wait of a fetch, up to 10 s. The other records are released."""
        self._stopped.set()

    def run(self) -> None:
        """Raises: ApiException: the service refused a fetch, and no repeat helps."""
        pause_s, fetch_id = FIRST_PAUSE_S, str(uuid.uuid4())
        while not self._stopped.is_set():
            try:
                fetched = self._fetch(fetch_id)
            except (ApiException, HTTPError) as fault:
                if not may_help(fault):
                    raise
                if pause_s == FIRST_PAUSE_S:
                    log.warning("no records for the group %s, trying again: %s", self._group, said(fault))
                self._stopped.wait(retry_after_s(fault) or pause_s)
                pause_s = min(2 * pause_s, MOST_PAUSE_S)
                continue
            pause_s, fetch_id = FIRST_PAUSE_S, str(uuid.uuid4())
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
            word, reason, delay_ms = AcknowledgeType.ACCEPT, None, None
            try:
                self._handle(record, batch)
            except Reject as fault:
                word, reason = AcknowledgeType.REJECT, str(fault)[:1024]
            except Release as fault:
                word, reason, delay_ms = AcknowledgeType.RELEASE, str(fault)[:1024], fault.delay_ms
            except Exception as fault:
                place = f"{batch.topic}/{batch.partition}/{record.offset}"
                log.warning("the handler failed, and %s is released (delivery %d)", place, batch.attempt, exc_info=True)
                word, reason = AcknowledgeType.RELEASE, repr(fault)[:1024]
            outcome = _one(batch, record.offset, record.offset, word, reason)
            outcome.delay_ms = delay_ms if delay_ms is None else min(max(delay_ms, 0), 43_200_000)
            outcomes.append(outcome)
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
                if not may_help(fault) or time.monotonic() > deadline:
                    log.warning("%d acknowledgements failed, the records come again: %s", len(outcomes), said(fault))
                    return  # the locks ended, or will
                time.sleep(retry_after_s(fault) or 0.5)
                continue
            failed = [result for result in results if result.status == AcknowledgementStatus.FAILED]
            if failed:  # the locks ended: the records come again
                log.warning("%d of %d acknowledgements failed: %s", len(failed), len(results), failed[0].detail)
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

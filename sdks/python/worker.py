"""A loop over generated code: fetch, handle, acknowledge; renew the locks of what takes long.
Copy it into your project, beside acknowledger.py and producer.py.

A handler that returns accepts the record. One that raises releases it, with the error as the reason, until the group's
delivery limit makes it a dead letter; `Release` says when it comes again, and `Reject` makes it a dead letter at once.
What goes wrong is logged under the name of this module.
"""

import json
import logging
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from decimal import Decimal

from acknowledger import Acknowledger, NotAcknowledged, one, releases
from producer import FIRST_PAUSE_S, MOST_PAUSE_S, ask, may_help, retry_after_s, said
from sharequeue_api import (
    Acknowledgement,
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
ErrorHandler = Callable[[NotAcknowledged], None]


def whole(digits: str) -> int | Decimal:
    """An integer of an answer. `int` takes no more than 4,300 digits, unless the program says otherwise."""
    try:
        return int(digits)
    except ValueError:
        return Decimal(digits)


def warn(fault: NotAcknowledged) -> None:
    """Log an acknowledgement that was refused, or failed."""
    log.warning("%s", fault)


class Worker:
    """One member of a share group. `run` handles records until `stop` is called, from any thread.

    `on_error` gets each acknowledgement that the service refused, or whose lock had ended. Unless you say otherwise, it
    logs them. What it raises ends `run`.
    """

    def __init__(
        self,
        records: RecordsApi,
        group: str,
        topics: list[str],
        handle: Handler,
        *,
        max_records: int = 100,
        lock_duration_ms: int | None = None,
        on_error: ErrorHandler = warn,
    ) -> None:
        self._records = records
        self._group = group
        self._topics = topics
        self._handle = handle
        self._max_records = max_records
        self._lock_duration_ms = lock_duration_ms
        self._member_id = str(uuid.uuid4())
        self._on_error = on_error
        self._acknowledger = Acknowledger(records, group, self._member_id)
        self._stopped = threading.Event()
        self._answer: Future[FetchResponse] = Future()

    def stop(self) -> None:
        """End `run` at once, or after the record in hand. The other records are released."""
        self._stopped.set()
        self._answer.cancel()

    def run(self) -> None:
        """Raises: ApiException: the service refused a fetch, and no repeat helps. KeyboardInterrupt: at Ctrl-C, when
        the records that were handled are acknowledged, and the others are released.
        """
        pause_s, fetch_id = FIRST_PAUSE_S, str(uuid.uuid4())
        while not self._stopped.is_set():
            try:
                fetched = self._fetch(fetch_id)
            except CancelledError:
                return
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
        """Wait for records. A repeat with the same id, because an answer was lost, gets the same ones.

        The request has a thread of its own, so that a stop does not wait for it. If the process ends, the service gives
        it nothing; if the process goes on, the thread gives back at once what it still gets.
        """
        request = FetchRequest(
            topics=self._topics,
            member_id=self._member_id,
            fetch_id=fetch_id,
            max_records=self._max_records,
            max_wait_ms=WAIT_MS,
            lock_duration_ms=self._lock_duration_ms,
        )
        answer = self._answer = Future()
        threading.Thread(target=self._ask, args=(request, answer), daemon=True).start()
        try:
            if self._stopped.is_set():
                answer.cancel()
            return answer.result()
        finally:  # nobody waits for it any more after a stop, and after Ctrl-C
            answer.cancel()

    def _ask(self, request: FetchRequest, answer: Future[FetchResponse]) -> None:
        try:
            fetched = ask(self._records, lambda: self._fetch_once(request))
        except Exception as fault:
            if answer.set_running_or_notify_cancel():
                answer.set_exception(fault)
        else:
            if answer.set_running_or_notify_cancel():
                answer.set_result(fetched)
            else:
                self._acknowledger.acknowledge(releases(fetched.batches, []))

    def _fetch_once(self, request: FetchRequest) -> FetchResponse:
        """One request. Generated code would give up the whole answer for one integer of more than 4,300 digits."""
        timeout_s = WAIT_MS / 1000 + 10
        answer = self._records.fetch_records_without_preload_content(self._group, request, _request_timeout=timeout_s)
        if answer.status != 200:
            self._records.api_client.response_deserialize(answer, {"default": "Problem"})  # which raises
        return FetchResponse.model_validate(json.loads(answer.data, parse_int=whole))

    def _settle(self, batches: list[FetchedBatch]) -> None:
        """Handle all records, one after another, while a thread renews the locks of those that are not settled."""
        held = list(batches)
        outcomes: list[Acknowledgement] = []
        sent = False
        done = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(held, done), daemon=True)
        renewing.start()
        try:
            while held and not self._stopped.is_set():
                self._handle_all(held[0], outcomes)
                sent = True
                for fault in self._acknowledger.acknowledge(outcomes):
                    self._on_error(fault)
                held.pop(0)
                outcomes, sent = [], False
        finally:  # something is left after a stop, after Ctrl-C, or if on_error raised; a repeat changes nothing
            try:
                for fault in self._acknowledger.acknowledge(outcomes, sent=sent):
                    warn(fault)
                for fault in self._acknowledger.acknowledge(releases(held, outcomes)):
                    warn(fault)
            finally:
                done.set()
                renewing.join()

    def _handle_all(self, batch: FetchedBatch, outcomes: list[Acknowledgement]) -> None:
        for record in batch.records or []:
            offset = record.offset
            if self._stopped.is_set():  # it was never begun, so this delivery is no attempt
                outcomes.append(one(batch, offset, batch.last_offset, AcknowledgeType.RELEASE, begun=False))
                return
            try:
                self._handle(record, batch)
                outcomes.append(one(batch, offset, offset, AcknowledgeType.ACCEPT))
            except Reject as fault:
                outcomes.append(one(batch, offset, offset, AcknowledgeType.REJECT, str(fault)))
            except Release as fault:
                reason, delay_ms = str(fault), fault.delay_ms
                outcomes.append(one(batch, offset, offset, AcknowledgeType.RELEASE, reason, delay_ms=delay_ms))
            except BaseException as fault:
                outcomes.append(one(batch, offset, offset, AcknowledgeType.RELEASE, repr(fault)))
                if not isinstance(fault, Exception):  # KeyboardInterrupt, SystemExit
                    raise
                place = f"{batch.topic}/{batch.partition}/{offset}"
                log.warning("the handler failed, and %s is released (delivery %d)", place, batch.attempt, exc_info=True)

    def _renew(self, held: list[FetchedBatch], done: threading.Event) -> None:
        if not held:
            return
        while not done.wait(held[0].lock_duration_ms / 3000):
            renewals = [one(b, b.first_offset, b.last_offset, AcknowledgeType.RENEW) for b in list(held)]
            try:
                self._acknowledger.send(renewals)
            except (ApiException, HTTPError):
                continue  # the next third of the lock tries again

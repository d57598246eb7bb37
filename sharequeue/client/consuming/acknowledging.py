"""Acknowledge calls, and the result of each acknowledgement: of consumers, and of the tasks of a Spark pipeline.

Every acknowledgement names its delivery count. So it is safe to send one again when its answer was lost. `Results`
decides what a result means, and `Acknowledging` sends until each acknowledgement has one.
"""

import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

import msgspec

from sharequeue.client import tracing
from sharequeue.client.consuming.deliveries import Delivery, OutcomeRun, Record, Sent
from sharequeue.client.consuming.outcomes import GIVEN_BACK
from sharequeue.client.errors import AcknowledgementError, AcknowledgementFailure
from sharequeue.protocol import apis
from sharequeue.protocol.bounds import acknowledgements_in_a_call
from sharequeue.protocol.errors import InvalidRecordState
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import AcknowledgeRequest, AcknowledgeResponse
from sharequeue.repeats import LEADER_MOVED
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.errors import ApiError, InvalidRequest

ACKNOWLEDGE: Final = replace(apis.ACKNOWLEDGE_RECORDS, idempotent=True)
IGNORED: Final = "ignored"
"""The result of an acknowledgement below the start offset: the records are finished or deleted."""
APPLIED: Final = "applied"
NOT_OWN: Final = "the lock had ended, and another member finished these records, or they were deleted"
INVALID_RECORD_STATE: Final = InvalidRecordState.error.code
INVALID_REQUEST: Final = InvalidRequest.error.code

R = TypeVar("R", bound=Sent)


def doubt(acknowledgements: Iterable[Sent]) -> None:
    """The answer was lost: the service may have applied these."""
    for run in acknowledgements:
        run.in_doubt = True


def in_one_call(acknowledgements: Iterable[Sent]) -> int:
    """Count how many of the acknowledgements, from the first on, one call carries."""
    return acknowledgements_in_a_call(run.outcome.reason for run in acknowledgements)


class Results(Generic[R]):
    """Decides what the result of each acknowledgement means: applied, refused, or to be sent again.

    `attempts`: how often an acknowledgement is sent that the service refuses for good.
    """

    attempts = 1

    def applied(self, run: R) -> None:
        """Take note that an acknowledgement was applied."""
        raise NotImplementedError

    def refused(self, run: R, code: str, detail: str, *, retriable: bool) -> None:
        """Take note that an acknowledgement is not sent again; `retriable`: its result may still become known."""
        raise NotImplementedError

    def add(
        self, acknowledgements: Sequence[R], results: Sequence[AcknowledgementResult], patience_s: float
    ) -> list[R]:
        """Take in the results of one call.

        Args:
            patience_s: how long a result may be unknown or retriable before it counts as a failure.
        Returns: the acknowledgements to send again.
        """
        again = []
        now = time.monotonic()
        for run, result in zip(acknowledgements, results, strict=True):
            if result.status == IGNORED and not run.finished_before:
                self.refused(run, INVALID_RECORD_STATE, NOT_OWN, retriable=False)
                continue
            if result.status in (APPLIED, IGNORED) or (result.code == INVALID_RECORD_STATE and run.released_before):
                self.applied(run)
                continue
            if result.code == INVALID_REQUEST and not run.outcome.begun:
                run.outcome = GIVEN_BACK  # with kafka_defaults every delivery is an attempt
                again.append(run)
                continue
            run.in_doubt = run.in_doubt or result.status == "unknown"
            if run.give_up_at is None:
                run.give_up_at = now + patience_s
            retriable = result.status == "unknown" or bool(result.retriable)
            run.refusals += not retriable
            if now < run.give_up_at if retriable else run.refusals < self.attempts:
                again.append(run)
                continue
            code = result.code or "UNKNOWN_SERVER_ERROR"
            self.refused(run, code, result.detail or code, retriable=retriable)
        return again

    def refuse(self, acknowledgements: Sequence[R], error: ApiError) -> None:
        """Take note that the service refused the whole call and applied none."""
        for run in acknowledgements:
            self.refused(run, error.error.code, error.detail, retriable=error.error.retriable)


class Committed(dict[tuple[str, int], int]):
    """Counts the offsets that were settled, by (topic, partition). `failures`: the runs that were not; another member
    may get their records."""

    failures: tuple[AcknowledgementFailure, ...] = ()

    def raise_failures(self) -> None:
        """Raises: AcknowledgementError: there are failures."""
        if self.failures:
            raise AcknowledgementError(self.failures)


class Settled(Results[OutcomeRun]):
    """The results of a consumer's acknowledgements, gathered over calls."""

    def __init__(self) -> None:
        self.committed = Committed()
        self.failures: list[AcknowledgementFailure] = []
        self.renewed: list[Record] = []
        """Records whose lock the user renewed: they need another outcome."""
        self.touched: list[Delivery] = []
        """Deliveries of which an acknowledgement got its result."""

    def take(self) -> Committed:
        """Return the results since the last call."""
        taken, self.committed = self.committed, Committed()
        taken.failures, self.failures = tuple(self.failures), []
        return taken

    def applied(self, run: OutcomeRun) -> None:
        self._touch(run)
        tracing.end(run.span)
        if run.outcome.type == "renew":
            self.renewed += run.delivery.hand_out_again(run.first_offset, run.last_offset)
            return
        place = (run.delivery.topic, run.delivery.partition)
        self.committed[place] = self.committed.get(place, 0) + run.last_offset - run.first_offset + 1

    def refused(self, run: OutcomeRun, code: str, detail: str, *, retriable: bool) -> None:
        self._touch(run)
        tracing.end(run.span, code, detail)
        if not retriable:
            run.delivery.lost.update(range(run.first_offset, run.last_offset + 1))
        self.failures.append(run.failure(code, detail, retriable))

    def _touch(self, run: OutcomeRun) -> None:
        run.delivery.in_flight -= 1
        self.touched.append(run.delivery)


class Acknowledging:
    """The acknowledge calls of one member of a group. They need no share session, so they may overlap with fetches."""

    def __init__(self, client: Client, group: str, member_id: str, patience_s: float) -> None:
        self.client: Final = client
        self.path: Final = {"group": group}
        self.member_id = member_id
        self._patience_s = patience_s

    async def send(self, acknowledgements: list[R], settled: Results[R], deadline_s: float | None = None) -> None:
        """Send acknowledgements until each has its result. Remove those that have one from the list.

        Args:
            deadline_s: for each call; None: as long as a result may stay unknown.
        Raises: ApiError: the service is out of reach, or the result is unknown. Send what is left in the list again.
        """
        while acknowledgements:
            sent = acknowledgements[: in_one_call(acknowledgements)]
            try:
                results = await self.call(sent, self._patience_s if deadline_s is None else deadline_s)
            except ApiError as error:
                if not error.definite:
                    doubt(sent)
                if error.error.retriable or not error.definite:
                    raise
                settled.refuse(sent, error)
                del acknowledgements[: len(sent)]
                continue
            again = settled.add(sent, results, self._patience_s)
            acknowledgements[: len(sent)] = again
            if again:
                await LEADER_MOVED.pause()

    async def call(
        self, acknowledgements: Sequence[Sent], deadline_s: float | None = None
    ) -> list[AcknowledgementResult]:
        """Make one acknowledge call. Raises: ApiError: the answer has no results."""
        request = AcknowledgeRequest(
            member_id=self.member_id, acknowledgements=[run.message() for run in acknowledgements]
        )
        try:
            response: AcknowledgeResponse = await self.client.call(
                ACKNOWLEDGE,
                request,
                path=self.path,
                deadline_s=deadline_s,
                in_doubt=functools.partial(doubt, acknowledgements),
            )
        except ApiError as error:
            if "results" not in error.extra:
                raise
            return msgspec.convert(error.extra["results"], list[AcknowledgementResult])
        return response.results

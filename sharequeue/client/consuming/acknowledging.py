"""Acknowledge calls, and the result of each acknowledgement.

Every acknowledgement names its delivery count. So it is safe to send one again when its answer was lost.
"""

import asyncio
import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from sharequeue.client.consuming.deliveries import Delivery, OutcomeRun, Record
from sharequeue.client.consuming.outcomes import GIVEN_BACK
from sharequeue.client.errors import AcknowledgementError, AcknowledgementFailure
from sharequeue.http.calling.caller import Client
from sharequeue.protocol import apis
from sharequeue.protocol.bounds import acknowledgements_in_a_call
from sharequeue.protocol.errors import ApiError, InvalidRecordState, InvalidRequest
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import AcknowledgeRequest, AcknowledgeResponse

ACKNOWLEDGE: Final = replace(apis.ACKNOWLEDGE_RECORDS, idempotent=True)
APPLIED: Final = ("applied", "already_applied", "ignored")
REPEAT_PAUSE_S: Final = 0.1
INVALID_RECORD_STATE: Final = InvalidRecordState.error.code
INVALID_REQUEST: Final = InvalidRequest.error.code


def doubt(acknowledgements: Iterable[OutcomeRun]) -> None:
    """The answer was lost: the service may have applied these."""
    for run in acknowledgements:
        run.in_doubt = True


def in_one_call(acknowledgements: Iterable[OutcomeRun]) -> int:
    """How many of the acknowledgements, from the first on, one call carries."""
    return acknowledgements_in_a_call(run.outcome.reason for run in acknowledgements)


class Settled:
    """The results of acknowledgements, gathered over calls."""

    def __init__(self) -> None:
        self.committed: dict[tuple[str, int], int] = {}
        """How many offsets were settled, by (topic, partition)."""
        self.failures: list[AcknowledgementFailure] = []
        self.renewed: list[Record] = []
        """Records whose lock the user renewed: they need another outcome."""
        self.touched: list[Delivery] = []
        """Deliveries of which an acknowledgement got its result."""

    def raise_failures(self) -> None:
        """Raises: AcknowledgementError: with the failures since the last call."""
        if self.failures:
            failures, self.failures = self.failures, []
            raise AcknowledgementError(failures)

    def add(
        self, acknowledgements: Sequence[OutcomeRun], results: Sequence[AcknowledgementResult], patience_s: float
    ) -> list[OutcomeRun]:
        """Take in the results of one call.

        Args:
            patience_s: how long a result may be unknown or retriable before it counts as a failure.
        Returns: the acknowledgements to send again.
        """
        again = []
        now = time.monotonic()
        for run, result in zip(acknowledgements, results, strict=True):
            delivery = run.delivery
            if result.status in APPLIED or (result.code == INVALID_RECORD_STATE and run.released_before):
                self._applied(run)
            else:
                if result.code == INVALID_REQUEST and not run.outcome.begun:
                    run.outcome = GIVEN_BACK  # with kafka_defaults every delivery is an attempt
                    again.append(run)
                    continue
                run.in_doubt = run.in_doubt or result.status == "unknown"
                if run.give_up_at is None:
                    run.give_up_at = now + patience_s
                retriable = result.status == "unknown" or bool(result.retriable)
                if retriable and now < run.give_up_at:
                    again.append(run)
                    continue
                code = result.code or "UNKNOWN_SERVER_ERROR"
                self.failures.append(run.failure(code, result.detail or code, retriable))
            delivery.in_flight -= 1
            self.touched.append(delivery)
        return again

    def refuse(self, acknowledgements: Sequence[OutcomeRun], error: ApiError) -> None:
        """The service refused the whole call and applied none."""
        for run in acknowledgements:
            self.failures.append(run.failure(error.error.code, error.detail, error.error.retriable))
            run.delivery.in_flight -= 1
            self.touched.append(run.delivery)

    def _applied(self, run: OutcomeRun) -> None:
        if run.outcome.type == "renew":
            self.renewed += run.delivery.hand_out_again(run.first_offset, run.last_offset)
            return
        place = (run.delivery.topic, run.delivery.partition)
        self.committed[place] = self.committed.get(place, 0) + run.last_offset - run.first_offset + 1


class Acknowledging:
    """The acknowledge calls of one member of a group. They need no share session, so they may overlap with fetches."""

    def __init__(self, client: Client, group: str, member_id: str, patience_s: float) -> None:
        self._client = client
        self._path = {"group": group}
        self.member_id = member_id
        self._patience_s = patience_s

    async def send(self, acknowledgements: list[OutcomeRun], settled: Settled, deadline_s: float | None = None) -> None:
        """Send acknowledgements until each has its result. Remove those that have one from the list.

        Args:
            deadline_s: for each call; None: as long as a result may stay unknown.
        Raises: ApiError: the service is out of reach, or the result is unknown. Send what is left in the list again.
        """
        while acknowledgements:
            sent = acknowledgements[: in_one_call(acknowledgements)]
            try:
                results = await self._call(sent, self._patience_s if deadline_s is None else deadline_s)
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
                await asyncio.sleep(REPEAT_PAUSE_S)

    async def _call(self, acknowledgements: Sequence[OutcomeRun], deadline_s: float) -> list[AcknowledgementResult]:
        """One acknowledge call. Raises: ApiError: the answer has no results."""
        request = AcknowledgeRequest(
            member_id=self.member_id, acknowledgements=[run.message() for run in acknowledgements]
        )
        try:
            response: AcknowledgeResponse = await self._client.call(
                ACKNOWLEDGE,
                request,
                path=self._path,
                deadline_s=deadline_s,
                in_doubt=functools.partial(doubt, acknowledgements),
            )
        except ApiError as error:
            if "results" not in error.extra:
                raise
            return msgspec.convert(error.extra["results"], list[AcknowledgementResult])
        return response.results

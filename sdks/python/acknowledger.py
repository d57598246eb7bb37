"""Acknowledges over generated code, until each outcome is known. Copy it into your project, beside worker.py."""

import time

from producer import UnexpectedAnswer, ask, may_help, problem_of, retry_after_s, said
from sharequeue_api import (
    Acknowledgement,
    AcknowledgementStatus,
    AcknowledgeRequest,
    AcknowledgeResponse,
    AcknowledgeType,
    ApiException,
    FetchedBatch,
    RecordsApi,
)
from urllib3.exceptions import HTTPError

TRY_S = 30.0
NOT_OWN = "another member has finished these records, or they were deleted"


class NotAcknowledged(Exception):
    """An acknowledgement that the service refused, or whose lock ended before: its records come again, unless another
    member has finished them.

    `code`: of the Problem, for example INVALID_RECORD_STATE; UNEXPECTED_ANSWER if something else than a gateway
    answered; "" if nothing did.
    """

    def __init__(self, acknowledgement: Acknowledgement, code: str, detail: str) -> None:
        super().__init__(acknowledgement, code, detail)
        self.acknowledgement = acknowledgement
        self.code = code
        self.detail = detail

    def __str__(self) -> str:
        a = self.acknowledgement
        place = f"{a.topic}/{a.partition}/{a.first_offset}"
        return f"{a.type.value if a.type else ''} of {place} was not applied: {self.code} {self.detail}"


class Acknowledger:
    """Sends the acknowledgements of one member."""

    def __init__(self, records: RecordsApi, group: str, member_id: str) -> None:
        self._records = records
        self._group = group
        self._member_id = member_id

    def acknowledge(self, outcomes: list[Acknowledgement], *, sent: bool = False) -> list[NotAcknowledged]:
        """Repeat for 30 s what has no known outcome: a repeat is recognised by its delivery count. A request that is
        refused for what it says is sent again in halves, so that one bad acknowledgement spoils no other.

        `sent`: they may have been sent before. Returns: those that were refused or failed, or were not this member's.
        """
        lost: list[NotAcknowledged] = []
        deadline = time.monotonic() + TRY_S
        parts = [(outcomes, sent)] if outcomes else []
        while parts:
            part, doubted = parts.pop()
            try:
                results = self.send(part).results
            except (ApiException, HTTPError) as fault:
                status = fault.status if isinstance(fault, ApiException) else None
                if may_help(fault) and time.monotonic() < deadline:
                    parts.append((part, True))
                    time.sleep(retry_after_s(fault) or 0.5)
                elif status in (400, 413, 422) and len(part) > 1:
                    middle = len(part) // 2
                    parts += [(part[middle:], doubted), (part[:middle], doubted)]
                else:
                    problem = problem_of(fault)
                    other = "UNEXPECTED_ANSWER" if isinstance(fault, UnexpectedAnswer) else ""
                    code, detail = (problem.code, problem.detail) if problem else (other, said(fault))
                    lost += [NotAcknowledged(outcome, code, detail) for outcome in part]
                continue
            unknown: list[Acknowledgement] = []
            for outcome, result in zip(part, results, strict=True):
                if result.status == AcknowledgementStatus.UNKNOWN and time.monotonic() < deadline:
                    unknown.append(outcome)
                elif result.status == AcknowledgementStatus.IGNORED and not doubted:
                    lost.append(NotAcknowledged(outcome, "INVALID_RECORD_STATE", NOT_OWN))
                elif result.status in (AcknowledgementStatus.UNKNOWN, AcknowledgementStatus.FAILED):
                    lost.append(NotAcknowledged(outcome, result.code or "", result.detail or ""))
            if unknown:
                parts.append((unknown, True))
                time.sleep(0.5)
        return lost

    def send(self, acknowledgements: list[Acknowledgement]) -> AcknowledgeResponse:
        """One request. Raises: ApiException, HTTPError."""
        request = AcknowledgeRequest(member_id=self._member_id, acknowledgements=acknowledgements)
        return ask(self._records, lambda: self._records.acknowledge_records(self._group, request, _request_timeout=30))


def one(
    batch: FetchedBatch,
    first: int,
    last: int,
    word: AcknowledgeType,
    reason: str | None = None,
    *,
    delay_ms: int | None = None,
    begun: bool | None = None,
) -> Acknowledgement:
    """An acknowledgement of some records of a batch. A reason has at most 1,024 characters of Unicode."""
    return Acknowledgement(
        topic=batch.topic,
        topic_id=batch.topic_id,
        partition=batch.partition,
        first_offset=first,
        last_offset=last,
        delivery_count=batch.delivery_count,
        type=word,
        reason=reason and reason.encode(errors="replace").decode()[:1024],
        delay_ms=delay_ms if delay_ms is None else min(max(delay_ms, 0), 43_200_000),
        begun=begun,
    )


def releases(held: list[FetchedBatch], outcomes: list[Acknowledgement]) -> list[Acknowledgement]:
    """Releases of the records that were never begun: `outcomes` are of the first batch."""
    done = [outcomes[-1].last_offset + 1] if outcomes else []
    firsts = [*done, *(batch.first_offset for batch in held[len(done) :])]
    both = zip(held, firsts, strict=True)
    return [
        one(b, first, b.last_offset, AcknowledgeType.RELEASE, begun=False)
        for b, first in both
        if first <= b.last_offset
    ]

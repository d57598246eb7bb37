"""Keeps the acquisition locks of held records alive: renews each at half of its time.

A lock's time is its `lock_duration_ms`, counted here from the moment the answer arrived. The service's clock is never
used. A renewal starts the same length again.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sharequeue.client.consuming.acknowledging import APPLIED, Acknowledging
from sharequeue.client.consuming.deliveries import Delivery, OutcomeRun
from sharequeue.client.consuming.outcomes import RENEW, RENEWED_AT
from sharequeue.protocol import apis
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.types import MAX_ACKNOWLEDGEMENTS
from sharequeue.repeats import HEARTBEAT
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger(__name__)

TOGETHER_S: Final = 0.2
"""One call renews all locks that are due within this time."""
NEVER: Final = math.inf


@dataclass(eq=False)
class Renewing:
    """Renews locks in the background.

    Args:
        held: the consumer's deliveries. `settling.py` adds and removes them.
        max_idle_s: a consumer that was not used for so long may hang, and its locks are no longer renewed; inf: never.
        give_back: called then. Releases what the program has not begun, before its locks end: so that is no attempt.
    """

    _acknowledging: Acknowledging
    _held: dict[Delivery, None]
    _max_idle_s: float
    _give_back: Callable[[], None]
    _enabled: bool
    _allowed: bool | None = None
    _used_at: float = field(default_factory=time.monotonic)
    _timer: asyncio.Handle | None = None
    _timer_at: float = NEVER
    _task: asyncio.Task[None] | None = None

    def used(self) -> None:
        """The program used the consumer."""
        self._used_at = time.monotonic()

    def held(self, delivery: Delivery, received_at: float, *, urgent: bool) -> None:
        """A delivery was acquired. `urgent`: an earlier, lost answer acquired it, so its lock is renewed at once."""
        delivery.deadline = received_at + delivery.lock_duration_s
        delivery.renew_at = received_at if urgent else received_at + delivery.lock_duration_s * RENEWED_AT
        self._arm(delivery.renew_at)

    async def close(self) -> None:
        self._enabled = False
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _arm(self, renew_at: float) -> None:
        if not self._enabled or renew_at == NEVER or self._task is not None:
            return  # a running task arms the timer when it ends
        if self._timer is not None:
            if self._timer_at <= renew_at:
                return
            self._timer.cancel()
        self._timer_at = renew_at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, renew_at - time.monotonic()), self._start)

    def _start(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._renew_due())

    async def _renew_due(self) -> None:
        try:
            now = time.monotonic()
            due = [delivery for delivery in self._held if delivery.renew_at <= now + TOGETHER_S]
            if due and await self._may_renew(min(delivery.deadline for delivery in due) - now):
                if now - self._used_at > self._max_idle_s:
                    log.warning(
                        "the consumer was not used for %.0f s: its locks are no longer renewed", now - self._used_at
                    )
                    for delivery in due:
                        delivery.renew_at = NEVER
                    self._give_back()
                else:
                    await self._renew(due)
        finally:
            self._task = None
            self._arm(min((delivery.renew_at for delivery in self._held), default=NEVER))

    async def _may_renew(self, left_s: float) -> bool:
        """Return whether the group allows renewing; the client asks once. Without an answer in half of the time that
        the locks have left it tries: the group coordinator may be away."""
        if self._allowed is None:
            try:
                calls = self._acknowledging
                config = await calls.client.call(apis.GET_SHARE_GROUP_CONFIG, path=calls.path, deadline_s=left_s / 2)
                self._allowed = config.get("share.renew.acknowledge.enable") != "false"
            except ApiError:
                return True
            if not self._allowed:
                self._enabled = False
                log.info("the group %r does not allow renewing locks", calls.path["group"])
        return self._allowed

    async def _renew(self, due: list[Delivery]) -> None:
        renewals = [
            OutcomeRun(delivery, first, last, RENEW) for delivery in due for first, last in delivery.held_runs()
        ]
        asked_at = time.monotonic()
        for delivery in due:
            delivery.renew_at = NEVER
        if not renewals:
            return
        results: list[AcknowledgementResult] = []
        for start in range(0, len(renewals), MAX_ACKNOWLEDGEMENTS):
            try:
                results += await self._acknowledging.call(renewals[start : start + MAX_ACKNOWLEDGEMENTS])
            except ApiError as error:
                log.warning("cannot renew locks: %s", error.detail)
                for delivery in due:
                    delivery.renew_at = time.monotonic() + HEARTBEAT.pause_s
                return
        again_at: dict[Delivery, float] = {}
        for renewal, result in zip(renewals, results, strict=True):
            if result.status != APPLIED:
                again_at[renewal.delivery] = self._not_renewed(renewal, result)
        for delivery in due:
            if delivery not in again_at:
                delivery.deadline = asked_at + delivery.lock_duration_s
                delivery.renew_at = asked_at + delivery.lock_duration_s * RENEWED_AT
            elif delivery.held_runs():
                delivery.renew_at = again_at[delivery]

    @staticmethod
    def _not_renewed(renewal: OutcomeRun, result: AcknowledgementResult) -> float:
        """Returns: when to renew the rest of the delivery."""
        delivery = renewal.delivery
        if result.retriable or result.status == "unknown":
            return time.monotonic() + HEARTBEAT.pause_s
        first, last = renewal.first_offset, renewal.last_offset
        if (first, last) in delivery.held_runs():  # else a part of it was acknowledged during the call
            delivery.lost.update(range(first, last + 1))
            place = f"{delivery.topic}-{delivery.partition} offsets {first} to {last}"
            log.warning("the lock of %s was lost: %s", place, result.detail or "its records are settled or deleted")
        return time.monotonic()

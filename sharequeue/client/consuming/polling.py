"""Fetches for a consumer until records are ready: sends acknowledgements along, waits failures out, takes answers in.

`settling.py` owns the held deliveries. A member of the group fetches the partitions that `membership.py` was assigned.
"""

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from sharequeue.client.consuming.deliveries import Delivery, Record
from sharequeue.client.consuming.fetching import MISSING_TOPIC, SESSION_LOST, Fetched, Fetching
from sharequeue.client.consuming.membership import Membership
from sharequeue.client.consuming.renewing import Renewing
from sharequeue.client.consuming.settling import Settling
from sharequeue.protocol.types import MAX_WAIT_MS
from sharequeue.repeats import CALL
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger(__name__)

EARLY: Final = 0.5
"""A fetch that found nothing in less than this part of its time did not wait: something keeps it from fetching."""
SHORTEST_CALL_S: Final = 1.0
"""An acknowledge call of a poll gets this long at least, however little is left of the poll."""
SAID_AFTER_S: Final = 5.0
"""A service that does not answer for so long is logged, once."""


@dataclass(eq=False)
class Polling:
    """The fetches of one consumer. One call of `fetch` at a time.

    Args:
        ready: takes the records that fetches acquired.
        patience_s: how long failures that may pass are waited out; inf: always.
    """

    _fetching: Fetching
    _settling: Settling
    _renewing: Renewing
    _ready: deque[Record]
    _patience_s: float
    _failing_since: float | None = None
    _said: bool = False
    """Whether it is logged that the service does not answer."""
    membership: Membership | None = None
    """Set when the consumer subscribes."""

    @property
    def failing(self) -> bool:
        """Return whether the service did not answer the last time."""
        return self._failing_since is not None

    async def fetch(self, deadline: float, *, renews: bool) -> None:
        """Fetch until a record is ready, or the deadline passed.

        Args:
            renews: acknowledgements to send renew records. These are ready then, and nothing is fetched.
        Raises: ApiError: the service refused, or failed for as long as `patience_s`.
        """
        pause_s = 0.0
        while True:
            asked_at = time.monotonic()
            max_wait_s = max(0.0, deadline - asked_at)
            fetched = fault = None
            self._take_assignment()
            try:
                if renews or self._ready or self._fetching.opening or self._settling.must_send:
                    acknowledgements = self._settling.take_all()
                    await self._settling.send(
                        acknowledgements, self._settling.settled, max(SHORTEST_CALL_S, max_wait_s)
                    )
                if not self._ready:
                    fetched = await self._fetch_once(max_wait_s)
                    if fetched is None and time.monotonic() < deadline:
                        continue
                    fault = None if fetched is None else self._receive(fetched)
                self._answered()
            except ApiError as error:
                self._check_passing(error)
                fault = error
            now = time.monotonic()
            if self._ready:
                return
            if fault is not None and fault.error not in MISSING_TOPIC:
                self._failed(fault, asked_at, now)
            if now >= deadline:
                return
            if fault is None and now - asked_at >= EARLY * min(max_wait_s, MAX_WAIT_MS / 1000):
                pause_s = 0.0
                continue
            if fetched is not None:  # the answer came at once and is empty: a partition failed or is gone
                self._fetching.name_topics_soon(0)
            pause_s = CALL.after(pause_s)
            await CALL.pause(max(pause_s, (fault and fault.retry_after_s) or 0), at_most_s=deadline - now)

    def _answered(self) -> None:
        if self._said:
            log.warning("the service answers again")
        self._failing_since, self._said = None, False

    def _failed(self, fault: ApiError, asked_at: float, now: float) -> None:
        """Wait for the service. Raises: ApiError: it failed for as long as `patience_s`."""
        self._failing_since = self._failing_since or asked_at
        failing_s = now - self._failing_since
        if failing_s >= self._patience_s:
            raise fault
        if failing_s >= SAID_AFTER_S and not self._said:
            self._said = True
            log.warning("waiting for the service: %s", fault.detail)

    def _check_passing(self, error: ApiError) -> None:
        """Raises the error if trying again cannot help."""
        if error.error in SESSION_LOST:
            self._fetching.reopen()
        elif not error.error.retriable and error.error not in MISSING_TOPIC:
            raise error

    def _take_assignment(self) -> None:
        """Of a member: fetch its present assignment. A new assignment opens a new session, and acknowledgements go
        before it, because its first fetch can carry none."""
        membership = self.membership
        if membership is not None:
            membership.go_on()
            if membership.changed.is_set():
                membership.changed.clear()
                order = {topic: index for index, topic in enumerate(membership.topics)}
                assigned = sorted(membership.assignment.items(), key=lambda item: order.get(item[0], len(order)))
                self._fetching.assign(dict(assigned))

    async def _fetch_once(self, max_wait_s: float) -> Fetched | None:
        """Fetch. None: the assignment of the member changed during the fetch, or is empty. Raises: ApiError."""
        membership = self.membership
        if membership is not None:
            if membership.failure is not None:
                raise membership.failure
            if not membership.assignment:
                await membership.unless_changed(asyncio.sleep(max_wait_s))
                return None
        self._fetching.carry(self._settling.take_unsent())
        fetching = self._fetching.fetch(round(max_wait_s * 1000))
        return await (fetching if membership is None else membership.unless_changed(fetching))

    def _receive(self, fetched: Fetched) -> ApiError | None:
        """Take in a fetch's answer. Returns: why a partition failed, or None. Raises: ApiError: nothing was acquired,
        and trying again cannot help."""
        response = fetched.response
        self._settling.take_results(fetched.acknowledgements, response.acknowledgement_results)
        received_at = time.monotonic()
        for batch in response.batches:
            delivery = Delivery(batch, *self._fetching.holder)
            self._settling.hold(delivery)
            self._ready.extend(delivery.records.values())
            self._renewing.held(delivery, received_at, urgent=fetched.repeated)
        faults = self._fetching.faults(response)
        refused = [fault for fault in faults if not fault.error.retriable and fault.error not in MISSING_TOPIC]
        if refused and not self._ready:
            raise refused[0]
        return faults[0] if faults else None

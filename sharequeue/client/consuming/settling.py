"""Settles the deliveries that a consumer holds: by commits, by acknowledgements that fetches carry, and at the end.

Only this module adds and removes held deliveries. It sends acknowledgements in calls of their own and hands the others
to `polling.py`, whose fetches carry them.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sharequeue import background
from sharequeue.client.consuming.acknowledging import Acknowledging, Committed, Settled, in_one_call
from sharequeue.client.consuming.deliveries import Delivery, OutcomeRun, Record, releases
from sharequeue.client.consuming.fetching import Fetching
from sharequeue.client.errors import AcknowledgementError
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue_http.forms.errors import ApiError

log = logging.getLogger(__name__)

CommitCallback = Callable[[Committed, Exception | None], None]


@dataclass(eq=False)
class Settling:
    """The deliveries of one consumer, from their acquisition until nothing of them is open.

    Args:
        fetching: holds the acknowledgements of a fetch whose answer was lost.
        ready: takes the records whose lock the user renewed; the next poll returns them again.
        patience_s: how long an outcome may stay unknown before it counts as failed.
        on_acknowledged: gets what polls and `close` settled. Without it failures are logged.
    """

    _acknowledging: Acknowledging
    _fetching: Fetching
    _ready: deque[Record]
    _patience_s: float
    _on_acknowledged: CommitCallback | None
    _unsent: list[OutcomeRun] = field(init=False, default_factory=list)
    """Acknowledgements that no request carries."""
    _commits: set[asyncio.Task[None]] = field(init=False, default_factory=set)
    held: dict[Delivery, None] = field(init=False, default_factory=dict)
    """Deliveries of which something is open, in the order of their acquisition."""
    settled: Settled = field(init=False, default_factory=Settled)
    """The results of what polls and `close` sent."""

    @property
    def must_send(self) -> bool:
        """Return whether there are more acknowledgements than a fetch may carry, with those of an unanswered one."""
        waiting = self._fetching.unanswered_acknowledgements + self._unsent
        return in_one_call(waiting) < len(waiting)

    def hold(self, delivery: Delivery) -> None:
        """Hold a delivery that a fetch acquired."""
        self.held[delivery] = None

    def collect(self) -> bool:
        """Turn chosen outcomes into acknowledgements to send. Returns: whether records are to be renewed.

        Deliveries that transactions have settled are let go.
        """
        done = []
        for delivery in self.held:
            if delivery.chosen:
                self._unsent += delivery.take_chosen()
            elif delivery.settled:
                done.append(delivery)
        for delivery in done:
            del self.held[delivery]
        return any(run.outcome.type == "renew" for run in self._unsent)

    def take_unsent(self) -> list[OutcomeRun]:
        """The acknowledgements that no request carries; the caller sends them."""
        taken, self._unsent = self._unsent, []
        return taken

    def take_all(self) -> list[OutcomeRun]:
        """As `take_unsent`, with those of a fetch whose answer was lost. No fetch may be under way."""
        return self._fetching.take_unanswered_acknowledgements() + self.take_unsent()

    async def send(self, acknowledgements: list[OutcomeRun], settled: Settled, deadline_s: float | None = None) -> None:
        """Send acknowledgements in a call of their own. Raises: ApiError: no result; they are sent again later."""
        try:
            await self._acknowledging.send(acknowledgements, settled, deadline_s)
        finally:
            self._unsent += acknowledgements  # `send` has removed those that are settled
            self._release_settled(settled)

    def take_results(self, carried: Sequence[OutcomeRun], results: Sequence[AcknowledgementResult]) -> None:
        """A fetch was answered, with the results of the acknowledgements that it carried."""
        self._unsent = self.settled.add(carried, results, self._patience_s) + self._unsent
        self._release_settled(self.settled)

    def _release_settled(self, settled: Settled) -> None:
        """Let go of settled deliveries, and hand out renewed records again."""
        for delivery in [delivery for delivery in settled.touched if delivery.settled]:
            self.held.pop(delivery, None)
        settled.touched.clear()
        for record in settled.renewed:
            record.renewed_until = time.monotonic() + record.delivery.lock_duration_s
            self._ready.append(record)
        settled.renewed.clear()
        if settled is self.settled and (settled.committed or settled.failures):
            self._tell(settled.take(), None, self._on_acknowledged)

    @staticmethod
    def _tell(taken: Committed, fault: ApiError | None, callback: CommitCallback | None) -> None:
        """Pass on what was settled. Without a callback failures are logged."""
        refused = AcknowledgementError(taken.failures) if taken.failures else None
        if callback is not None:
            callback(taken, fault or refused)
        elif refused is not None:
            log.warning("%s", refused)

    # Commits

    def commit_in_background(
        self, acknowledgements: list[OutcomeRun], callback: CommitCallback | None, deadline_s: float | None = None
    ) -> None:
        """As `send`, in a task. The callback gets the result; without one, `on_acknowledged`."""

        async def commit() -> None:
            settled = Settled()
            fault: ApiError | None = None
            try:
                await self.send(acknowledgements, settled, deadline_s)
            except ApiError as error:
                fault = error
            self._tell(settled.take(), fault, callback or self._on_acknowledged)

        background.start(self._commits, commit())

    # Closing

    async def wait_for_commits(self) -> None:
        """Return when no commit is under way in the background."""
        if self._commits:
            await asyncio.wait(self._commits)

    async def send_chosen(self, deadline_s: float | None) -> None:
        """Send every outcome that was chosen. Raises: ApiError."""
        self.collect()
        await self.send(self.take_all(), self.settled, deadline_s)

    async def release_held(self, deadline_s: float) -> None:
        """Release what is held and end the share session. If the service is out of reach, the locks end by themselves.

        This includes the records that a cancelled poll, or a poll whose answer was lost, acquired.
        """
        if not self._fetching.opened:
            return
        try:
            for batch in await self._fetching.lost(deadline_s):
                self.hold(Delivery(batch))
            await self._acknowledging.send(releases(self.held), Settled(), deadline_s)
            await self._fetching.close(deadline_s)
        except ApiError as error:
            log.warning(
                "the records that %s holds are released when their locks end: %s",
                self._acknowledging.member_id,
                error.detail,
            )

"""The leader epochs of this gateway: each load takes the newest one, and stores refuse a write with an older one.

Source: KIP-932, leader epochs fence the late writes of a former leader.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sharequeue.protocol.messages.cluster import LeaderEpochResponse
from sharequeue.repeats import EPOCH
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable
from sharequeue_http.log import fields

log = logging.getLogger(__name__)


class LeaderEpochs:
    """`current`: the epoch for the next load. A new generation raises it, and so does `fence` after a lost write."""

    def __init__(self, take_next: Callable[[int], Awaitable[LeaderEpochResponse]]) -> None:
        """`take_next`: asks the group coordinator for an epoch above all that it gave before, and above a given one."""
        self.current = 0
        self.lost = (0, 0)
        """Epochs above the first and up to the second were given before PostgreSQL went back."""
        self._seen = 0
        self._take_next = take_next
        self._fencing: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    def raise_to(self, epoch: int) -> None:
        self.current = max(self.current, epoch)

    def fence(self) -> None:
        """A write whose outcome is unknown may still arrive: allow no load before there is a higher epoch."""
        if self._fencing is None:
            self._fencing = asyncio.get_running_loop().create_task(self._fence())

    async def fenced(self) -> None:
        """Wait until lost writes are fenced. Raises: CoordinatorNotAvailable: the group coordinator takes too long."""
        fencing = self._fencing
        if fencing is not None:
            await asyncio.wait([fencing], timeout=EPOCH.patience_s)
            if not fencing.done():
                raise CoordinatorNotAvailable(
                    "the group coordinator did not give a leader epoch in time; try again in a moment"
                )

    async def _fence(self) -> None:
        while True:
            try:
                await self._take()
                break
            except Exception as fault:  # any fault: without a new epoch nothing may be loaded
                log.warning("cannot take a new leader epoch; trying again", extra=fields(cause=repr(fault)))
                await EPOCH.pause()
        self._fencing = None

    async def _take(self) -> None:
        before = self.current
        taken = await self._take_next(max(before, self._seen))
        if before < self._seen <= taken.lost_to:
            self.lost = (before if self.lost == (0, 0) else min(before, self.lost[0]), taken.lost_to)
            log.error(
                "PostgreSQL is older than Redis or the states of groups, which know higher leader epochs",
                extra=fields(known=self._seen, epoch=taken.leader_epoch),
            )
        self.raise_to(taken.leader_epoch)

    def ask_for_higher(self, seen: int) -> None:
        """Another leader used a higher epoch, `seen` (0: unknown): ask for one above it before the next load."""
        self._seen = max(self._seen, seen)
        if self._asking is None and self._fencing is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def _ask(self) -> None:
        try:
            await self._take()
        except ApiError as error:
            log.info("cannot take a higher leader epoch", extra=fields(cause=error.detail))
        finally:
            self._asking = None

"""The leader epochs of this gateway: each load takes the newest, and a write with an older one is refused.

Source: KIP-932, leader epochs fence what a former leader of a share-partition still writes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sharequeue.log import fields
from sharequeue.protocol.errors import ApiError, CoordinatorNotAvailable

log = logging.getLogger(__name__)

FENCE_PATIENCE_S = 10.0
FENCE_AGAIN_S = 0.5


class LeaderEpochs:
    """`current` is what to load with. It is raised by the gateways' generations, and where a lost write asks for it."""

    def __init__(self, take_next: Callable[[], Awaitable[int]]) -> None:
        """`take_next`: asks the group coordinator for an epoch above all it gave before."""
        self.current = 0
        self._take_next = take_next
        self._fencing: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None

    def raise_to(self, epoch: int) -> None:
        self.current = max(self.current, epoch)

    def fence(self) -> None:
        """A write got lost and may still arrive: load nothing before there is an epoch above its own."""
        if self._fencing is None:
            self._fencing = asyncio.get_running_loop().create_task(self._fence())

    async def fenced(self) -> None:
        """Wait for the epoch that fences a lost write. Raises: CoordinatorNotAvailable: it takes too long."""
        fencing = self._fencing
        if fencing is not None:
            await asyncio.wait([fencing], timeout=FENCE_PATIENCE_S)
            if not fencing.done():
                raise CoordinatorNotAvailable("the group coordinator gives no leader epoch now; try again in a moment")

    async def _fence(self) -> None:
        while True:
            try:
                self.raise_to(await self._take_next())
                break
            except Exception as fault:  # whatever it is: before there is one nothing may be loaded
                log.warning("no new leader epoch yet", extra=fields(cause=repr(fault)))
                await asyncio.sleep(FENCE_AGAIN_S)
        self._fencing = None

    def ask_for_higher(self) -> None:
        """What this gateway leads knows a higher epoch, of one that led it before: the next load needs one above it."""
        if self._asking is None and self._fencing is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())

    async def above(self, tried: int) -> bool:
        """Whether the higher epoch that was asked for was given, so that it is of use to load once more."""
        if self._asking is not None:
            await asyncio.wait([self._asking])
        return self.current > tried

    async def _ask(self) -> None:
        try:
            self.raise_to(await self._take_next())
        except ApiError as error:
            log.info("no higher leader epoch", extra=fields(cause=error.detail))
        finally:
            self._asking = None

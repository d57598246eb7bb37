"""The feed of metadata changes: what changed since a version, waited for if nothing did.

In memory: a copy of the last changes in the database, the same at every instance.
"""

import asyncio
from collections import deque
from collections.abc import Iterable

from sharequeue_coordinator.metadata.store import Change

KEPT = 10_000


class Changes:
    """Topic ids and group ids that changed, by version."""

    def __init__(self) -> None:
        self.version = 0
        self._log: deque[Change] = deque(maxlen=KEPT)
        self._changed = asyncio.Event()
        self._finished = False

    def begin(self, version: int, log: Iterable[Change]) -> None:
        """Start from what was kept of the changes up to `version`."""
        self.version = version
        self._log.clear()
        self._log.extend(log)
        self.wake()

    def note(self, changes: Iterable[Change]) -> None:
        """Further changes, in order."""
        self._log.extend(changes)
        self.version = self._log[-1].version
        self.wake()

    def wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, since: int, seconds: float) -> None:
        """Return when there is something after `since`, or when the time is over; or before, for no reason."""
        if since != self.version or seconds <= 0 or self._finished:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def finish(self) -> None:
        """Answer everybody who waits: the group coordinator stops."""
        self._finished = True
        self._changed.set()

    def after(self, since: int) -> tuple[list[str], list[str]] | None:
        """(topic ids, group ids) changed after `since`; None if that is no longer known."""
        if since == self.version:
            return [], []
        oldest = self._log[0].version - 1 if self._log else self.version
        if not oldest <= since <= self.version:
            return None
        topics: dict[str, None] = {}
        groups: dict[str, None] = {}
        for version, topic_id, group_id in self._log:
            if version > since:
                if topic_id is not None:
                    topics[topic_id] = None
                if group_id is not None:
                    groups[group_id] = None
        return list(topics), list(groups)

"""The feed of metadata changes: what changed since a version, waited for if nothing did. In memory: a gateway that asks
about an earlier life of the coordinator is told to forget all it knows."""

import asyncio
import time
from collections import deque

KEPT = 10_000


class Changes:
    """Topic ids and group ids that changed, by version. Versions begin above those of an earlier process."""

    def __init__(self) -> None:
        self._first = self.version = time.time_ns() // 1_000_000
        self._log: deque[tuple[int, str | None, str | None]] = deque(maxlen=KEPT)
        self._changed = asyncio.Event()
        self._finished = False

    def note(self, *, topic_id: str | None = None, group_id: str | None = None) -> None:
        self.version += 1
        self._log.append((self.version, topic_id, group_id))
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, since: int, seconds: float) -> None:
        """Return when there is something after `since`, or when the time is over."""
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
        oldest = self._log[0][0] - 1 if self._log else self.version
        if not oldest <= since <= self.version or since < self._first:
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

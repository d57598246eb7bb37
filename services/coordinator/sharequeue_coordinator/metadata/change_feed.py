"""The feed of metadata changes: which topics and groups changed since a version.

In memory: a copy of the last changes in the database, the same at every instance. A gateway asks for the changes since
its version, and waits if there are none. One that asks for changes older than the feed must read everything again.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from sharequeue.repeats import heard
from sharequeue_coordinator.metadata.store import MetadataChange

MOST_CHANGES: Final = 10_000


class ChangeFeed:
    """The last changes in the order of their versions."""

    def __init__(self) -> None:
        self.version = 0
        self._changes: deque[MetadataChange] = deque(maxlen=MOST_CHANGES)
        self._changed = asyncio.Event()
        self._finished = False

    def begin(self, version: int, kept: Iterable[MetadataChange]) -> None:
        """Start from the changes up to `version` that the database still has."""
        self.version = version
        self._changes.clear()
        self._changes.extend(kept)
        self.wake()

    def note(self, changes: Iterable[MetadataChange]) -> None:
        """Append further changes, in order."""
        self._changes.extend(changes)
        self.version = self._changes[-1].version
        self.wake()

    def wake(self) -> None:
        """Make every `wait` return."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, since: int, seconds: float) -> None:
        """Return when there is a change after `since`, or after this time. It may return earlier without a change."""
        if since == self.version and seconds > 0 and not self._finished:
            await heard(self._changed, seconds)

    async def finish(self) -> None:
        """The group coordinator stops: make every `wait` return, later ones too."""
        self._finished = True
        self._changed.set()

    def after(self, since: int) -> tuple[list[str], list[str]] | None:
        """(topic ids, group ids) that changed after `since`; None if the feed does not reach back so far."""
        if since == self.version:
            return [], []
        oldest = self._changes[0].version - 1 if self._changes else self.version
        if not oldest <= since <= self.version:
            return None
        topics: dict[str, None] = {}
        groups: dict[str, None] = {}
        for version, topic_id, group_id in self._changes:
            if version > since:
                if topic_id is not None:
                    topics[topic_id] = None
                if group_id is not None:
                    groups[group_id] = None
        return list(topics), list(groups)

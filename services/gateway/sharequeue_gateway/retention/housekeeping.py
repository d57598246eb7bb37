"""Removes rows of the log's readers whose group does not exist any more: a load that was too late has left them.

Such a row holds the log until its group counts as idle. The group coordinator is asked twice, an hour apart. If a
group begins in that time, its row becomes active, and an active row stays.
"""

from typing import Final

from sharequeue.clock import Clock
from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import GroupIdNotFound
from sharequeue.protocol.messages.cluster import GroupSummaryQuery
from sharequeue_gateway.record_log.removing.readers import STALE_MS, Readers

PAUSE_MS: Final = 600_000
GROUPS_AT_ONCE: Final = 100


class Housekeeping:
    """Looks at some idle groups every ten minutes, in the order of their ids."""

    def __init__(self, coordinator: CoordinatorClient, readers: Readers, clock: Clock) -> None:
        self._coordinator = coordinator
        self._readers = readers
        self._clock = clock
        self._next_at_ms = 0
        self._behind = ""
        self._unknown_since_ms: dict[str, int] = {}

    async def look(self) -> None:
        """Look at the next groups, if it is time. Raises: ApiError."""
        now_ms = self._clock.now_ms()
        if now_ms < self._next_at_ms:
            return
        self._next_at_ms = now_ms + PAUSE_MS
        idle = await self._readers.idle_groups(self._behind, GROUPS_AT_ONCE)
        self._behind = idle[-1] if len(idle) == GROUPS_AT_ONCE else ""
        for group_id in idle:
            if await self._exists(group_id):
                self._unknown_since_ms.pop(group_id, None)
            elif now_ms - self._unknown_since_ms.setdefault(group_id, now_ms) >= STALE_MS:
                await self._readers.remove_idle(group_id)
                del self._unknown_since_ms[group_id]

    async def _exists(self, group_id: str) -> bool:
        limited = GroupSummaryQuery(limit=1)
        try:
            await self._coordinator.exchange(apis.GROUP_SUMMARY, limited, key=group_id, path={"group": group_id})
        except GroupIdNotFound:
            return False
        return True

"""Deletes groups that were empty and unused for `group.share.empty.retention.ms`, with their settings.

    no members, not joined, reset or configured for that time ─▶ ask every gateway ─┬─▶ used since: note when
                                                                                    └─▶ delete, as the call does

Fetches and acknowledgements need no member, so the gateways are asked: what is in use now, and when the log's readers
were active last. The deletion asks once more when no member can join. One that ends half-way leaves the group in the
list, so whoever owns it then goes on.
"""

import logging
from dataclasses import dataclass
from typing import Final

from sharequeue.repeats import Every
from sharequeue.service.failed_looks import looking
from sharequeue_coordinator.database import Database
from sharequeue_coordinator.groups import store
from sharequeue_coordinator.groups.admin import GroupAdmin
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
LOOKED_AT: Final = 20
"""The most groups of one look."""


@dataclass(eq=False)
class EmptyGroups:
    """The empty groups that this instance owns."""

    _database: Database
    _admin: GroupAdmin
    _retention_ms: int

    async def watch(self) -> None:
        """Look every few seconds. Runs until it is cancelled."""
        async for _ in Every(LOOK_S):
            if self._retention_ms >= 0:
                with looking("empty_groups", "empty groups cannot be deleted now"):
                    await self.look()

    async def look(self) -> None:
        """Delete some groups that are due. Raises: ApiError: one of them cannot be deleted now."""
        due = await self._database.query(store.unused_groups, self._retention_ms)
        for group_id in [group_id for group_id in due if self._database.owns(group_id)][:LOOKED_AT]:
            unused_ms = await self._admin.unused_ms(group_id)
            if unused_ms < self._retention_ms:
                await self._database.query(store.note_use, self._database.fence(group_id), group_id, unused_ms)
            else:
                await self._admin.delete(group_id, force=False, unused_ms=self._retention_ms)
                log.info("deleted an empty group with its settings", extra=fields(group_id=group_id))

"""One group as its owner keeps it in memory."""

import asyncio

from sharequeue_coordinator.metadata.store import Fence
from sharequeue_coordinator.share_group.changes import GroupSettings
from sharequeue_coordinator.share_group.machine import ShareGroupMembership


class Group:
    """One group. `fence`: what it was read under. `revision`: of what the machine holds, as it is stored.

    `lock`: one initialisation or administration at a time; `deciding`: one event of the machine at a time, taken last.
    `closed`: it is set anew just now, and nobody may join.
    """

    __slots__ = ("closed", "deciding", "fence", "group_id", "lock", "machine", "revision", "settings")

    def __init__(
        self, group_id: str, fence: Fence, revision: int, machine: ShareGroupMembership, settings: GroupSettings
    ) -> None:
        self.group_id = group_id
        self.fence = fence
        self.revision = revision
        self.machine = machine
        self.settings = settings
        self.lock = asyncio.Lock()
        self.deciding = asyncio.Lock()
        self.closed = False

"""One group as its owner keeps it in memory."""

import asyncio
import time

from sharequeue_coordinator.database import Fence
from sharequeue_coordinator.share_group.changes import GroupSettings
from sharequeue_coordinator.share_group.machine import ShareGroup


class OwnedGroup:
    """The machine of one group, with the fence, locks and settings of its owner.

    `fence`: the one under which the group was loaded, and is saved. `revision`: the stored one that the machine has.
    `lock`, `deciding`: see the room. `closed`: an administrator changes its state just now, so no member may join.
    `used_s`: when it was asked for last.
    """

    __slots__ = ("closed", "deciding", "fence", "group_id", "lock", "machine", "revision", "settings", "used_s")

    def __init__(
        self, group_id: str, fence: Fence, revision: int, machine: ShareGroup, settings: GroupSettings
    ) -> None:
        self.group_id = group_id
        self.fence = fence
        self.revision = revision
        self.machine = machine
        self.settings = settings
        self.lock = asyncio.Lock()
        self.deciding = asyncio.Lock()
        self.closed = False
        self.used_s = time.monotonic()

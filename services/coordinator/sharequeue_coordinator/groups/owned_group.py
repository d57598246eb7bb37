"""One group as its owner keeps it in memory."""

import asyncio
import time
from dataclasses import dataclass, field

from sharequeue_coordinator.database import Fence
from sharequeue_coordinator.share_group.changes import GroupSettings
from sharequeue_coordinator.share_group.machine import ShareGroup


@dataclass(eq=False, slots=True)
class OwnedGroup:
    """The machine of one group, with the fence, locks and settings of its owner."""

    group_id: str
    fence: Fence
    """The one under which the group was loaded, and is saved."""
    revision: int
    """The stored one that the machine has."""
    machine: ShareGroup
    settings: GroupSettings
    lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    """See the room, as for `deciding`."""
    deciding: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    closed: bool = field(init=False, default=False)
    """An administrator changes its state just now, so no member may join."""
    used_s: float = field(init=False, default_factory=time.monotonic)
    """When it was asked for last."""

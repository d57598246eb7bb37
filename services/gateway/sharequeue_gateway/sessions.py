"""Share sessions as the gateway keeps them: the pure cache, the limit that holds answers back, idle ones dropped."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sharequeue.protocol.errors import ShareSessionLimitReached
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service import Clock
from sharequeue_gateway import metrics
from sharequeue_gateway.leader import Leader
from sharequeue_gateway.share_session import ShareSessionCache

SWEEP_PAUSE_S = 1.0


class OpenSession(NamedTuple):
    """What a request may know of its session. `turn` decides the rotation; `closing`: this request closes it."""

    group_id: str
    member_id: str
    partitions: Sequence[tuple[str, int]]
    turn: int
    closing: bool

"""Share sessions as the gateway runs them: the pure cache, the answer that is held back at the limit, the idle sweep."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from sharequeue.protocol.errors import InvalidShareSessionEpoch, ShareSessionLimitReached
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.service import Clock
from sharequeue_gateway import metrics
from sharequeue_gateway.leader import Leader
from sharequeue_gateway.share_session import CLOSE, OPEN, ShareSessionCache, TopicIdPartition

SWEEP_PAUSE_S = 1.0


class OpenSession(NamedTuple):
    """What a request may know of its session. `turn` decides the rotation; `closing`: this request closes it."""

    group_id: str
    member_id: str
    partitions: Sequence[TopicIdPartition]
    turn: int
    closing: bool


class Sessions:
    """The share sessions of this gateway."""

    def __init__(self, cache: ShareSessionCache, leader: Leader, clock: Clock) -> None:
        self._cache = cache
        self._leader = leader
        self._clock = clock
        metrics.SHARE_SESSIONS.set_function(lambda: len(cache))
        metrics.SHARE_SESSION_PARTITIONS.set_function(cache.partition_count)

    async def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        added: Sequence[TopicIdPartition],
        forgotten: Sequence[TopicIdPartition],
        fetch_id: str | None,
        *,
        held_back_ms: int,
    ) -> OpenSession:
        """Accept a fetch in a session. At the limit the refusal is held back, so that nobody retries in a tight loop.

        Raises: ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached.
        """
        key = (group_id, member_id)
        now_ms = self._clock.now_ms()
        if epoch == CLOSE:
            return self._closing(key)
        if epoch == OPEN:
            try:
                session = self._cache.open(key, added, now_ms)
            except ShareSessionLimitReached:
                await asyncio.sleep(held_back_ms / 1000)
                raise
        else:
            session = self._cache.advance(key, epoch, now_ms, fetch_id)
            self._cache.change(session, added, forgotten)
        return OpenSession(group_id, member_id, tuple(session.partitions), epoch, closing=False)

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> OpenSession:
        """Accept an acknowledge call in a session. Raises: ShareSessionNotFound, InvalidShareSessionEpoch."""
        key = (group_id, member_id)
        if epoch == OPEN:
            raise InvalidShareSessionEpoch("acknowledge cannot open a session: share_session_epoch 0 is for fetch")
        if epoch == CLOSE:
            return self._closing(key)
        session = self._cache.advance(key, epoch, self._clock.now_ms())
        return OpenSession(group_id, member_id, tuple(session.partitions), epoch, closing=False)

    def _closing(self, key: tuple[str, str]) -> OpenSession:
        session = self._cache.close(key)
        return OpenSession(*key, tuple(session.partitions), CLOSE, closing=True)

    def release(self, session: OpenSession) -> None:
        """Release what the member of a closed session holds in the session's partitions."""
        leds = [
            led
            for topic_id, partition in session.partitions
            if (led := self._leader.loaded(SharePartitionKey(session.group_id, topic_id, partition))) is not None
        ]
        self._leader.release_member(leds, session.member_id)

    async def sweep(self) -> None:
        """Drop idle sessions, for ever."""
        while True:
            await asyncio.sleep(SWEEP_PAUSE_S)
            dropped = self._cache.drop_idle(self._clock.now_ms())
            if dropped:
                metrics.SHARE_SESSION_EVICTIONS.inc(dropped)

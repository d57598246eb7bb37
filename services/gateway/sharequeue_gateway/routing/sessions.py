"""Share sessions: runs the pure cache of sessions, delays refusals at the limit, drops idle sessions."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.clock import Clock
from sharequeue.protocol.errors import InvalidShareSessionEpoch, ShareSessionLimitReached
from sharequeue.protocol.types import MAX_PARTITIONS_NAMED, SharePartitionKey, TopicIdPartition, topic_name_fault
from sharequeue.repeats import Every
from sharequeue.slices import Slices
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata, Partitions
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.share_partition.session import CLOSE, OPEN, ShareSession, ShareSessionCache
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

SWEEP_PAUSE_S = 1.0
SPLIT_AT_ONCE: Final = 500
"""The partitions of a closing session that are split by leader in one step of a slice."""


@dataclass(eq=False)
class Sessions:
    """The share sessions of this gateway."""

    _cache: ShareSessionCache
    _leader: Leader
    _metadata: Metadata
    _routing: Routing
    _clock: Clock

    def __post_init__(self) -> None:
        metrics.SHARE_SESSIONS.set_function(lambda: len(self._cache))
        metrics.SHARE_SESSION_PARTITIONS.set_function(self._cache.partition_count)

    async def fetch(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        added: Sequence[TopicIdPartition],
        forgotten: Sequence[TopicIdPartition],
        fetch_id: str | None,
        *,
        followed: Sequence[str],
        left: Sequence[str],
        held_back_ms: int,
        principal: str,
    ) -> ShareSession:
        """Accept a fetch in a session. A refusal at the limit is delayed, so that clients do not retry in a tight loop.

        Args:
            principal: who opens a session.
            followed: topics that the request names as a whole. left: those of which it removes partitions.

        Raises: ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached.
        """
        key = (group_id, member_id)
        now_ms = self._clock.now_ms()
        if epoch == CLOSE:
            return self._cache.close(key)
        if epoch == OPEN:
            try:
                session = self._cache.open(key, added, now_ms, principal)
            except ShareSessionLimitReached:
                await asyncio.sleep(held_back_ms / 1000)
                raise
        else:
            self._cache.check_room(key, added)
            session = self._cache.advance(key, epoch, now_ms, fetch_id)
            session.change(added, forgotten)
        for name in followed:
            if not topic_name_fault(name):
                session.follow(name, self._size(name))
        for name in left:
            session.followed.pop(name, None)
        if session.behind:
            await self._catch_up(session)
        return session

    def _size(self, name: str) -> tuple[str, int]:
        """A topic's id and number of partitions, as far as it is known."""
        topic = self._metadata.by_name.get(name)
        return ("", 0) if topic is None else (topic.topic_id, topic.partitions)

    async def _catch_up(self, session: ShareSession) -> None:
        """Add the new partitions of the topics that a session follows, as far as there is room for them."""
        await self._metadata.ask_for(dict.fromkeys(session.followed, 0))
        session.behind = False
        for name, (topic_id, had) in list(session.followed.items()):
            found_id, partitions = self._size(name)
            added = [(found_id, index) for index in range(had if found_id == topic_id else 0, partitions)]
            if added and len(session.partitions) + len(added) <= MAX_PARTITIONS_NAMED:
                session.followed[name] = found_id, partitions
                session.change(added, ())

    def acknowledge(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Accept an acknowledge call in a session. Raises: ShareSessionNotFound, InvalidShareSessionEpoch."""
        key = (group_id, member_id)
        if epoch == OPEN:
            raise InvalidShareSessionEpoch("acknowledge cannot open a session: share_session_epoch 0 is for fetch")
        if epoch == CLOSE:
            return self._cache.close(key)
        return self._cache.advance(key, epoch, self._clock.now_ms())

    def forget(self, session: ShareSession, gone: Sequence[TopicIdPartition]) -> None:
        """Remove partitions from a session. Raises: ShareSessionNotFound."""
        self._cache.find(session.key).change((), gone)

    async def release(self, session: ShareSession) -> None:
        """Release the records that the member of a closed session holds in its partitions, at all leaders."""
        group_id, member_id = session.key
        led: dict[Node, list[tuple[KnownTopic, int]]] = {}
        slices = Slices()
        partitions = tuple(session.partitions)
        for start in range(0, len(partitions), SPLIT_AT_ONCE):
            if slices.over():
                await slices.pause()
            some = [
                (topic, partition)
                for topic_id, partition in partitions[start : start + SPLIT_AT_ONCE]
                if (topic := self._metadata.known_topic_id(topic_id)) is not None
            ]
            for node, led_there in self._routing.split(group_id, some).items():
                led.setdefault(node, []).extend(led_there)
        await self.release_here(group_id, member_id, led.pop(self._routing.cluster.me, ()))

        async def release(node: Node, led_there: Partitions) -> None:
            try:
                await self._routing.gateways.release(node, group_id, member_id, led_there)
            except ApiError as error:
                log.info("the records of a closed session stay held", extra=fields(cause=error.detail))

        await asyncio.gather(*(release(node, led_there) for node, led_there in led.items()))

    async def release_here(self, group_id: str, member_id: str, partitions: Partitions) -> None:
        """Release the records that a member holds in partitions that this gateway leads."""
        leds = (
            led
            for topic, partition in partitions
            if (led := self._leader.loaded(SharePartitionKey(group_id, topic.topic_id, partition))) is not None
        )
        await self._leader.release_member(leds, member_id)

    def count(self, group_id: str) -> int:
        return len(self._cache.of_group(group_id))

    def end(self, group_id: str) -> None:
        """Drop the sessions of a group. Their members keep their records."""
        for key in self._cache.of_group(group_id):
            self._cache.drop(key)

    def drop(self, group_id: str, member_id: str) -> bool:
        """Drop the session of a member, which keeps its records. Returns: whether there was one."""
        return self._cache.drop((group_id, member_id))

    def drop_moved(self) -> None:
        """Drop the sessions that another gateway keeps now. Their members open new ones, and keep their records."""
        for key in self._cache.all():
            if self._routing.home_elsewhere(*key) is not None:
                self._cache.drop(key)

    async def sweep(self) -> None:
        """Drop idle sessions, and those opened here by a gateway that did not know the newest one. Never returns."""
        async for _ in Every(SWEEP_PAUSE_S):
            if self._routing.cluster.changed_lately():
                self.drop_moved()
            dropped = self._cache.drop_idle(self._clock.now_ms())
            if dropped:
                metrics.SHARE_SESSION_EVICTIONS.inc(dropped)

"""Share sessions: the partitions that a member fetches, and the epoch that orders its requests. Pure. Source: KIP-932.

Epoch 0 opens or replaces a session, n continues it, −1 closes it. Fetch and acknowledge share one epoch. An idle
session is dropped; its member keeps its records until their locks end.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sharequeue.protocol.errors import InvalidShareSessionEpoch, ShareSessionLimitReached, ShareSessionNotFound
from sharequeue.protocol.types import MAX_INT32, MAX_PARTITIONS_NAMED, TopicIdPartition
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.errors import InvalidRequest

OPEN: Final = 0
CLOSE: Final = -1

SessionKey = tuple[str, str]


def next_epoch(epoch: int) -> int:
    return 1 if epoch == MAX_INT32 else epoch + 1


@dataclass(slots=True, eq=False)
class ShareSession:
    """The session of one member. `epoch`: of its next request. `last_fetch_id`: of its last fetch.

    `followed`: the topics of which it has all partitions, also later ones: by name the id, and how many it has had.
    `behind`: whether one of them may have more by now. `principal`: who opened it.
    """

    key: SessionKey
    partitions: dict[TopicIdPartition, None]
    used_at_ms: int
    principal: str = ""
    followed: dict[str, tuple[str, int]] = field(default_factory=dict)
    behind: bool = False
    epoch: int = 1
    last_fetch_id: str | None = None

    def change(self, added: Sequence[TopicIdPartition], forgotten: Sequence[TopicIdPartition]) -> None:
        """Add and remove partitions. Removing a partition that the session does not have changes nothing."""
        self.partitions.update(dict.fromkeys(added))
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def follow(self, name: str, size: tuple[str, int]) -> None:
        """Follow a topic from its present id and number of partitions on; at most MAX_PARTITIONS_NAMED topics."""
        if name in self.followed or len(self.followed) < MAX_PARTITIONS_NAMED:
            self.followed[name] = size


class ShareSessionCache:
    """All sessions of a gateway, the least recently used first."""

    def __init__(self, idle_ms: int, ceiling: Ceiling) -> None:
        self._ceiling = ceiling
        self._idle_ms = idle_ms
        self._sessions: OrderedDict[SessionKey, ShareSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self, key: SessionKey, partitions: Iterable[TopicIdPartition], now_ms: int, principal: str = ""
    ) -> ShareSession:
        """Open a session. It replaces an earlier one of that key. Raises: ShareSessionLimitReached."""
        if not self.drop(key):
            self._ceiling.check(principal, len(self._sessions), ShareSessionLimitReached)
        session = self._sessions[key] = ShareSession(key, dict.fromkeys(partitions), now_ms, principal)
        self._ceiling.take(principal)
        return session

    def advance(self, key: SessionKey, epoch: int, now_ms: int, fetch_id: str | None = None) -> ShareSession:
        """Accept a request that continues a session. A repeat of the last fetch, by its fetch_id, is accepted again.

        Raises: ShareSessionNotFound, InvalidShareSessionEpoch.
        """
        session = self.find(key)
        repeat = fetch_id is not None and fetch_id == session.last_fetch_id and next_epoch(epoch) == session.epoch
        if epoch != session.epoch and not repeat:
            raise InvalidShareSessionEpoch(
                f"share_session_epoch must be {session.epoch}, not {epoch}; 0 opens a new session"
            )
        if not repeat:
            session.epoch = next_epoch(session.epoch)
        session.last_fetch_id = fetch_id
        session.used_at_ms = now_ms
        self._sessions.move_to_end(key)
        return session

    def topic_has_grown(self, name: str | None) -> None:
        """A topic has new partitions: note it in the sessions that follow it. None: any topic may have."""
        for session in self._sessions.values():
            if session.followed and (name is None or name in session.followed):
                session.behind = True

    def check_room(self, key: SessionKey, added: Sequence[TopicIdPartition]) -> None:
        """Raises: ShareSessionNotFound; InvalidRequest (422): with these a session has more than
        MAX_PARTITIONS_NAMED."""
        count = len(self.find(key).partitions.keys() | set(added)) if added else 0
        if count > MAX_PARTITIONS_NAMED:
            raise InvalidRequest(
                f"the share session would have {count} partitions; it has at most {MAX_PARTITIONS_NAMED}: "
                "remove some with forgotten_topics first, or fetch the others as another member",
                limit=MAX_PARTITIONS_NAMED,
            )

    def find(self, key: SessionKey) -> ShareSession:
        """Raises: ShareSessionNotFound."""
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound("there is no share session of this member here; open one with epoch 0")
        return session

    def close(self, key: SessionKey) -> ShareSession:
        """Raises: ShareSessionNotFound."""
        session = self.find(key)
        self.drop(key)
        return session

    def of_group(self, group_id: str) -> list[SessionKey]:
        """The keys of a group's sessions."""
        return [key for key in self._sessions if key[0] == group_id]

    def all(self) -> list[SessionKey]:
        """The keys of all sessions."""
        return list(self._sessions)

    def drop(self, key: SessionKey) -> bool:
        """Drop a session. Returns: whether there was one."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._ceiling.give(session.principal)
        return session is not None

    def drop_idle(self, now_ms: int) -> int:
        """Drop sessions that were not used for the idle time. Returns: how many."""
        dropped = 0
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.used_at_ms < self._idle_ms:
                break
            self.drop(oldest.key)
            dropped += 1
        return dropped

"""One member of a share group: joins, sends heartbeats in the background, knows its assignment. Source: KIP-932.

While the service is out of reach the last assignment stands: fetches need no membership. An evicted member gives its
assignment up and joins again under the same id.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Final, TypeVar

from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE
from sharequeue.protocol.messages.groups import HeartbeatResult, ShareGroupHeartbeatRequest
from sharequeue.repeats import HEARTBEAT, JOINED, heard
from sharequeue_http.calling.caller import Client
from sharequeue_http.forms.errors import ApiError, UnexpectedAnswer

log = logging.getLogger(__name__)

JOIN: Final = 0
LEAVE: Final = -1
EVICTED: Final = tuple(BY_CODE[code] for code in ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND"))
"""The group evicted this member: others may have its partitions."""
HEARTBEAT_DEADLINE_S: Final = 5.0
IDLE_S: Final = 300.0
"""A member whose consumer was not used for so long leaves, unless its program names another time."""

T = TypeVar("T")
Assignment = Mapping[str, list[int]]


class Membership:
    """Sends the heartbeats of one member while it subscribes to topics.

    Args:
        max_idle_s: a member whose consumer was not used for so long leaves. It joins again with the next use.
    """

    def __init__(self, client: Client, group: str, member_id: str, max_idle_s: float) -> None:
        self._client = client
        self._path = {"group": group}
        self._member_id = member_id
        self._max_idle_s = max_idle_s
        self._epoch = JOIN
        self._known = False
        """Whether the service may know this member: a request to join was sent, answered or not."""
        self._topics_changed = False
        """Whether the service does not know the topics yet: the next heartbeat names them."""
        self._used_at = time.monotonic()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.topics: list[str] = []
        self.assignment: Assignment = {}
        self.changed = asyncio.Event()
        """Set when the assignment changed, or `failure` is set. The reader clears it."""
        self.failure: ApiError | None = None
        """Why the service refuses this member; no heartbeat is sent any more."""

    @property
    def joined(self) -> bool:
        return self._epoch > JOIN

    def subscribe(self, topics: Iterable[str]) -> None:
        """Be a member for these topics, or leave the group if there are none. Held records stay held."""
        self.topics = list(dict.fromkeys(topics))
        self._topics_changed = True
        self.failure = None
        self.used()
        self.go_on()
        self._wake.set()

    def used(self) -> None:
        """The program used the consumer."""
        self._used_at = time.monotonic()

    def go_on(self) -> None:
        """Send heartbeats again if they had ended. Call it inside the event loop."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, deadline_s: float) -> None:
        """Leave the group. If the service is out of reach, the session timeout evicts the member."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._leave(deadline_s)

    async def _leave(self, deadline_s: float) -> None:
        if self._known:
            self._epoch = JOIN
            self._known = False
            self._assign({})
            try:
                await self._send(ShareGroupHeartbeatRequest(member_id=self._member_id, member_epoch=LEAVE), deadline_s)
            except ApiError as error:
                if error.error not in EVICTED:
                    log.warning(
                        "could not leave the group as %s, which its session timeout will evict: %s",
                        self._member_id,
                        error.detail,
                    )

    async def _run(self) -> None:
        """Send heartbeats until the member leaves or is refused."""
        pause_s = 0.0
        while self.failure is None:
            self._wake.clear()
            if not self.topics or time.monotonic() - self._used_at > self._max_idle_s:
                await self._leave(HEARTBEAT_DEADLINE_S)
                return
            interval_s = await self._beat()
            if self.assignment or self.failure is not None:
                pause_s = 0.0
            elif self.joined:  # partitions follow when they are initialised or given up by others: ask soon
                pause_s = JOINED.after(pause_s)
                interval_s = min(pause_s, interval_s)
            await heard(self._wake, interval_s)

    async def _beat(self) -> float:
        """One heartbeat. Returns: seconds until the next."""
        joining = self._epoch == JOIN
        naming_topics, self._topics_changed = joining or self._topics_changed, False
        request = ShareGroupHeartbeatRequest(
            member_id=self._member_id,
            member_epoch=self._epoch,
            subscribed_topic_names=self.topics if naming_topics else None,
        )
        known, self._known = self._known, True
        try:
            answer = await self._send(request, HEARTBEAT_DEADLINE_S)
        except ApiError as error:
            self._known = known or not error.definite
            self._topics_changed = naming_topics
            return self._not_answered(error)
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            self._assign({entry.topic: entry.partitions for entry in answer.assignment.topic_partitions})
        return answer.heartbeat_interval_ms / 1000

    def _not_answered(self, error: ApiError) -> float:
        """Returns: seconds until the next try."""
        if error.error in EVICTED and self.joined:
            log.warning("the group evicted %s, which joins again: %s", self._member_id, error.detail)
            self._epoch = JOIN
            self._assign({})
            return 0.0
        if not error.error.retriable and (error.definite or isinstance(error, UnexpectedAnswer)):
            self.failure = error
            self.changed.set()
        else:
            log.info("no answer to a heartbeat of %s: %s", self._member_id, error.detail)
        return max(HEARTBEAT.pause_s, error.retry_after_s or 0)

    async def unless_changed(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await work. Returns: its answer, or None if the assignment changed first; the work is then cancelled."""
        working = asyncio.ensure_future(work)
        changing = asyncio.ensure_future(self.changed.wait())
        try:
            await asyncio.wait({working, changing}, return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            changing.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait([working])

    def _assign(self, assignment: Assignment) -> None:
        if assignment != self.assignment:
            self.assignment = assignment
            self.changed.set()

    async def _send(self, request: ShareGroupHeartbeatRequest, deadline_s: float) -> HeartbeatResult:
        answer: HeartbeatResult = await self._client.call(
            apis.SHARE_GROUP_HEARTBEAT, request, path=self._path, deadline_s=deadline_s, retry=False
        )
        return answer

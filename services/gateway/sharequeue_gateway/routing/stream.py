"""One member's stream at this gateway: fetches into its window, and hands each answer on as an event.

    open ──▶ restore, if another gateway had it ──▶ send again what a reconnect lacks ──▶ fetch ──▶ event ──▶ fetch …
                                                                                            │
                                              window full: wait for word of the leaders ◀───╯

`share_partition/stream_window.py` decides what is sent again, how much may be acquired and what is released at the end;
`delivery/waiting.py` has the states of the connection. Each fetch has a `fetch_id`, made of the stream and the position
of the event to come. So Redis remembers the ranges of each event, and any gateway can continue the stream.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sharequeue.clock import Clock
from sharequeue.protocol.errors import CoordinatorLoadInProgress
from sharequeue.protocol.messages.leaders import Asked, FetchLimits, HeldRequest, TakeStreamResponse
from sharequeue.protocol.types import MAX_INT64, MAX_WAIT_MS, AcquireMode, OffsetsAt
from sharequeue.repeats import STREAM, STREAM_HOLDS
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.delivery.fetch_request import PartitionFault
from sharequeue_gateway.delivery.fetching_members import FetchingMembers
from sharequeue_gateway.delivery.repeated_fetches import RepeatedFetches
from sharequeue_gateway.delivery.waiting import Life, WaitingFetch
from sharequeue_gateway.routing.fetch import RoutedFetch
from sharequeue_gateway.routing.fetched import Fetched
from sharequeue_gateway.routing.held import RoutedHeld
from sharequeue_gateway.share_partition.stream_window import SentRange, StreamWindow
from sharequeue_http.forms.errors import ApiError, CoordinatorNotAvailable

EVENT_BYTES: Final = 1024 * 1024
"""The most bytes of records in an event; a larger record comes alone."""
ROUND_MS: Final = 60_000
"""How long a fetch of a stream waits. At its end it learns whether it waits in vain."""
MOST_MISSED: Final = 8
"""A restored stream looks for its later events until as many positions in a row are unknown."""


MOST_REMEMBERED: Final = 4096
"""As many positions are looked up at most: twice the largest window."""


class EventId(NamedTuple):
    """Names an event: the stream, and the position in it."""

    stream_id: str
    position: int


class Opened(NamedTuple):
    """The stream is open; the client has its events up to `event_id`."""

    event_id: EventId


class Records(NamedTuple):
    """An event with records."""

    event_id: EventId
    found: Fetched


class Failing(NamedTuple):
    """Nothing can be acquired now, or not of every partition. The stream goes on."""

    error: ApiError


class Closed(NamedTuple):
    """The stream ends here. If the error is retriable, the client opens it again, at any gateway."""

    error: ApiError


class Replaced(NamedTuple):
    """The member has opened its stream elsewhere. This connection gets nothing more."""


StreamEvent = Opened | Records | Failing | Closed | Replaced


class Shared(NamedTuple):
    """The objects that all streams use."""

    fetch: RoutedFetch
    held: RoutedHeld
    repeated: RepeatedFetches
    metadata: Metadata
    members: FetchingMembers
    clock: Clock


@dataclass(eq=False, slots=True)
class Stream:
    """A member's stream. `waiting`: its connection; None while the client is away.

    `turn`: held by the connection that fetches, so that a later one begins after the last fetch of the one before.
    """

    _shared: Shared
    group_id: str
    member_id: str
    stream_id: str
    principal: str = ""
    """The principal that opened the stream first."""
    topics: Sequence[str] = ()
    window: StreamWindow = field(default_factory=lambda: StreamWindow(0))
    resume_ms: int = 0
    waiting: WaitingFetch | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None
    pulse: Callable[[], None] | None = None
    """Sends a heartbeat."""
    whole: bool = False
    """Whether the window has all that the member holds of the stream; an earlier gateway may have had it."""
    writing: bool = False
    """Whether the connection is taking an event."""
    wrote_s: float = 0.0
    """The time of the last event or heartbeat."""
    _lacking: Sequence[int] = ()
    """Positions that are to be sent again."""
    _pause_s: float = 0.0
    _new_id: bool = False
    """Whether no earlier fetch can have acquired anything under the next position."""
    _told: str | None = None
    """The code of the last Failing event, until a fetch succeeds."""

    def event_id(self, position: int) -> EventId:
        return EventId(self.stream_id, position)

    async def begin(
        self,
        waiting: WaitingFetch,
        after: int | None,
        taking: Callable[[], Awaitable[TakeStreamResponse | None]],
    ) -> Opened:
        """The first event of a connection.

        Args:
            after: the position of the last event that the client has; None: it has none.
            taking: takes a stream that was not here from another gateway.
        """
        async with self.turn:
            if not self.whole:
                after = await self._restore(waiting, after, await taking())
            lacking = self.window.resume(self.window.first_held - 1 if after is None else after)
            if self.waiting is waiting:
                self._lacking, self._told = lacking, None
        if after is None:
            after = max(lacking[0] - 1, 0) if lacking else self.window.position
        return Opened(self.event_id(after))

    async def next(self, waiting: WaitingFetch) -> StreamEvent | None:
        """The next event of a connection, once the one before is written; None: the connection is gone.

        First comes what the client lacks, then what is fetched. After a failure the next try waits.
        """
        loop = asyncio.get_running_loop()
        while self._serves(waiting):
            if self._pause_s:
                waiting.woken = False
                await waiting.wait(self._pause_s)
            began_s = loop.time()
            async with self.turn:
                if not self._serves(waiting):
                    break
                event = await (self._again(self._lacking[0]) if self._lacking else self._next(waiting))
            if not self._serves(waiting):
                break
            known = self._told
            self._pace(event, early=loop.time() - began_s < STREAM.pause_s)
            if event is not None and not (isinstance(event, Failing) and self._told == known):
                return event
        return self._end(waiting)

    def _pace(self, event: Records | Failing | Closed | None, *, early: bool) -> None:
        """Choose the pause before the next try, and note what was sent again and which problem was sent."""
        if isinstance(event, Failing):
            self._pause_s = STREAM.after(self._pause_s)
            self._told = event.error.error.code
            return
        self._pause_s = STREAM.pause_s if early and event is None and not self._lacking else 0.0
        self._lacking = self._lacking[1:]

    def _serves(self, waiting: WaitingFetch) -> bool:
        """Return whether this connection is the stream's, and nothing has ended it."""
        return self.waiting is waiting and not waiting.over

    def _end(self, waiting: WaitingFetch) -> StreamEvent | None:
        """The last event of a connection that an event of `delivery/waiting.py` has ended."""
        if waiting.life is Life.STOPPING:
            detail = "this gateway stops, or the member has left its group; open the stream again, at any gateway"
            return Closed(CoordinatorNotAvailable(detail))
        if waiting.life is Life.REPLACED:
            return Replaced()
        if waiting.life is Life.ENDED:
            detail = (
                f"the state of the group {self.group_id!r} is being replaced: its offsets are reset, or it is deleted"
            )
            return Closed(CoordinatorLoadInProgress(f"{detail}; open the stream again"))
        return None

    # What is held

    def _partitions(self) -> list[tuple[KnownTopic, int]]:
        """All partitions of the topics that exist now."""
        topics = [topic for name in self.topics if (topic := self._shared.metadata.by_name.get(name)) is not None]
        return [(topic, index) for topic in topics for index in range(topic.partitions)]

    def _held(self, ranges: Iterable[SentRange | OffsetsAt], *, max_wait_ms: int = 0) -> HeldRequest:
        """Ask for what the member holds of these, or whose settling is not durable yet."""
        offsets = [OffsetsAt(*part[:4]) for part in ranges]
        return HeldRequest(member_id=self.member_id, ranges=offsets, settling=True, max_wait_ms=max_wait_ms)

    async def _restore(self, waiting: WaitingFetch, after: int | None, taken: TakeStreamResponse | None) -> int | None:
        """Continue a stream that another gateway had. Returns: the last position that the client has."""
        shared, at_least = self._shared, 0
        if taken is not None and taken.stream_id is not None:
            if taken.stream_id != self.stream_id or after is None:  # the client knows nothing of that stream
                self.stream_id, after = taken.stream_id, taken.after
            at_least = taken.position
        if after is None:
            self.whole = self._new_id = True
            return None
        remembered: dict[int, list[OffsetsAt]] = {}
        position, missed = max(after, 0), 0
        while (missed < MOST_MISSED or position < at_least) and position - after < MOST_REMEMBERED:
            position += 1
            ranges = await self._remembered(position)
            missed = 0 if ranges else missed + 1
            if ranges:
                remembered[position] = ranges
        everything = [OffsetsAt(topic.topic_id, index, 0, MAX_INT64) for topic, index in self._partitions()]
        pause_s = 0.0
        while True:
            held = await shared.held.look(self.group_id, self._held(everything))
            if not self._serves(waiting) or not any(fault.error.error.retriable for fault in held.faults):
                break
            pause_s = STREAM_HOLDS.after(pause_s)
            await waiting.wait(pause_s)  # a leader died with the stream's gateway: the next one knows
        self.whole = self._serves(waiting)
        self.window = StreamWindow.restored(self.window.size, after, at_least, remembered, held.ranges())
        return after

    async def _again(self, position: int) -> Records | Failing | Closed | None:
        """An earlier event with what is still held of it, of the topics that the caller of this connection may read."""
        name_of = self._shared.metadata.name_of
        ranges = [
            OffsetsAt(*part[:4]) for part in self.window.ranges(position) if name_of(part.topic_id) in self.topics
        ]
        request = HeldRequest(member_id=self.member_id, ranges=ranges, with_records=True)
        found = await self._shared.held.look(self.group_id, request)
        if found.faults:
            return Failing(found.faults[0].error)
        return Records(self.event_id(position), found) if found.has_records else None

    async def find_last(self) -> None:
        """Find what a fetch acquired whose answer did not arrive: its client is gone, so it is not written."""
        ranges = await self._remembered(self.window.position + 1)
        if ranges:
            held = await self._shared.held.look(self.group_id, self._held(ranges))
            if held.has_records:
                self.window.acquired(held.ranges())

    async def _remembered(self, position: int) -> list[OffsetsAt]:
        """Return what the fetch of a position acquired, as Redis remembers it."""
        return await self._shared.repeated.remembered(self.group_id, self.member_id, self._fetch_id(position))

    async def _learn(self) -> int:
        """Learn what was settled. Returns: how many records."""
        ranges = self.window.all_ranges()
        found = await self._shared.held.look(self.group_id, self._held(ranges))
        failed = {(fault.topic, fault.partition) for fault in found.faults}
        names = {part.place: (self._shared.metadata.name_of(part.topic_id), part.partition) for part in ranges}
        answered = {place for place, name in names.items() if name not in failed and place not in failed}
        return self.window.learn(found.ranges(), answered)

    async def _make_room(self, waiting: WaitingFetch) -> None:
        """Wait until the window has room, or the connection ends."""
        if self.window.looks():
            await self._learn()
        pause_s = 0.0
        while not self.window.room and not waiting.over:
            self._shared.members.seen[self.group_id][self.member_id] = self._shared.members.now_s
            waiting.woken = False
            held = self._held(self.window.all_ranges(), max_wait_ms=MAX_WAIT_MS)
            await self._shared.held.until_less(waiting, self.group_id, held)
            if not await self._learn() and not waiting.over:
                waiting.woken = False
                pause_s = STREAM_HOLDS.after(pause_s)
                await waiting.wait(pause_s)

    # New records

    def _fetch_id(self, position: int) -> str:
        return f"{self.stream_id}.{position}"

    async def _next(self, waiting: WaitingFetch) -> Records | Failing | Closed | None:
        """Wait for room and then for records. Returns: None if there were none in time."""
        shared = self._shared
        if any(name in shared.metadata.by_name for name in self.topics):
            await self._make_room(waiting)
        if waiting.over:
            return None
        if not all(name in shared.metadata.by_name for name in self.topics):
            with contextlib.suppress(ApiError):  # those that are known go on
                await shared.metadata.ask_for(dict.fromkeys(self.topics, 0))
        partitions = self._partitions()  # of this moment: from the fetch on, a topic that grows wakes it
        if not partitions:
            return Closed(shared.metadata.missing(self.topics[0], 0))
        shared.members.seen[self.group_id][self.member_id] = shared.members.now_s
        waiting.woken = False
        waiting.open_again()
        asked, self._new_id = self._asked(), False
        try:
            found = await shared.fetch.fetch(waiting, asked, partitions)
        except ApiError as error:
            found = Fetched(faults=[PartitionFault("", -1, error)])
        self._new_id = not found.faults and not waiting.over
        if found.has_records:
            self._told = None
            return Records(self.event_id(self.window.acquired(found.ranges())), found)
        faults = found.faults
        if not faults or waiting.over:
            self._told = None if not faults else self._told
            return None
        ends = len(faults) == len(partitions) and not any(fault.error.error.retriable for fault in faults)
        return (Closed if ends else Failing)(faults[0].error)

    def _asked(self) -> Asked:
        now_ms, room = self._shared.clock.now_ms(), self.window.room
        limits = FetchLimits(
            max_records=room,
            max_bytes=EVENT_BYTES,
            min_bytes=1,
            batch_size=room,
            acquire_mode=AcquireMode.RECORD_LIMIT,
            deadline_ms=now_ms + ROUND_MS,
        )
        fetch_id = self._fetch_id(self.window.position + 1)
        return Asked(self.group_id, self.member_id, limits, now_ms, fetch_id=fetch_id, new_id=self._new_id)

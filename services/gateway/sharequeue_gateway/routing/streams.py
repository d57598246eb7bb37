"""The streams of this gateway: one for each member of a group that has one open, or had one a moment ago.

    open ─▶ CONNECTED ──connection lost──▶ AWAY ──resume_ms──▶ what is held is released, and the stream forgotten
               ▲  │                          │
               ╰──┼──the member opens again──╯
                  ├──its key ends: as if the connection were lost
                  ├──its principal has no key any more, connected or away: released and forgotten at once
                  ├──the member opens again: the older connection gets Replaced
                  ├──the member opens at another gateway: Replaced, and forgotten here; nothing is released
                  ╰──the gateway stops: Closed, and forgotten; what is held stays held until its locks end

A gateway that was paused beyond the end of `resume_ms` does not release: the member may have opened its stream
elsewhere in that time, and the locks end by themselves.
"""

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from sharequeue.background import start
from sharequeue.protocol import apis
from sharequeue.protocol.messages.leaders import TakeStreamRequest, TakeStreamResponse
from sharequeue.repeats import Every
from sharequeue_gateway import metrics
from sharequeue_gateway.delivery.waiting import Client, Event, Life, WaitingFetch, WaitingFetches
from sharequeue_gateway.routing.acknowledge import RoutedAcknowledger
from sharequeue_gateway.routing.routing import Routing
from sharequeue_gateway.routing.stream import Closed, EventId, Records, Replaced, Shared, Stream, StreamEvent
from sharequeue_http.ceiling import Ceiling

TICK_S: Final = 1.0
TAKE_S: Final = 1.0
"""The time that another gateway has to end its stream of a member that is here now."""
LATE_S: Final = 1.0
"""A timer that fires later than this was held up: this gateway was paused."""


class Opening(NamedTuple):
    """The wishes of a member that opens its stream. `last`: the last event that it has."""

    group_id: str
    member_id: str
    topics: Sequence[str]
    window: int
    resume_ms: int
    last: EventId | None
    encode: Callable[[StreamEvent], bytes]
    """Makes the bytes of an event."""
    begun: Callable[[WaitingFetch], None] = lambda waiting: None
    """Called with the connection, before anything is acquired."""
    principal: str = ""


@dataclass(eq=False)
class Streams:
    """Opens streams, keeps those whose connection was lost for a while, and sends heartbeats."""

    _shared: Shared
    _fetches: WaitingFetches
    _routing: Routing
    _acknowledger: RoutedAcknowledger
    ceiling: Ceiling
    heartbeat_ms: int
    _streams: dict[tuple[str, str], Stream] = field(init=False, default_factory=dict)
    _tasks: set[asyncio.Task[Any]] = field(init=False, default_factory=set)

    def count(self) -> int:
        """Return how many streams are connected."""
        return sum(stream.waiting is not None for stream in self._streams.values())

    def open(self, client: Client, pulse: Callable[[], None], opening: Opening) -> AsyncGenerator[bytes, None]:
        """Open a member's stream on a connection, or continue it.

        Args:
            pulse: sends a heartbeat, if the connection takes it at once.
        Raises: Throttled: there are too many streams, or too many of one principal.
        """
        if (opening.group_id, opening.member_id) not in self._streams:
            self.ceiling.check(opening.principal, len(self._streams))
        return self._events(client, pulse, opening)

    async def _events(self, client: Client, pulse: Callable[[], None], opening: Opening) -> AsyncGenerator[bytes, None]:
        """The events of a connection, between heartbeats. At its end the stream waits for the member, or is forgotten.

        A connection that is lost before its first event never belonged to the stream.
        """
        waiting = self._fetches.new(client)
        waiting.topics = opening.topics
        opening.begun(waiting)
        stream, after = self._connect(waiting, opening)
        stream.pulse = pulse
        loop = asyncio.get_running_loop()
        try:
            taking = partial(self._take_elsewhere, opening.group_id, opening.member_id)
            event: StreamEvent | None = await stream.begin(waiting, after, taking)
            while event is not None:
                if stream.waiting is waiting:
                    stream.writing = True
                yield opening.encode(event)
                if stream.waiting is waiting:
                    stream.writing, stream.wrote_s = False, loop.time()
                    if isinstance(event, Records):
                        stream.window.written(event.event_id.position)
                if isinstance(event, Closed | Replaced):
                    return
                event = await stream.next(waiting)
        finally:
            waiting.close()
            if stream.waiting is waiting:
                self._disconnected(stream, waiting)

    def _connect(self, waiting: WaitingFetch, opening: Opening) -> tuple[Stream, int | None]:
        """Give a connection to the member's stream. Returns: it, and the last position of the client, if any."""
        group_id, member_id, last = opening.group_id, opening.member_id, opening.last
        stream = self._streams.get((group_id, member_id))
        known = stream is not None
        if stream is None:
            stream_id = uuid.uuid4().hex[:16] if last is None else last.stream_id
            stream = self._streams[group_id, member_id] = Stream(self._shared, group_id, member_id, stream_id)
        if stream.waiting is not None:
            stream.waiting.on(Event.REPEATED)
            metrics.STREAMS_REPLACED.inc()
        elif known or last is not None:
            metrics.STREAMS_RESUMED.inc()
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None
        after = last.position if last is not None and last.stream_id == stream.stream_id else None
        self.ceiling.give(stream.principal)
        stream.principal = opening.principal
        self.ceiling.take(stream.principal)
        stream.topics, stream.resume_ms, stream.window.size = opening.topics, opening.resume_ms, opening.window
        stream.waiting = waiting
        return stream, after

    def _disconnected(self, stream: Stream, waiting: WaitingFetch) -> None:
        stream.waiting, stream.pulse, stream.writing = None, None, False
        nothing_held = not stream.window.held and self._routing.cluster.alone
        if waiting.life is Life.STOPPING or waiting.life is Life.ENDED or nothing_held:
            self._forget(stream)
            return
        lock_ms = self._shared.metadata.lock_duration_ms(stream.group_id)
        seconds = 0.0 if waiting.release else min(stream.resume_ms, lock_ms) / 1000
        loop = asyncio.get_running_loop()
        stream.timer = loop.call_later(seconds, self._resume_ended, stream, loop.time() + seconds)

    def _forget(self, stream: Stream) -> None:
        key = stream.group_id, stream.member_id
        if self._streams.get(key) is stream:
            del self._streams[key]
            self.ceiling.give(stream.principal)
        if stream.timer is not None:
            stream.timer.cancel()
            stream.timer = None

    # The member does not come back

    def _resume_ended(self, stream: Stream, due_s: float) -> None:
        self._forget(stream)
        if asyncio.get_running_loop().time() - due_s < LATE_S:
            start(self._tasks, self._release(stream))

    def end_away(self, may_return: Callable[[str], bool]) -> None:
        """Keep no stream for a member whose principal may not open it again."""
        now_s = asyncio.get_running_loop().time()
        for stream in [each for each in self._streams.values() if each.timer and not may_return(each.principal)]:
            self._resume_ended(stream, now_s)

    async def _release(self, stream: Stream) -> None:
        """Release what the member holds of the stream. What was not written is given back, as a fetch's is."""
        async with stream.turn:  # the last fetch may still be under way
            await stream.find_last()
            ends = list(stream.window.ends())
        for seen in (True, False):
            parts = [part for part, written in ends if written is seen]
            await self._acknowledger.release(stream.group_id, stream.member_id, parts, seen=seen)

    # Other gateways

    async def _take_elsewhere(self, group_id: str, member_id: str) -> TakeStreamResponse | None:
        """Take the member's stream from the gateway that has it, if one has."""
        cluster, request = self._routing.cluster, TakeStreamRequest(member_id=member_id)
        asking = (cluster.asked(node, apis.TAKE_STREAM, request, TAKE_S, group=group_id) for node in cluster.others())
        answers: list[TakeStreamResponse | None] = await asyncio.gather(*asking)
        return next((answer for answer in answers if answer is not None and answer.stream_id is not None), None)

    def take(self, group_id: str, member_id: str) -> TakeStreamResponse:
        """The member has opened its stream at another gateway: forget it here, and release nothing."""
        stream = self._streams.get((group_id, member_id))
        if stream is None:
            return TakeStreamResponse()
        self._forget(stream)
        if stream.waiting is not None:
            waiting, stream.waiting = stream.waiting, None
            waiting.on(Event.REPEATED)
            metrics.STREAMS_REPLACED.inc()
        window = stream.window
        return TakeStreamResponse(stream_id=stream.stream_id, position=window.position, after=window.first_held - 1)

    # The group, the gateway, time

    def end(self, event: Event, group_id: str | None = None) -> None:
        """End all streams, because this gateway stops; or those of a group whose state is being replaced. Nothing is
        released."""
        for stream in [each for each in self._streams.values() if group_id in (None, each.group_id)]:
            if stream.waiting is not None:
                stream.waiting.on(event)
            else:
                self._forget(stream)

    async def run(self) -> None:
        """Send heartbeats. Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        async for _ in Every(TICK_S):
            now_s = loop.time()
            for stream in self._streams.values():
                silent = stream.wrote_s <= now_s - self.heartbeat_ms / 1000
                if silent and stream.pulse is not None and not stream.writing:
                    stream.wrote_s = now_s
                    stream.pulse()

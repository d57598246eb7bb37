"""News of logs: one long Fetch a broker, with a session, over all partitions that are followed.

A partition rests while this process alone appends to it: the long Fetch would only bring its own records back. The
answer of the next append shows whether somebody else has appended, and where the log starts. The rest ends by itself
soon after the last append, or if an append takes long.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from sharequeue_kafka.cluster import KafkaCluster, Leader, LogOffset, Place
from sharequeue_kafka.connections import Patience
from sharequeue_kafka.errors import OFFSET_OUT_OF_RANGE, KafkaError
from sharequeue_kafka.fetching import NO_SESSION, FetchedPart, Wanted, fetch_request, fetched_parts
from sharequeue_kafka.producing import Appended

LONG_MS: Final = 500
"""How long a broker holds the long Fetch; what begins to be followed joins it at its next turn."""
SHORT_MS: Final = 20
"""How long a broker holds the Fetch of those that still wait to join."""
REST_S, UNDER_WAY_S = 0.02, 0.5
"""How long a partition rests behind the last append of this process, and at most while one is under way."""
LEAST_TIMER_S: Final = 0.001
"""uvloop rounds timers to this: one of less than half of it is due at once, and the next one too, until the end."""
IN_A_ROW = 4
"""A partition rests from so many such appends on."""
NEW_SESSION: Final = (0, 0)
SESSION_ENDED: Final = (70, 71, 106)
FINAL_EPOCH: Final = -1
LAST_EPOCH: Final = 2**31 - 1


class Followed:
    """A partition that is followed, from its log's end on."""

    def __init__(self, place: Place, offset: int) -> None:
        self.place, self.offset = place, offset
        self.epoch = -1
        self.ends: tuple[int, int, int] | None = None
        """Log start, high watermark and last stable offset; None: not heard yet under this leader epoch."""
        self.own = 0
        """The appends of this process in a row, since its rest began. The end of a rest does not end the row."""
        self.rest: asyncio.TimerHandle | None = None
        self.rests_until = 0.0
        self.under_way = False
        """Whether it rests for an append that was begun. If that fails, those behind it make the rest no longer."""

    def wake(self) -> None:
        """End its rest."""
        self.under_way = False
        if self.rest is not None:
            self.rest.cancel()
            self.rest = None


class Broker:
    """The partitions that one broker leads, and its two Fetches."""

    def __init__(self, following: "Following", node: int) -> None:
        self._following, self._node = following, node
        self._members: dict[Place, Followed] = {}
        self._joining: dict[Place, Followed] = {}
        self._changed: dict[Place, Followed] = {}
        self._gone: set[Place] = set()
        """What the session has not heard yet."""
        self._session = NEW_SESSION
        self._joined = asyncio.Event()
        self._any = asyncio.Event()

    def add(self, followed: Followed) -> None:
        for each in (self._members, self._joining, self._changed):
            each[followed.place] = followed
        self._gone.discard(followed.place)
        self._joined.set()
        self._any.set()

    def remove(self, place: Place) -> None:
        if self._members.pop(place, None) is not None:
            self._joining.pop(place, None)
            self._changed.pop(place, None)
            self._gone.add(place)

    async def short(self) -> None:
        """Ask for those that still wait to join the long Fetch."""
        while True:
            await self._joined.wait()
            if self._joining:
                await self._fetch([*self._joining.values()], SHORT_MS, NO_SESSION, [], "short")
            else:
                self._joined.clear()

    async def long(self) -> None:
        """Keep the session: name only what changed since the Fetch before."""
        while True:
            if not self._members and self._session == NEW_SESSION:
                self._any.clear()
                await self._any.wait()
            begins = self._session == NEW_SESSION
            changed = [*(self._members if begins else self._changed).values()]
            gone = [] if begins else [*self._gone]
            for each in (self._joining, self._changed, self._gone):
                each.clear()
            ends = not self._members
            session = (self._session[0], FINAL_EPOCH) if ends else self._session
            session_id = await self._fetch(changed, LONG_MS, session, gone, "long")
            if session_id is None or ends:
                self._session = NEW_SESSION
            else:
                self._session = (session_id, self._session[1] % LAST_EPOCH + 1)

    async def _fetch(
        self, asked: list[Followed], wait_ms: int, session: tuple[int, int], gone: list[Place], purpose: str
    ) -> int | None:
        """Return the session's id; None: there is none, and all must be named again."""
        following = self._following
        wanted = [Wanted(each.place, each.epoch, each.offset, following.max_bytes) for each in asked]
        request = fetch_request(wanted, max_wait_ms=wait_ms, committed=False, session=session, forgotten=gone)
        try:
            _, code, session_id, topics, _ = await following.cluster.send(self._node, request, purpose)
            if code:
                raise KafkaError.of(code)
        except KafkaError as error:
            if error.code not in SESSION_ENDED:
                for place in [*self._members]:
                    following.lost(place, self)
            return None
        for code, part in fetched_parts(topics):
            followed = self._members.get(part.place)
            if followed is None:
                continue
            if code:
                following.lost(part.place, self, code)
            elif part.high_watermark >= followed.offset:  # otherwise the other Fetch was quicker
                if part.high_watermark > followed.offset or part.batches:  # an append may have told of the end
                    self._changed[part.place] = followed
                following.heard(followed, part)
        return int(session_id) or None


class Following:
    """Call back when the start, the high watermark or the last stable offset of a followed log moved.

    The answer's `batches` hold the first new batches (read uncommitted), which a reader may use. A partition that
    begins to be followed is asked within 20 ms, beside the long Fetch, and joins it when that ends.
    """

    def __init__(self, cluster: KafkaCluster, moved: Callable[[FetchedPart], None], max_bytes: int = 65_536) -> None:
        self.cluster = cluster
        self.max_bytes = max_bytes
        self._moved = moved
        self._followed: dict[Place, Followed] = {}
        self._brokers: dict[int, Broker] = {}
        self._lost: dict[Place, int] = {}
        """Partitions without a known leader, and the error that told."""
        self._any_lost = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    def follow(self, place: Place, offset: int) -> None:
        """Begin to follow from a log end that the caller knows; news that is there already comes at once."""
        if place in self._followed:
            return
        self._followed[place] = Followed(place, offset)
        self._begin(self._followed[place])

    def _begin(self, followed: Followed) -> None:
        leader = self.cluster.known_leader(followed.place)
        if leader is None or self._tasks is None:
            self._lose(followed.place, 0)
        else:
            self._place(followed, leader)

    def unfollow(self, place: Place) -> None:
        followed = self._followed.pop(place, None)
        if followed is not None:
            followed.wake()
            self._lost.pop(place, None)
            self._remove(place)

    def _remove(self, place: Place) -> None:
        for broker in self._brokers.values():
            broker.remove(place)

    def appended(self, place: Place, epoch: int, appended: Appended, end: int) -> int | None:
        """Note records that this process has appended up to `end`, by the leader of an epoch.

        Returns: the last stable offset, if they continue the log as it is known, under the epoch in which it is
        followed: nobody else has appended between. Then the long Fetch goes on behind them. Otherwise None.
        """
        followed = self._followed.get(place)
        if followed is None or followed.ends is None or place in self._lost:
            return None
        start, high, stable = followed.ends
        continues = epoch == followed.epoch and appended.offset == followed.offset
        if continues:
            stable = end if stable == high else stable  # a transaction would begin with an offset of its own
            followed.ends, followed.offset = (max(start, appended.log_start), end, stable), end
            if appended.log_start > start:
                self._moved(FetchedPart(place, b"", *followed.ends))
        if continues or end == followed.offset:  # the long Fetch was quicker
            followed.own, followed.under_way = followed.own + 1, False
            self._rest(followed, REST_S)
        else:
            followed.own = 0
            if followed.rest is not None:
                self._begin(followed)
        return stable if continues else None

    def appending(self, place: Place) -> None:
        """Note an append that this process begins: its offset will show what others append until then."""
        followed = self._followed.get(place)
        if followed is not None and followed.rest is not None and not followed.under_way:
            followed.under_way = True
            self._rest(followed, UNDER_WAY_S)

    def _rest(self, followed: Followed, most_s: float) -> None:
        """Have a partition rest if this process has appended often enough in a row."""
        loop = asyncio.get_running_loop()
        followed.rests_until = loop.time() + most_s
        if followed.rest is None and followed.own >= IN_A_ROW:
            followed.own = 0  # a rest of few appends costs more Fetches than it spares
            self._remove(followed.place)
            followed.rest = loop.call_later(REST_S, self._end_rest, followed)

    def _end_rest(self, followed: Followed) -> None:
        """End a rest that no append has prolonged. A timer for each of them would cost more than such a look."""
        loop = asyncio.get_running_loop()
        left_s = followed.rests_until - loop.time()
        if left_s > LEAST_TIMER_S:
            followed.rest = loop.call_later(min(REST_S, left_s), self._end_rest, followed)
        else:
            self._begin(followed)

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                await self._any_lost.wait()
                patience = Patience()
                while self._lost:
                    await self._find({**self._lost})
                    await patience.pause()
                self._any_lost.clear()

    def _place(self, followed: Followed, leader: Leader) -> None:
        assert self._tasks is not None
        broker = self._brokers.get(leader.node)
        if broker is None:
            broker = self._brokers[leader.node] = Broker(self, leader.node)
            self._tasks.create_task(broker.long())
            self._tasks.create_task(broker.short())
        if leader.epoch != followed.epoch:
            followed.epoch, followed.ends = leader.epoch, None
        followed.wake()
        broker.add(followed)

    def _lose(self, place: Place, code: int) -> None:
        self._lost[place] = code
        self._any_lost.set()

    def lost(self, place: Place, broker: Broker, code: int = -1) -> None:
        """A broker does not lead a partition now, or is silent."""
        broker.remove(place)
        self._lose(place, code)

    def heard(self, followed: Followed, part: FetchedPart) -> None:
        """A broker answered for a partition."""
        ends = (part.log_start, part.high_watermark, part.last_stable)
        news = ends != followed.ends
        followed.ends, followed.offset = ends, part.high_watermark
        if news:
            self._moved(part)
        elif not part.batches:  # a whole Fetch without an append
            followed.own = 0

    async def _find(self, lost: dict[Place, int]) -> None:
        """Find the leaders of partitions; ask for the ends of those whose log does not reach to where it did."""
        try:
            await self.cluster.refresh(place.topic_id for place in lost)
            cut = [place for place, code in lost.items() if code == OFFSET_OUT_OF_RANGE]
            starts = await self.cluster.list_offsets(cut, "earliest") if cut else {}
            ends = await self.cluster.list_offsets(cut, "latest") if cut else {}
        except KafkaError:
            return
        for place in lost:
            followed = self._followed.get(place)
            leader = self.cluster.known_leader(place)
            if followed is None or leader is None:
                continue
            start, end = starts.get(place), ends.get(place)
            if isinstance(start, LogOffset) and isinstance(end, LogOffset):
                self.heard(followed, FetchedPart(place, b"", start.offset, end.offset, end.offset))
            self._lost.pop(place, None)
            self._place(followed, leader)

"""One fetch under way: its wake-ups, its end, and its acknowledgements, which run beside it.

                   an acknowledgement      the gateway      a repeat takes     the client      the group is
                   beside it failed, or    stops, or the    its place          hangs up, or    reset or deleted
                   a topic has grown       member leaves                       loses access
    OPEN           ANSWERING               STOPPING         REPLACED           CLIENT_GONE     ENDED
    ANSWERING      ·                       STOPPING         REPLACED           CLIENT_GONE     ENDED
    STOPPING       ·                       ·                REPLACED           CLIENT_GONE     ENDED
    REPLACED       ·                       ·                ·                  CLIENT_GONE     ENDED
    CLIENT_GONE    ·                       ·                ·                  ·               ENDED
    ENDED          ·                       ·                ·                  ·               ·

Each state forbids more than the one above it. OPEN: the fetch acquires and waits. ANSWERING: it does not wait any more.
STOPPING: it acquires nothing more. REPLACED and CLIENT_GONE: its records are not answered. ENDED: it must not continue
at another gateway either, where it could create the group again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue_gateway.leader.led_index import Sought
from sharequeue_http.forms.errors import ApiError

CONTINUED_AT_ONCE: Final = 100
"""The most waits that end in one turn of the event loop: each of them may look for records and answer."""
CONTINUED_AT_FIRST: Final = 16
"""How many end in the first two turns, before it is known how long they take. At most twice as many end in the next."""
TURN_S: Final = 0.005
"""As many waits end in a turn as take this long."""

Result = TypeVar("Result")


class Life(IntEnum):
    """The states of a fetch; see the table of this file."""

    OPEN = 0
    ANSWERING = 1
    STOPPING = 2
    REPLACED = 3
    CLIENT_GONE = 4
    ENDED = 5


class Event(IntEnum):
    """The events of a fetch. The number of an event is the state that it leads to."""

    ACKNOWLEDGEMENT_FAILED = Life.ANSWERING
    TOPIC_HAS_GROWN = Life.ANSWERING
    GATEWAY_STOPS = Life.STOPPING
    MEMBER_LEAVES = Life.STOPPING
    REPEATED = Life.REPLACED
    CLIENT_HANGS_UP = Life.CLIENT_GONE
    ACCESS_LOST = Life.CLIENT_GONE
    GROUP_RESET = Life.ENDED


class Client(Protocol):
    """The client's connection, on which a fetch is answered."""

    gone: bool
    """Whether it is known to have hung up."""

    def when_gone(self, callback: Callable[[], None] | None) -> None: ...


class Wakings:
    """Ends waits, as many in one turn of the event loop as its time allows. Thousands of fetches may have the same
    deadline, or wait for a topic that is deleted: other requests are answered between them."""

    __slots__ = ("_began", "_left", "_most", "_sleepers")

    def __init__(self) -> None:
        self._sleepers: deque[asyncio.Future[None]] = deque()
        self._most = self._left = CONTINUED_AT_FIRST
        self._began = 0.0
        """The CPU time of the loop's thread when the present turn began."""

    def wake(self, sleeper: asyncio.Future[None]) -> None:
        """End the wait of `sleeper` now, or in a later turn."""
        if self._left == self._most:
            self._begin_turn()
        if self._left:
            self._left -= 1
            sleeper.set_result(None)
        else:
            self._sleepers.append(sleeper)

    def _begin_turn(self) -> None:
        self._began = time.thread_time()
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        sleepers, took = self._sleepers, max(time.thread_time() - self._began, TURN_S / CONTINUED_AT_ONCE)
        fitting = int(self._most * TURN_S / took)
        most = min(CONTINUED_AT_ONCE, 2 * self._most, max(fitting, 1)) if sleepers else CONTINUED_AT_FIRST
        self._most = self._left = most
        while sleepers and self._left:
            sleeper = sleepers.popleft()
            if not sleeper.done():  # it may have been woken twice, or its fetch was cancelled
                self._left -= 1
                sleeper.set_result(None)
        if self._left < most:
            self._begin_turn()


@dataclass(eq=False, slots=True)
class WaitingFetch:
    """One fetch under way. `woken`: an event has happened since its last look. `member_id`: who gets the records.
    `too_few`: the bytes and records that its last look counted, if they were less than `min_bytes`.
    `topics`: the names of those of which it wants all partitions, also later ones.

    Before the first wait, `gone` checks the connection. From then on a disconnect wakes the fetch.
    """

    _client: Client
    _wakings: Wakings
    _watches: bool = False
    _sleeper: asyncio.Future[None] | None = None
    _served: asyncio.Timeout | None = None
    member_id: str = ""
    topics: Collection[str] = ()
    life: Life = Life.OPEN
    too_few: tuple[int, ...] = ()
    woken: bool = False
    refusal: ApiError | None = None
    """The answer to a client that lost its access."""
    release: bool = False
    """Whether the stream of such a client cannot be opened again."""
    when_closed: "Callable[[WaitingFetch], None] | None" = None

    @property
    def over(self) -> bool:
        """Return whether nothing more may be acquired."""
        return self.life >= Life.STOPPING

    @property
    def unanswered(self) -> bool:
        """Return whether no client gets its records."""
        return self.life >= Life.REPLACED

    def on(self, event: Event) -> None:
        """Apply an event: the fetch changes its state, unless that forbids more already, and wakes."""
        self.life = max(self.life, Life(event))
        self.wake()

    def open_again(self) -> None:
        """The next fetch of a stream waits again."""
        if self.life is Life.ANSWERING:
            self.life = Life.OPEN

    def gone(self) -> bool:
        """Return whether the client has hung up, or lost its access. Then the fetch is over."""
        if self._client.gone:
            self.on(Event.CLIENT_HANGS_UP)
        return self._client.gone or self.refusal is not None

    def refuse(self, error: ApiError, *, release: bool) -> None:
        """The client has lost its access: nobody gets the records."""
        self.refusal, self.release = error, release
        self.on(Event.ACCESS_LOST)

    def _watch(self) -> None:
        if not self._watches:
            self._watches = True
            self._client.when_gone(self._hung_up)

    def _hung_up(self) -> None:
        self.on(Event.CLIENT_HANGS_UP)

    def close(self) -> None:
        if self._watches:
            self._client.when_gone(None)
        if self.when_closed is not None:
            self.when_closed(self)

    def wake(self) -> None:
        self.woken = True
        self._stir()
        if self._served is not None and self.life is not Life.OPEN:
            self._served.reschedule(asyncio.get_running_loop().time())
            self._served = None

    async def wait(self, seconds: float) -> bool:
        """Wait for a wake-up. Returns: False when the time is over."""
        self._watch()
        if not self.woken:
            loop = asyncio.get_running_loop()
            self._sleeper = loop.create_future()
            time_over = loop.call_later(seconds, self._stir)
            try:
                await self._sleeper
            finally:
                time_over.cancel()
                self._sleeper = None
        woken, self.woken = self.woken, False
        return woken

    def _stir(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._wakings.wake(self._sleeper)

    def start_acknowledging(
        self, work: Coroutine[None, None, list[AcknowledgementResult]]
    ) -> asyncio.Task[list[AcknowledgementResult]]:
        """Acknowledge beside the fetch. If an acknowledgement fails, the fetch stops waiting and is answered."""

        async def acknowledge() -> list[AcknowledgementResult]:
            results = await work
            if any(result.status in ("failed", "unknown") for result in results):
                self.on(Event.ACKNOWLEDGEMENT_FAILED)
            return results

        return asyncio.get_running_loop().create_task(acknowledge())

    async def while_open(self, work: Coroutine[None, None, Result]) -> Result | None:
        """Await calls to other gateways. If the fetch ends first, cancel `work` and return None."""
        self._watch()
        if self.life is not Life.OPEN:
            work.close()
            return None
        try:
            async with asyncio.timeout(None) as served:
                self._served = served
                return await work
        except TimeoutError:
            if not served.expired():
                raise
            return None
        finally:
            self._served = None


class WaitingFetches:
    """The fetches of this gateway that are under way."""

    def __init__(self) -> None:
        self.under_way: dict[WaitingFetch, str] = {}
        """Fetches of share-partitions that this gateway leads, with their groups. They wait for an earlier fetch of
        their id, load, read, or wait for records."""
        self.waiting: dict[WaitingFetch, Sought | tuple[()]] = {}
        """Fetches that wait for records, with the share-partitions here; none if another gateway waits for them."""
        self.routed: dict[WaitingFetch, str] = {}
        """Fetches over several gateways, with their groups."""
        self._wakings = Wakings()

    def new(self, client: Client) -> WaitingFetch:
        """A fetch of a client, which is not registered yet."""
        return WaitingFetch(client, self._wakings)

    def by_group(self, group_id: str) -> list[WaitingFetch]:
        """A group's fetches of share-partitions that this gateway leads."""
        return [fetch for fetch, of_group in self.under_way.items() if of_group == group_id]

    def end(self, group_id: str) -> None:
        """Answer the fetches of a group now, because its state is being reset: a fetch could create the group again."""
        routed = [fetch for fetch, of_group in self.routed.items() if of_group == group_id]
        for fetch in {*self.by_group(group_id), *routed}:
            fetch.on(Event.GROUP_RESET)

    def topic_has_grown(self, name: str | None) -> None:
        """Answer the fetches that want all partitions of a topic: it has new ones. None: any topic may have."""
        for fetch in (*self.under_way, *self.routed):
            if fetch.topics and (name is None or name in fetch.topics):
                fetch.on(Event.TOPIC_HAS_GROWN)

    def end_of_member(self, group_id: str, member_id: str) -> None:
        """Answer the fetches of a member that leaves: nobody gives back what they acquire after it has left."""
        for fetch, of_group in (*self.under_way.items(), *self.routed.items()):
            if of_group == group_id and fetch.member_id == member_id:
                fetch.on(Event.MEMBER_LEAVES)

    async def finish(self) -> None:
        """Answer every waiting fetch now: the gateway stops."""
        for fetch in {*self.waiting, *self.routed}:
            fetch.on(Event.GATEWAY_STOPS)

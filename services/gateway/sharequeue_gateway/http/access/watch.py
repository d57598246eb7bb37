"""Fetches and streams under way while keys and rights change: those that would be refused now are ended.

    another revision of the book ──▶ all that is under way, one after another
    every two seconds ─────────────▶ keys whose time has passed; all, if the book is too old

A fetch is answered with the refusal. What it acquired and did not send is given back, as if its client had hung up.
The connection of a stream ends: the member may open it again with another key, and what it holds is kept for it. If its
principal has none, it is released at once, also if the connection was lost before.
"""

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from sharequeue import background
from sharequeue.clock import Clock
from sharequeue.protocol import apis
from sharequeue.repeats import Every
from sharequeue.slices import Slices
from sharequeue_gateway.access.book import AccessBook, KeyHolder
from sharequeue_gateway.delivery.waiting import WaitingFetch
from sharequeue_gateway.http.access.guard import AccessGuard
from sharequeue_gateway.routing.streams import Streams
from sharequeue_http.application.endpoint import Call
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, AuthenticationFailed, CoordinatorNotAvailable

LOOK_S: Final = 2.0


class Watched(NamedTuple):
    """A fetch or the connection of a stream. `topics`: names that its request does not have: of its share session."""

    waiting: WaitingFetch
    caller: KeyHolder
    api: Api
    call: Call
    topics: Collection[str]


class KeyWatch:
    """Knows what callers have under way. `run` must be running. `ceiling`: of fetches, each of which it counts."""

    def __init__(self, book: AccessBook, guard: AccessGuard, streams: Streams, clock: Clock, ceiling: Ceiling) -> None:
        self._ceiling = ceiling
        self._book = book
        self._streams = streams
        self._guard = guard
        self._clock = clock
        self._watched: dict[WaitingFetch, Watched] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        book.listeners.append(self._changed)

    def add(self, waiting: WaitingFetch, api: Api, call: Call, topics: Collection[str] = ()) -> None:
        """Watch a fetch until it is closed. Ends it if its key has ended since the call came."""
        caller = call.caller
        assert isinstance(caller, KeyHolder)
        watched = self._watched[waiting] = Watched(waiting, caller, api, call, topics)
        waiting.when_closed = self._forget
        if api is apis.FETCH_RECORDS:
            self._ceiling.take(caller.principal)
        if caller.limited and caller.revision != self._book.revision:
            background.start(self._tasks, self._look([watched]))

    def _forget(self, waiting: WaitingFetch) -> None:
        watched = self._watched.pop(waiting, None)
        if watched is not None and watched.api is apis.FETCH_RECORDS:
            self._ceiling.give(watched.caller.principal)

    def _changed(self) -> None:
        """The book has other keys or rights."""
        self._streams.end_away(self._may_return)
        background.start(self._tasks, self._look(list(self._watched.values())))

    def _may_return(self, principal: str) -> bool:
        """Return whether a principal may open a stream again."""
        return self._book.principal_holds(principal, self._clock.now_ms())

    async def _look(self, some: Iterable[Watched]) -> None:
        slices = Slices()
        for watched in some:
            if slices.over():
                await slices.pause()
            if watched.waiting in self._watched and not watched.waiting.over:
                error = await self._fault(watched)
                if error is not None:
                    self._end(watched, error)

    async def _fault(self, watched: Watched) -> ApiError | None:
        _, caller, api, call, topics = watched
        if not caller.limited:
            return None
        try:
            self._guard.check_known(caller)
            refused = await self._guard.check(caller, api, call.path, call.request)
        except ApiError as error:
            return error
        known = set(call.refused)  # as it was decided then; to ask it for a name decides now
        return next(filter(None, (refused.get(name) for name in (*refused, *topics) if name not in known)), None)

    def _end(self, watched: Watched, error: ApiError) -> None:
        """End it. What a stream holds is kept for another key of the principal, and while the book is too old. What a
        fetch acquired and did not send is given back."""
        kept = isinstance(error, CoordinatorNotAvailable)
        if isinstance(error, AuthenticationFailed):
            kept = self._may_return(watched.caller.principal)
        watched.waiting.refuse(error, release=not kept or watched.api is apis.FETCH_RECORDS)

    async def run(self) -> None:
        """Look at keys whose time passes, and at the age of the book. Never returns."""
        async for _ in Every(LOOK_S):
            self._streams.end_away(self._may_return)
            all_, now_ms = list(self._watched.values()), self._clock.now_ms()
            ended = [each for each in all_ if not self._book.key_holds(each.caller, now_ms)]
            await self._look(all_ if self._guard.stale() else ended)

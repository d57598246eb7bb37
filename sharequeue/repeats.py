"""Waits before something is tried again: one table of rules for all parts. A loop of tries takes its rule by the name.

`Client` decides which failed calls are repeated (`sharequeue_http/calling/caller.py`). A loop that only looks is an
`async for` over `Every`; its period stands beside it. No other code sleeps. docs/details.md shows the table.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Self

from sharequeue_http.calling.caller import FIRST_PAUSE_S, LONGEST_PAUSE_S


class Rule(NamedTuple):
    """Pauses between the tries of `what`: the first one, and each twice as long as the one before until `most_s`.

    `most_s` 0: all pauses are equal. `patience_s`: how long it is tried; inf: as long as the caller says.
    """

    what: str
    pause_s: float
    most_s: float = 0.0
    patience_s: float = math.inf

    def after(self, pause_s: float) -> float:
        """Give the pause that follows one of `pause_s`; 0: there was none."""
        return min(2 * pause_s, max(self.pause_s, self.most_s)) if pause_s else self.pause_s

    @property
    def pause_ms(self) -> int:
        return int(self.pause_s * 1000)

    async def pause(self, pause_s: float | None = None, *, at_most_s: float = math.inf) -> None:
        """Pause as before the second try, or for `pause_s`, which `after` gave."""
        await asyncio.sleep(min(self.pause_s if pause_s is None else pause_s, at_most_s))


CALL: Final = Rule("a call, a fetch of a client, opening a stream", FIRST_PAUSE_S, LONGEST_PAUSE_S)
LEADER_MOVED: Final = Rule("an acknowledgement whose leader moved", 0.1, patience_s=8.0)
FETCH_MOVED: Final = Rule("a fetch whose new leader is looked for; longer if the fetch waits", 0.1, patience_s=1.0)
REPEATED_FETCH: Final = Rule("a repeat of a fetch: the earlier one's leaders must answer first", 0.1, patience_s=5.0)
WOKEN_IN_VAIN: Final = Rule("a look of a fetch that is woken for records which it does not get", 0.01, 0.25)
STREAM: Final = Rule("a fetch of a stream that failed, or ended at once with nothing", 0.02, 1.0)
STREAM_HOLDS: Final = Rule("a look of a stream at what it holds that failed, or showed nothing new", 0.02, 0.5)
STATE_WRITE: Final = Rule("a state write that its share coordinator does not take now", 0.1)
STATE_WRITE_LEFT: Final = Rule("the same, when no request waits for it: each try ends then", 0.1, patience_s=2.0)
STATE_PROBE: Final = Rule("asking a failing share coordinator whether it takes state writes", 1.0)
EPOCH: Final = Rule("asking for a leader epoch after a lost state write; loads wait for it", 0.5, patience_s=10.0)
FEED: Final = Rule("following the group coordinator", 0.5)
GATEWAY_LEASE: Final = Rule("renewing or giving back the lease of a gateway", 0.1)
LOCKS_GIVEN: Final = Rule("a stopping gateway offers its locks to their new leaders", 0.1, patience_s=2.0)
DELETION: Final = Rule("finishing the deletion of a topic", 1.0)
EVERY_GATEWAY: Final = Rule("a question to every gateway, which answers or leaves the generation", 0.1, patience_s=6.0)
LEASE_HELD: Final = Rule("taking a name whose lease has not ended, or a shard with a write under way", 0.1)
APPEND_NEWS: Final = Rule("announcing the next appends to other gateways; the first go at once", 0.003)
APPEND: Final = Rule("an append, or the end of a transaction, that PostgreSQL did not take", 0.1)
INTENT: Final = Rule("an append to Kafka whose earlier try is open, or a look whether that one has ended", 0.05, 0.5)
DEAD_LETTER: Final = Rule("writing a dead letter; `dead_letter_retry_max_ms` is the longest pause", 0.4, math.inf)
TRUNCATED: Final = Rule("looking whether Kafka has cut a log", 0.5)
REDIS_SILENT: Final = Rule("asking a Redis that does not answer", 0.5)
REDIS_REFUSES: Final = Rule("asking a Redis that refuses writes, where an operator must act", 2.0)
HEARTBEAT: Final = Rule("a heartbeat or a renewal of a client", 1.0)
JOINED: Final = Rule("a heartbeat of a member without partitions; its interval is the longest", 0.1, math.inf)
PART_DIED: Final = Rule("starting a part of `sharequeue up` that died", 1.0, 30.0)
PART_READY: Final = Rule("a look of `sharequeue up` for a part that starts, or a lock that another process holds", 0.02)
SPARK: Final = Rule("answering Spark that nothing is new; it asks again every 10 ms", 0.25)
SPARK_LAG: Final = Rule("the same, while fewer records wait than the least of a trigger", 1.0)


class Tries:
    """The tries of one piece of work, by a rule; `patience_s` takes the place of the rule's."""

    def __init__(self, rule: Rule, patience_s: float | None = None) -> None:
        self._rule = rule
        self._pause_s = 0.0
        self._until_s = time.monotonic() + (rule.patience_s if patience_s is None else patience_s)

    async def pause(self, at_least_s: float | None = None) -> bool:
        """Pause before the next try. Returns: False, at once, if the patience ends before."""
        pause_s = self._next(at_least_s)
        if pause_s is not None:
            await asyncio.sleep(pause_s)
        return pause_s is not None

    def rest(self) -> bool:
        """Pause this thread, otherwise as `pause`."""
        pause_s = self._next()
        if pause_s is not None:
            time.sleep(pause_s)
        return pause_s is not None

    def _next(self, at_least_s: float | None = None) -> float | None:
        self._pause_s = self._rule.after(self._pause_s)
        pause_s = max(self._pause_s, at_least_s or 0)
        return pause_s if time.monotonic() + pause_s < self._until_s else None


async def heard(event: asyncio.Event, within_s: float | None) -> None:
    """Return when an event is set, or after this time. None: any time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()


class Every:
    """The turns of a loop that never ends, each after a pause of `period_s`: `async for _ in Every(1.0)`.

    period_s: a function is asked before each pause. at_once: the first turn has no pause before it.
    """

    def __init__(self, period_s: float | Callable[[], float], *, at_once: bool = False) -> None:
        self._period_s = period_s
        self._at_once = at_once

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> None:
        at_once, self._at_once = self._at_once, False
        if not at_once:
            await asyncio.sleep(self._period_s() if callable(self._period_s) else self._period_s)

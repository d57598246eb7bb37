"""The life of a waiting fetch, and work of other gateways for it: work ends with its fetch,
not when that only wakes."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from sharequeue_gateway.delivery import waiting as waiting_module
from sharequeue_gateway.delivery.waiting import (
    CONTINUED_AT_FIRST,
    CONTINUED_AT_ONCE,
    TURN_S,
    Event,
    Life,
    WaitingFetch,
    WaitingFetches,
)

LONG_S = 3600
HANG_S = 60


class Work:
    """Work that waits until the test lets it end. `cancelled`: whether it was."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.cancelled = False

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"


class Client:
    """A client that stays until it hangs up."""

    def __init__(self) -> None:
        self.gone = False
        self.connection: Any = SimpleNamespace(peer=None)
        self.on_gone: Callable[[], None] | None = None

    def hang_up(self) -> None:
        self.gone = True
        if self.on_gone is not None:
            self.on_gone()

    def when_gone(self, callback: Callable[[], None] | None) -> None:
        self.on_gone = callback
        if self.gone and callback is not None:
            callback()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(HANG_S):
            await test()

    asyncio.run(in_time())


def fetch() -> WaitingFetch:
    return WaitingFetches().new(Client())


def test_work_for_a_waiting_fetch_is_done() -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        work.may_end.set()
        assert await waiting.while_open(work()) == "done"
        waiting.wake()
        waiting.on(Event.GROUP_RESET)  # an end after the work has no effect on it
        await asyncio.sleep(0)

    run(test)


@pytest.mark.parametrize("event", Event, ids=lambda event: event.name.lower())
def test_work_ends_with_its_fetch(event: Event) -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        task = asyncio.create_task(waiting.while_open(work()))
        await work.begun.wait()
        waiting.wake()  # waking alone does not end the work
        await asyncio.sleep(0)
        assert not work.cancelled
        waiting.on(event)
        assert await task is None
        assert work.cancelled
        assert not task.cancelling()

    run(test)


def test_work_ends_when_the_client_hangs_up() -> None:
    async def test() -> None:
        client, work = Client(), Work()
        waiting = WaitingFetches().new(client)
        task = asyncio.create_task(waiting.while_open(work()))
        await work.begun.wait()
        client.hang_up()
        assert await task is None
        assert work.cancelled
        assert waiting.life is Life.CLIENT_GONE
        assert waiting.gone()
        waiting.close()
        assert client.on_gone is None, "the connection refers to the fetch, which refers to the connection"

    run(test)


def test_a_client_that_hangs_up_ends_the_wait_of_its_fetch() -> None:
    async def test() -> None:
        client = Client()
        waiting = WaitingFetches().new(client)
        sleeping = asyncio.create_task(waiting.wait(LONG_S))
        await asyncio.sleep(0)
        client.hang_up()
        assert await sleeping
        assert waiting.life is Life.CLIENT_GONE

    run(test)


def test_a_fetch_does_not_wait_for_a_client_that_is_gone() -> None:
    async def test() -> None:
        client, work = Client(), Work()
        waiting = WaitingFetches().new(client)
        client.hang_up()
        assert await waiting.wait(LONG_S)
        assert waiting.life is Life.CLIENT_GONE
        assert await WaitingFetches().new(client).while_open(work()) is None
        assert not work.begun.is_set()

    run(test)


def test_work_does_not_begin_for_an_ended_fetch() -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        waiting.on(Event.GROUP_RESET)
        assert await waiting.while_open(work()) is None
        assert not work.begun.is_set()

    run(test)


def test_cancelling_a_fetch_cancels_its_work_and_itself() -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        task = asyncio.create_task(waiting.while_open(work()))
        await work.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.cancelled

        waiting, work = fetch(), Work()
        task = asyncio.create_task(waiting.while_open(work()))
        await work.begun.wait()
        waiting.on(Event.GROUP_RESET)
        task.cancel()  # both at once
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test)


# The life of a fetch

LIVES = ["OPEN", "ANSWERING", "STOPPING", "REPLACED", "CLIENT_GONE", "ENDED"]
TABLE = {
    "ACKNOWLEDGEMENT_FAILED": ["ANSWERING", *LIVES[1:]],
    "GATEWAY_STOPS": ["STOPPING", "STOPPING", *LIVES[2:]],
    "REPEATED": ["REPLACED", "REPLACED", "REPLACED", *LIVES[3:]],
    "CLIENT_HANGS_UP": ["CLIENT_GONE", "CLIENT_GONE", "CLIENT_GONE", "CLIENT_GONE", *LIVES[4:]],
    "GROUP_RESET": ["ENDED"] * 6,
}
"""The state after each event, for each state before it."""


@pytest.mark.parametrize(
    ("event", "before", "after"),
    [(event, LIVES[index], after) for event, lives in TABLE.items() for index, after in enumerate(lives)],
)
def test_a_fetch_changes_its_state_by_the_table(event: str, before: str, after: str) -> None:
    waiting = fetch()
    waiting.life = Life[before]
    waiting.on(Event[event])
    assert waiting.life.name == after
    assert waiting.woken, "it looks whether it is over"


@pytest.mark.parametrize(
    ("life", "over", "unanswered"),
    [
        ("OPEN", False, False),
        ("ANSWERING", False, False),
        ("STOPPING", True, False),
        ("REPLACED", True, True),
        ("CLIENT_GONE", True, True),
        ("ENDED", True, True),
    ],
)
def test_a_state_says_whether_a_fetch_is_over_and_whether_it_is_answered(
    life: str, over: bool, unanswered: bool
) -> None:
    waiting = fetch()
    waiting.life = Life[life]
    assert (waiting.over, waiting.unanswered) == (over, unanswered)


def test_a_client_that_is_gone_is_noticed_before_it_is_watched() -> None:
    client = Client()
    waiting = WaitingFetches().new(client)
    assert not waiting.gone()
    assert waiting.life is Life.OPEN
    client.gone = True
    assert waiting.gone()
    assert waiting.life is Life.CLIENT_GONE


def test_a_wake_up_before_the_wait_is_not_lost() -> None:
    async def test() -> None:
        waiting = fetch()
        waiting.wake()
        assert await waiting.wait(LONG_S)
        assert not waiting.woken
        assert not await waiting.wait(0.01)
        waiting.close()

    run(test)


def test_a_reset_ends_the_fetches_of_its_group_and_a_stop_those_that_wait() -> None:
    async def test() -> None:
        fetches = WaitingFetches()
        loads, waits, relayed, of_another = (fetch() for _ in range(4))
        fetches.under_way |= {loads: "g", waits: "g", of_another: "h"}
        fetches.routed[relayed] = "g"
        fetches.waiting |= {waits: (), of_another: ()}
        assert fetches.by_group("g") == [loads, waits]
        fetches.end("g")
        await fetches.finish()
        lives = [waiting.life for waiting in (loads, waits, relayed, of_another)]
        assert lives == [Life.ENDED, Life.ENDED, Life.ENDED, Life.STOPPING]

    run(test)


@pytest.mark.parametrize("how", ["the time is over", "an event"])
def test_waits_that_end_together_end_a_hundred_in_a_turn_at_most(how: str) -> None:
    """A crowd whose waits end at the same moment lets other requests pass: each turn of the event loop has some."""

    async def test() -> None:
        fetches, ended = WaitingFetches(), 0

        async def wait(waiting: WaitingFetch) -> None:
            nonlocal ended
            await waiting.wait(LONG_S if how == "an event" else 0.01)
            ended += 1

        waiting = [fetches.new(Client()) for _ in range(1000)]
        tasks = [asyncio.create_task(wait(each)) for each in waiting]
        await asyncio.sleep(0)
        if how == "an event":
            for each in waiting:
                each.wake()
        else:
            time.sleep(0.02)  # noqa: ASYNC251 - all their timers are over at once
        in_a_turn = []
        while ended < len(tasks):
            before = ended
            await asyncio.sleep(0)
            in_a_turn.append(ended - before)
        assert next(count for count in in_a_turn if count) == CONTINUED_AT_FIRST
        assert max(in_a_turn) <= CONTINUED_AT_ONCE
        await asyncio.sleep(0)
        last = fetches.new(Client())
        task = asyncio.create_task(wait(last))
        await asyncio.sleep(0)
        last.wake()
        await asyncio.sleep(0)
        assert task.done(), "a single one is not delayed"

    run(test)


def test_a_turn_ends_as_many_waits_as_its_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches that take a millisecond each: the loop has other work after a few of them, not after a hundred."""

    class Cpu:
        """The CPU time of the loop's thread, which the fetches turn."""

        seconds = 0.0

        def thread_time(self) -> float:
            return self.seconds

    async def test() -> None:
        fetches, ended, cpu = WaitingFetches(), 0, Cpu()
        monkeypatch.setattr(waiting_module, "time", cpu)

        async def wait(waiting: WaitingFetch) -> None:
            nonlocal ended
            await waiting.wait(LONG_S)
            cpu.seconds += TURN_S / 5
            ended += 1

        waiting = [fetches.new(Client()) for _ in range(300)]
        tasks = [asyncio.create_task(wait(each)) for each in waiting]
        await asyncio.sleep(0)
        for each in waiting:
            each.wake()
        in_a_turn = []
        while ended < len(tasks):
            before = ended
            await asyncio.sleep(0)
            in_a_turn.append(ended - before)
        assert max(in_a_turn) <= 2 * CONTINUED_AT_FIRST
        settled = [count for count in in_a_turn if count][4:-1]
        assert max(settled) <= 8, in_a_turn

    run(test)

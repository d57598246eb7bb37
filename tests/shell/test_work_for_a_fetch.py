"""Work of other gateways for a waiting fetch: it ends with the fetch, but not when the fetch only wakes."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from sharequeue_gateway.delivery.waiting import WaitingFetch

LONG_S = 30
SOON_S = 10


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


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(LONG_S):
            await test()

    asyncio.run(in_time())


def fetch(watch: Callable[[], Awaitable[None]] | None = None) -> WaitingFetch:
    async def stays() -> None:
        await asyncio.Event().wait()

    return WaitingFetch(watch or stays, lambda: False)  # type: ignore[arg-type]


def test_work_for_a_waiting_fetch_is_done() -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        work.may_end.set()
        assert await waiting.unless_over(work()) == "done"
        waiting.wake()
        waiting.end()  # an end after the work has no effect on it
        await asyncio.sleep(0)

    run(test)


@pytest.mark.parametrize("how", ["end", "finish", "failed acknowledgement"])
def test_work_ends_with_its_fetch(how: str) -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        task = asyncio.create_task(waiting.unless_over(work()))
        await work.begun.wait()
        waiting.wake()  # waking alone does not end the work
        await asyncio.sleep(0)
        assert not work.cancelled
        if how == "failed acknowledgement":
            waiting.failed_acknowledgement = True
            waiting.wake()
        else:
            getattr(waiting, how)()
        assert await task is None
        assert work.cancelled
        assert not task.cancelling()

    run(test)


def test_work_ends_when_the_client_hangs_up() -> None:
    async def test() -> None:
        gone = asyncio.Event()

        async def watch() -> None:
            await gone.wait()

        waiting, work = fetch(watch), Work()
        task = asyncio.create_task(waiting.unless_over(work()))
        await work.begun.wait()
        gone.set()
        assert await asyncio.wait_for(task, SOON_S) is None
        assert work.cancelled
        assert waiting.client_gone
        waiting.close()

    run(test)


def test_work_does_not_begin_for_an_ended_fetch() -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        waiting.end()
        assert await waiting.unless_over(work()) is None
        assert not work.begun.is_set()

    run(test)


def test_cancelling_a_fetch_cancels_its_work_and_itself() -> None:
    async def test() -> None:
        waiting, work = fetch(), Work()
        task = asyncio.create_task(waiting.unless_over(work()))
        await work.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert work.cancelled

        waiting, work = fetch(), Work()
        task = asyncio.create_task(waiting.unless_over(work()))
        await work.begun.wait()
        waiting.end()
        task.cancel()  # both at once
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test)

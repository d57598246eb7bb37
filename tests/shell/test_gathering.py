"""The moment between two shared commits: those that call again at once join."""

import asyncio
import socket

import pytest
import uvloop

from sharequeue.gathering import let_others_join


async def joined(*, waits: bool) -> bool:
    """Whether a task made by the reading of a socket has run, where the bytes were there before."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    called = asyncio.Event()

    async def call() -> None:
        called.set()

    with ours, theirs:
        ours.setblocking(False)
        calling = None

        def read() -> None:
            nonlocal calling
            loop.remove_reader(ours)
            calling = loop.create_task(call())

        loop.add_reader(ours, read)
        theirs.send(b"x")
        if waits:
            await let_others_join()
        result = called.is_set()
        await called.wait()
    return result


@pytest.mark.parametrize("waits", [True, False])
def test_what_the_sockets_hold_joins_the_next_one(waits: bool) -> None:
    assert uvloop.run(joined(waits=waits)) is waits

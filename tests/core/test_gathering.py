"""The moment between two shared commits: those that call again at once join, and nobody is kept waiting alone."""

import asyncio
import socket

import pytest
import uvloop

from sharequeue.gathering import let_others_join


async def joined(shared_by: int) -> bool:
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
        await let_others_join(shared_by)
        result = called.is_set()
        await called.wait()
    return result


@pytest.mark.parametrize(("shared_by", "waits"), [(0, False), (1, False), (2, True), (9, True)])
def test_what_the_sockets_hold_joins_the_next_one(shared_by: int, waits: bool) -> None:
    assert uvloop.run(joined(shared_by)) is waits

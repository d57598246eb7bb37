"""Starts tasks that no other task awaits, and decides which task does work for several requests."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

IN_COMPANY: Final = 8
"""After a commit, or a round trip, with several requests, so many further ones are done by a task of their own, which
lets all requests of one turn of the event loop gather. Then a request that finds nothing under way does it itself."""


def start(tasks: "set[asyncio.Task[Any]]", work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Run `work` as a task. `tasks` holds it until it ends, because the event loop keeps only a weak reference."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task

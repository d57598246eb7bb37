"""Tasks that nobody awaits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start(tasks: "set[asyncio.Task[Any]]", work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Run `work`. `tasks` holds its task until it ends, for the event loop does not."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task

"""Starts tasks that no other task awaits."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def start(tasks: "set[asyncio.Task[Any]]", work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Run `work` as a task. `tasks` holds it until it ends, because the event loop keeps only a weak reference."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task

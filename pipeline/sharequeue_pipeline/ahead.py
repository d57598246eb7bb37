"""Doing work ahead of its use: a task asks for the next answer while it handles the last one.

The gateway and a task's own Python would otherwise wait for each other in turn.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice, repeat
from typing import TypeVar

T = TypeVar("T")


def in_order(jobs: Iterable[Callable[[], T]]) -> Generator[T]:
    """Run jobs in a thread, one after the other, and give their results.

    The jobs are made in the caller's thread. While one runs, the next one is made: one more result is in memory than
    the caller handles. A caller that stops waits for the job that runs.

    Raises: the fault of the first job that fails; no later one begins.
    """
    with ThreadPoolExecutor(1, "sharequeue ahead") as pool:
        running: list[Future[T]] = []
        """The last job that has begun, once there is one."""
        for job in jobs:
            results = [each.result() for each in running]
            running = [pool.submit(job)]
            yield from results
        yield from [each.result() for each in running]


def one_ahead(source: Iterator[T]) -> Generator[T]:
    """The items of an iterator. While the caller handles one, a thread makes the next."""
    steps = in_order(repeat(lambda: list(islice(source, 1))))
    with closing(steps):
        for found in steps:
            if not found:
                return
            yield found[0]

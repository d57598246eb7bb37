"""Doing work ahead of its use: a task asks for the next answer while it handles the last one.

The gateway and a task's own Python would otherwise wait for each other in turn.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice, repeat
from typing import TypeVar

T = TypeVar("T")


def in_order(jobs: Iterable[Callable[[], T]]) -> Generator[T]:
    """Run jobs in a thread, one after the other, and give their results.

    The jobs are made in the caller's thread. While one runs, the next one is made and waits: one more result is in
    memory than the caller handles. A caller that stops waits for the job that runs.

    Raises: the fault of the first job that fails; no later one begins.
    """
    waiting: deque[Future[T]] = deque()
    failed = False

    def run(job: Callable[[], T]) -> T:
        nonlocal failed
        if failed:  # the caller may not know it yet
            raise CancelledError
        try:
            return job()
        except BaseException:
            failed = True
            raise

    with ThreadPoolExecutor(1, "sharequeue ahead") as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(run, job))
                if len(waiting) > 1:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


def one_ahead(source: Iterator[T]) -> Generator[T]:
    """The items of an iterator. While the caller handles one, a thread makes the next."""
    steps = in_order(repeat(lambda: list(islice(source, 1))))
    with closing(steps):
        for found in steps:
            if not found:
                return
            yield found[0]

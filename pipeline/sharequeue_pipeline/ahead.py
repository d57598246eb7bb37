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


def in_order(jobs: Iterable[Callable[[], T]], threads: int) -> Generator[T]:
    """Run jobs in threads, and give their results in the order of the jobs.

    The jobs are made in the caller's thread. At most `threads` run, and one more is made and waits: so many results are
    in memory at once, besides the one that the caller handles. A caller that stops waits for those that run.

    Raises: the fault of the first job that fails; later jobs that have not begun do not begin.
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

    with ThreadPoolExecutor(threads, "sharequeue ahead") as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(run, job))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


def one_ahead(source: Iterator[T]) -> Generator[T]:
    """The items of an iterator. While the caller handles one, a thread makes the next."""
    steps = in_order(repeat(lambda: list(islice(source, 1))), threads=1)
    with closing(steps):
        for found in steps:
            if not found:
                return
            yield found[0]

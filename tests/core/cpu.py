"""The CPU of pure work beside a control in the same run: a busy machine slows both."""

import time
from collections.abc import Callable

RUNS = 3


def times_as_much(work: Callable[[], object], control: Callable[[], object]) -> float:
    """Run each some times. Returns: the CPU of the best run of `work` by the CPU of the best run of `control`."""
    return min(seconds(work) for _ in range(RUNS)) / min(seconds(control) for _ in range(RUNS))


def seconds(work: Callable[[], object]) -> float:
    """The CPU seconds of this thread that `work` takes."""
    started = time.thread_time()
    work()
    return time.thread_time() - started

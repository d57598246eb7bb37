"""Work in threads: its results come in order, its amount is bounded, and a fault ends it."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from sharequeue_pipeline.ahead import in_order, one_ahead

WAIT_S = 60


def test_jobs_run_one_at_a_time_and_one_more_is_made_meanwhile() -> None:
    made = [threading.Event() for _ in range(9)]
    alone = threading.Lock()

    def job(number: int) -> int:
        assert alone.acquire(blocking=False)
        assert all(event.wait(WAIT_S) for event in made[: number + 2])
        assert not any(event.is_set() for event in made[number + 2 :])
        alone.release()
        return number

    def jobs() -> Iterator[Callable[[], int]]:
        for number, event in enumerate(made):
            event.set()
            yield partial(job, number)

    assert list(in_order(jobs())) == [*range(9)]


def test_a_fault_ends_the_work_and_later_jobs_do_not_begin() -> None:
    begun: list[int] = []

    def run(number: int) -> int:
        begun.append(number)
        if number == 1:
            raise ValueError("job 1")
        return number

    results = in_order(partial(run, number) for number in range(9))
    assert next(results) == 0
    with pytest.raises(ValueError, match="job 1"):
        list(results)
    assert begun == [0, 1]


def test_a_job_that_waits_does_not_begin_before_the_caller_sees_the_fault() -> None:
    begun: list[int] = []

    def run(number: int) -> None:
        begun.append(number)
        time.sleep(0.005)  # the caller waits by now
        raise ValueError("job 0")

    for _ in range(50):
        begun.clear()
        with pytest.raises(ValueError, match="job 0"):
            list(in_order(partial(run, number) for number in range(9)))
        assert begun == [0]


def test_a_fault_in_making_a_job_waits_for_those_that_run() -> None:
    runs, done = threading.Event(), threading.Event()

    def job() -> None:
        runs.set()
        done.set()

    def jobs() -> Iterator[Callable[[], None]]:
        yield job
        assert runs.wait(WAIT_S)
        raise ValueError("a row")

    with pytest.raises(ValueError, match="a row"):
        list(in_order(jobs()))
    assert done.is_set()


def test_the_next_item_is_made_while_one_is_handled() -> None:
    made = [threading.Event() for _ in range(3)]

    def source() -> Iterator[int]:
        for number, event in enumerate(made):
            event.set()
            yield number

    items = one_ahead(source())
    assert next(items) == 0
    assert made[1].wait(WAIT_S)
    assert not made[2].is_set()
    assert list(items) == [1, 2]


def test_a_fault_of_the_source_comes_in_its_place() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("gone")

    items = one_ahead(source())
    assert next(items) == 1
    with pytest.raises(ValueError, match="gone"):
        next(items)


def test_closing_ends_the_source() -> None:
    closed = threading.Event()

    def source() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    items = one_ahead(source())
    next(items)
    items.close()
    assert closed.wait(WAIT_S)

"""What a run of Spark costs as it goes on: CPU seconds and memory of all processes, by how many records are committed.

A thread looks several times a second. CPU counts all processes below this one, also processes that have ended: if
their parent waits for them, the kernel adds their CPU to its own. What the looking itself costs is left out.
"""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Final, NamedTuple

import psutil

from sharequeue.stack.stack import Stack

LOOK_S: Final = 0.05
STEPS: Final = 10
"""A run is judged by tenths of its records."""
MORE_CPU: Final = 1.1
"""CPU seconds of the last tenths beside the first, as medians of three: single ones, of 2 s, differ as much."""
MORE_MIB: Final = {"Java": 48}
OTHERS_MORE_MIB: Final = 12
"""How much higher the last third may reach than the second one. The first fills heaps and caches."""

Memory = Mapping[str, int]
"""Resident bytes by role: of a role with several processes the largest one."""


class Sample(NamedTuple):
    records: int
    cpu: float
    memory: Memory


class Step(NamedTuple):
    """One tenth of a run."""

    records: int
    cpu: float
    memory: Memory


class Processes:
    """All processes below this one."""

    def __init__(self, stack: Stack) -> None:
        self._roles = {service.pid: service.name for service in stack.services}
        self._tasks: dict[tuple[int, float], float] = {}
        """CPU seconds of each task worker. Spark's Python daemon does not wait for them, so it has none of theirs."""

    def sample(self, records: int) -> Sample:
        own = psutil.Process()
        cpu, memory = 0.0, dict[str, int]()
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.Error), process.oneshot():
                times = process.cpu_times()
                role = "the program" if process.pid == own.pid else self._role(process)
                if role is not None:
                    memory[role] = max(memory.get(role, 0), process.memory_info().rss)
                if role == "Python tasks":
                    self._tasks[process.pid, process.create_time()] = times.user + times.system
                else:
                    cpu += times.user + times.system + times.children_user + times.children_system
        return Sample(records, cpu + sum(self._tasks.values()), memory)

    def _role(self, process: psutil.Process) -> str | None:
        if process.pid not in self._roles:
            words = " ".join(process.cmdline())
            roles = {"java": "Java", "pyspark.daemon": "Python tasks", "pyspark": "Python planner"}
            found = next((role for word, role in roles.items() if word in words), None)
            if found is None:
                return None  # a store, or a process that has just been forked
            self._roles[process.pid] = found
        return self._roles[process.pid]


@contextmanager
def sampled(processes: Processes, committed: Callable[[], int]) -> Iterator[list[Sample]]:
    """Sample while this lasts. `committed`: how many records are done."""
    samples, over = [processes.sample(committed())], threading.Event()

    def run() -> None:
        looking, last = 0.0, False
        while not last:
            last = over.wait(LOOK_S)  # once more at the end
            began = time.thread_time()
            found = processes.sample(committed())
            samples.append(found._replace(cpu=found.cpu - looking))
            looking += time.thread_time() - began

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


def steps_of(samples: Sequence[Sample], records: int) -> list[Step]:
    """The tenths of a run. A tenth ends with the first sample that has its records, and its CPU is for a tenth exactly.

    The first one begins with the first commit: the start of a query is not part of it.
    """
    size = records // STEPS
    ends = [max(1, size * number) for number in range(STEPS + 1)]
    bounds = [next(n for n, each in enumerate(samples) if each.records >= end) for end in ends]
    steps = []
    for first, last in itertools.pairwise(bounds):
        done = samples[last].records - samples[first].records
        assert done > 0, "commits are too large to tell one tenth from the next"
        spent = (samples[last].cpu - samples[first].cpu) * size / done
        within = samples[first : last + 1]
        roles = sorted({role for each in within for role in each.memory})
        steps.append(Step(done, spent, {role: max(each.memory.get(role, 0) for each in within) for role in roles}))
    return steps


def middle(runs: Sequence[Sequence[Step]]) -> list[Step]:
    """Several runs over the same records as one: the median of CPU, and the most memory."""
    steps = []
    for parts in zip(*runs, strict=True):
        roles = {role for part in parts for role in part.memory}
        memory = {role: max(part.memory.get(role, 0) for part in parts) for role in sorted(roles)}
        steps.append(Step(parts[0].records, median(part.cpu for part in parts), memory))
    return steps


def table(what: str, records: int, steps: Sequence[Step]) -> str:
    roles = sorted({role for step in steps for role in step.memory})
    lines = [f"{what}: {records} records; CPU seconds of each tenth, and the most memory (MiB)"]
    lines.append(" | ".join(("tenth", "CPU s", *roles)))
    for number, step in enumerate(steps, 1):
        sizes = [f"{step.memory.get(role, 0) / 2**20:.0f}" for role in roles]
        lines.append(" | ".join((str(number), f"{step.cpu:.1f}", *sizes)))
    return "\n".join(lines)


def complaints(steps: Sequence[Step]) -> list[str]:
    """What is not flat."""
    found = []
    third = len(steps) // 3
    first_cpu, last_cpu = (median(step.cpu for step in part) for part in (steps[:third], steps[-third:]))
    if last_cpu > MORE_CPU * first_cpu:
        found.append(f"CPU: one of the last tenths took {last_cpu:.1f} s, one of the first {first_cpu:.1f} s")
    for role in sorted({role for step in steps for role in step.memory}):
        before, last = (
            max(step.memory.get(role, 0) for step in part) / 2**20 for part in (steps[third:-third], steps[-third:])
        )
        if last - before > MORE_MIB.get(role, OTHERS_MORE_MIB):
            found.append(f"{role}: {before:.0f} MiB at most before the last third, {last:.0f} in it")
    return found

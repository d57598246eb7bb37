"""Garbage collection in parts: however many objects live, a full collection looks at the newer ones alone."""

import subprocess
import sys

PROGRAM = """
import gc
from sharequeue.service import garbage

class Cycle:
    def __init__(self):
        self.itself = self

class Watch:
    most = 0
    def __call__(self, phase, info):
        if phase == "start":
            looked_at = sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1))
            self.most = max(self.most, looked_at)

gc.disable()
garbage.LONG_S = garbage.SPENT_S = 0  # by the time alone, a fast machine would look at more
collector = garbage.Collector()
watch = Watch()
gc.callbacks.insert(0, watch)
crowd = []
for number in range(1_000_000):
    crowd.append([number])
    if number % 20_000 == 0:
        collector.collect()
most, frozen = watch.most, gc.get_freeze_count()
del crowd
freed = frozen - gc.get_freeze_count()
for number in range(200_000):
    Cycle()
    if number % 20_000 == 0:
        collector.collect()
print(most, freed, len(gc.get_objects()))
"""
"""A million objects that stay for a while. Then 200,000 cycles that are garbage at once."""


def test_a_full_collection_looks_at_new_objects_alone() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    most, freed, left = done.stdout.split()
    assert int(most) < 100_000
    assert int(freed) > 800_000, "reference counting frees frozen objects"
    assert int(left) < 60_000, "new cycles are collected"

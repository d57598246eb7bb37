"""The Python process of Spark's tasks: its garbage collections leave out the modules that it has imported."""

import subprocess
import sys

SPARED = """
import gc
from sharequeue_pipeline.worker_process import spare_modules
spare_modules()
first = gc.get_freeze_count()
spare_modules()
assert gc.get_freeze_count() == first, "nothing was imported since"
import decimal, fractions
spare_modules()
print(first, gc.get_freeze_count())
"""


def test_modules_that_a_later_task_imports_are_spared_too() -> None:
    run = subprocess.run([sys.executable, "-c", SPARED], capture_output=True, text=True, check=True)
    first, later = map(int, run.stdout.split())
    assert 0 < first < later

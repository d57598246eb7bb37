"""The Python process in which Spark runs tasks, one after the other."""

import gc
from functools import cache


@cache
def spare_modules() -> None:
    """Leave what this process has imported out of its garbage collections. Spark runs one after each task: that was
    a third of the CPU of a short task in Python."""
    gc.freeze()

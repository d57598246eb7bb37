"""The Python process in which Spark runs tasks, one after the other."""

import gc
import sys
from functools import cache


def spare_modules() -> None:
    """Leave what this process has imported out of its garbage collections. Spark runs one after each task: that was
    a third of the CPU of a short task in Python. A later call spares what was imported since."""
    _freeze(len(sys.modules))


@cache
def _freeze(modules: int) -> None:
    """Once for each number of modules."""
    gc.collect()  # or garbage would be kept, too
    gc.freeze()

"""Python as Spark starts it for tasks and plans, which has imported what they need before it forks for each of them.

Spark imports after the fork, each time, and collects garbage after each task: among everything that was imported.
Arguments: as Spark gives them to Python, `-m DAEMON WORKER`, or `-m WORKER` for one that is not forked.
"""

import gc
import importlib
import os
import runpy
import sys
from pathlib import Path

PACKAGES = ("pandas", "pyarrow", "sharequeue_pipeline.data_source")


def write(directory: Path) -> Path:
    """A program in the directory, for PYSPARK_PYTHON."""
    program = directory / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    program.chmod(0o755)
    return program


def main() -> None:
    _, module, *workers = sys.argv[1:]
    sys.path[0] = os.getcwd()  # as `-m` has it
    if workers:
        for package in (*workers, *PACKAGES):
            importlib.import_module(package)
        gc.freeze()
    sys.argv = [module, *workers]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

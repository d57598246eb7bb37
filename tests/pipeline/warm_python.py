"""A Python for Spark's workers that imports their packages once, before it forks a worker for each task or plan.

Plain Spark imports after each fork, and its garbage collection after each task visits all imported objects. The
arguments are those that Spark passes to Python: `-m DAEMON WORKER`, or `-m WORKER` for a worker that is not forked, or
a program after `-c`, which asks for the version.
"""

import gc
import importlib
import os
import runpy
import sys
from pathlib import Path

PACKAGES = ("pandas", "pyarrow", "sharequeue_pipeline.data_source")


def write(directory: Path) -> Path:
    """Write a program for PYSPARK_PYTHON into the directory. Returns: its path."""
    program = directory / "python"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    program.chmod(0o755)
    return program


def main() -> None:
    flag, module, *workers = sys.argv[1:]
    if flag != "-m":
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    sys.path[0] = os.getcwd()  # as `-m` has it
    if workers:
        for package in (*workers, *PACKAGES):
            importlib.import_module(package)
        gc.freeze()
    sys.argv = [module, *workers]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

"""`make steady`: the tests again and again, every second run beside a load that keeps all cores busy.

    run 1   make test                   green in 201 s
    run 2   make test, beside a load    green in 388 s
    …

A test that fails here fails by chance: mend it or delete it. The first red run ends the program, with exit code 1.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
BUSY: Final = "while True: pass"


@contextmanager
def load() -> Iterator[None]:
    """Keep each core busy with a process of its own."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(target: str, *, beside_load: bool) -> bool:
    """Run a target of make once, and print what became of it. Returns: whether it was green."""
    began = time.monotonic()
    with load() if beside_load else nullcontext():
        code = subprocess.run(["make", target], cwd=ROOT, check=False).returncode
    name = f"make {target}, beside a load" if beside_load else f"make {target}"
    print(f"steady: {name}: {'RED' if code else 'green'} in {time.monotonic() - began:.0f} s", flush=True)
    return code == 0


def main() -> int:
    """Run each target as often as the command line says. Returns: the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.steady")
    parser.add_argument("--test", type=int, default=10, metavar="RUNS", help="runs of `make test` (%(default)s)")
    parser.add_argument("--test-all", type=int, default=3, metavar="RUNS", help="runs of `make test-all` (%(default)s)")
    runs = parser.parse_args()
    plan = [("test", number) for number in range(runs.test)] + [("test-all", number) for number in range(runs.test_all)]
    return 0 if all(run(target, beside_load=number % 2 == 1) for target, number in plan) else 1


if __name__ == "__main__":
    sys.exit(main())

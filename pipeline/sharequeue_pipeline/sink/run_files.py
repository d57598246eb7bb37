"""The files of a task that sorts more rows than its memory takes: each has a sorted run of rows, and no name."""

import os
import tempfile
from collections.abc import Callable
from typing import IO, Final, Self

MAX_RUNS: Final = 64
"""Files that are open at once; so many runs are merged into one."""


class RunFiles:
    """The runs of a task. Use it in a `with` statement: its end closes the files, and so deletes them."""

    def __init__(self) -> None:
        self.runs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self.runs:
            run.close()

    def merge_if_full(self, merged: Callable[[list[IO[bytes]]], IO[bytes]]) -> None:
        """Make room for one more run: `merged` writes one file of all runs, if there are `MAX_RUNS`."""
        if len(self.runs) == MAX_RUNS:
            whole = merged(self.runs)
            for run in self.runs:
                run.close()
            self.runs = [whole]


def written(write: Callable[[IO[bytes]], None], buffering: int = -1) -> IO[bytes]:
    """A new file, filled by `write`, to be read from its start. Spark names directories for such files."""
    directories = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    run = tempfile.TemporaryFile(buffering=buffering, dir=directories[0] or None)  # noqa: SIM115 - `RunFiles` closes it
    try:
        write(run)
        run.flush()
        run.seek(0)
    except BaseException:
        run.close()
        raise
    return run

"""Sorts the records of a task within a bounded memory: rows in any order give the same records in one order.

Records are gathered into runs of `RUN_BYTES`. A run is sorted, and written to a file that has no name, so it is gone
with the process. At the end the runs are merged. A task whose records fit into one run writes no file.
"""

import heapq
import os
import struct
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Final, Self

RUN_BYTES: Final = 64 * 1024 * 1024
MAX_RUNS: Final = 64
"""Files that are open at once; so many runs are merged into one."""
READ_BYTES: Final = 256 * 1024
_FRAME: Final = struct.Struct("<HI")

Record = tuple[str, bytes]
"""Topic and encoded record."""


class SortedRecords:
    """Takes records in any order, and gives them sorted by topic and content. Use it in a `with` statement."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        self._run_bytes = run_bytes
        self._gathered: list[Record] = []
        self._bytes = 0
        self._runs: list[IO[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.close()

    def extend(self, records: Iterable[Record]) -> None:
        for record in records:
            self._gathered.append(record)
            self._bytes += len(record[1])
            if self._bytes >= self._run_bytes:
                self._spill()

    def __iter__(self) -> Iterator[Record]:
        """All records in order. Call it once, at the end."""
        self._gathered.sort()
        return heapq.merge(*map(_read, self._runs), self._gathered) if self._runs else iter(self._gathered)

    def _spill(self) -> None:
        self._gathered.sort()
        if len(self._runs) == MAX_RUNS:
            merged = _written(heapq.merge(*map(_read, self._runs)))
            for run in self._runs:
                run.close()
            self._runs = [merged]
        self._runs.append(_written(self._gathered))
        self._gathered, self._bytes = [], 0


def _written(records: Iterable[Record]) -> IO[bytes]:
    """A file with records, to be read from its start. Spark names directories for such files."""
    directories = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
    run = tempfile.TemporaryFile(buffering=READ_BYTES, dir=directories[0] or None)  # noqa: SIM115 - the caller closes it
    try:
        for topic, record in records:
            name = topic.encode()
            run.write(_FRAME.pack(len(name), len(record)))
            run.write(name)
            run.write(record)
        run.seek(0)
    except BaseException:
        run.close()
        raise
    return run


def _read(run: IO[bytes]) -> Iterator[Record]:
    names: dict[bytes, str] = {}
    while head := run.read(_FRAME.size):
        name_size, size = _FRAME.unpack(head)
        name = run.read(name_size)
        yield names.setdefault(name, name.decode()), run.read(size)

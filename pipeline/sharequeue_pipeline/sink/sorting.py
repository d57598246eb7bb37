"""Sorts the records of a task within a bounded memory: rows in any order give the same records in one order.

Records are gathered into runs of `RUN_BYTES`. A run is sorted, and written to a file that has no name, so it is gone
with the process. At the end the runs are merged. A task whose records fit into one run writes no file.
"""

import heapq
import struct
from collections.abc import Iterable, Iterator
from typing import IO, Final

from sharequeue_pipeline.sink.run_files import RunFiles, written

RUN_BYTES: Final = 64 * 1024 * 1024
READ_BYTES: Final = 256 * 1024
_FRAME: Final = struct.Struct("<HI")

Record = tuple[str, bytes]
"""Topic and encoded record."""


class SortedRecords(RunFiles):
    """Takes records in any order, and gives them sorted by topic and content. Use it in a `with` statement."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        super().__init__()
        self._run_bytes = run_bytes
        self._gathered: list[Record] = []
        self._bytes = 0

    def extend(self, records: Iterable[Record]) -> None:
        for record in records:
            self._gathered.append(record)
            self._bytes += len(record[1])
            if self._bytes >= self._run_bytes:
                self._spill()

    def __iter__(self) -> Iterator[Record]:
        """All records in order. Call it once, at the end."""
        self._gathered.sort()
        return heapq.merge(*map(_read, self.runs), self._gathered) if self.runs else iter(self._gathered)

    def _spill(self) -> None:
        self._gathered.sort()
        self.merge_if_full(lambda runs: _written(heapq.merge(*map(_read, runs))))
        self.runs.append(_written(self._gathered))
        self._gathered, self._bytes = [], 0


def _written(records: Iterable[Record]) -> IO[bytes]:
    """A file with records."""

    def write(run: IO[bytes]) -> None:
        for topic, record in records:
            name = topic.encode()
            run.write(_FRAME.pack(len(name), len(record)))
            run.write(name)
            run.write(record)

    return written(write, READ_BYTES)


def _read(run: IO[bytes]) -> Iterator[Record]:
    names: dict[bytes, str] = {}
    while head := run.read(_FRAME.size):
        name_size, size = _FRAME.unpack(head)
        name = run.read(name_size)
        yield names.setdefault(name, name.decode()), run.read(size)

"""Rows of texts or bytes as the columns of produceArrow: sorted, and cut into requests, without an object for each row.

A task gathers runs of `RUN_BYTES`, and sorts each as columns. Further runs are written to files that have no name. At
the end they are merged piece by piece: all rows up to the smallest last row of the pieces in memory are sorted, and are
the next ones. Rows in any order give the same requests, byte for byte.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.sink.run_files import RunFiles, written

RUN_BYTES: Final = 56 * 1024 * 1024
PIECE_BYTES: Final = 512 * 1024
"""Of a run, in memory at once."""
SLICE_BYTES: Final = 16 * 1024 * 1024
"""Of rows that are cut into requests at once: small rows have sizes that take more than the rows."""
ROW_BYTES: Final = 28
"""The most bytes of a row beside its key and its value: offsets, numbers and flags."""
STREAM_BYTES: Final = 2048
"""The most bytes of a request beside its rows."""
OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""How a request is written. Its bytes travel and are hashed on both sides, which costs more than LZ4."""
_COLUMNS: Final = frozenset(("key", "value", "partition", "timestamp"))


def fits(options: SinkOptions, schema: spark.StructType) -> bool:
    """Whether rows of a schema are written as columns. Other rows become JSON one by one (`rows`)."""
    value = schema["value"].dataType
    if not set(schema.names) <= _COLUMNS or options.topic is None:
        return False
    if isinstance(value, spark.StringType):
        return options.value_format in (None, "string", "binary")
    return isinstance(value, spark.BinaryType) and options.value_format in (None, "binary")


def without_rows() -> bytes:
    """A request without rows. A gateway that takes compressed streams refuses it with 422, another one otherwise."""
    batch = pa.record_batch({"value": pa.array([], pa.string())})
    return _stream(batch.schema, batch)


def columns_of(batch: Any, options: SinkOptions) -> Any:
    """A record batch of Spark with the columns of produceArrow."""
    found: dict[str, Any] = {}
    for name in batch.schema.names:
        column = batch.column(name)
        if name == "timestamp":
            micros = column.cast(pa.int64())
            before_1970 = pc.if_else(pc.less(micros, 0), 999, 0)  # Arrow divides towards zero
            found["timestamp_ms"] = pc.divide(pc.subtract(micros, before_1970), 1000)
        elif name == "partition":
            found[name] = column.cast(pa.int64())
        else:
            as_bytes = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
            as_bytes = as_bytes or (name == "value" and options.value_format == "binary")
            found[name] = column.cast(pa.binary() if as_bytes else pa.string())
    return pa.record_batch(found)


def requests(batches: Iterable[Any], options: SinkOptions, run_bytes: int = RUN_BYTES) -> Iterator[tuple[bytes, int]]:
    """The bodies of produceArrow for a task's batches, and how many rows each has."""
    columns = (columns_of(batch, options) for batch in batches if batch.num_rows)
    if options.transactional or not options.sort:
        yield from _bodies(map(Selection, columns), options)
        return
    with SortedColumns(run_bytes) as in_order:
        for batch in columns:
            in_order.add(batch)
        yield from _bodies(in_order.rows(), options)


class Selection(NamedTuple):
    """Rows of a batch. `order`: the places of those rows, in their order; None: all as they are."""

    batch: Any
    order: Any = None

    @property
    def size(self) -> int:
        size: int = self.batch.num_rows if self.order is None else len(self.order)
        return size

    def slice(self, first: int, count: int) -> "Selection":
        if self.order is None:
            return Selection(self.batch.slice(first, count))
        return self._replace(order=self.order.slice(first, count))

    def taken(self) -> Any:
        """The rows as a batch."""
        return self.batch if self.order is None else self.batch.take(self.order)

    def ends(self) -> Any:
        """For each row: the bytes of all rows up to it."""
        sizes = pc.add(self._lengths("value"), ROW_BYTES)
        if "key" in self.batch.schema.names:
            sizes = pc.add(sizes, self._lengths("key"))
        return pc.cumulative_sum(sizes).to_numpy()

    def _lengths(self, name: str) -> Any:
        lengths = pc.binary_length(self.batch.column(name))
        if self.order is not None:
            lengths = lengths.take(self.order)
        return pc.fill_null(lengths, 0).cast(pa.int64())


class SortedColumns(RunFiles):
    """Takes batches of rows in any order, and gives the rows in order. Use it in a `with` statement."""

    def __init__(self, run_bytes: int) -> None:
        super().__init__()
        self._run_bytes = run_bytes
        self._gathered: list[Any] = []
        self._bytes = 0

    def add(self, batch: Any) -> None:
        self._gathered.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= self._run_bytes:
            self._spill()

    def rows(self) -> Iterator[Selection]:
        """All rows in order. Call it once, at the end."""
        last, self._gathered = self._gathered, []
        if not self.runs:
            return _slices(_in_order(last), SLICE_BYTES) if last else iter(())
        runs = [_read(run) for run in self.runs]
        return map(Selection, _merged([*runs, *([_sorted(last)] if last else [])]))

    def _spill(self) -> None:
        gathered, self._gathered, self._bytes = self._gathered, [], 0
        self.merge_if_full(lambda runs: _written(_merged([_read(run) for run in runs])))
        self.runs.append(_written(_sorted(gathered)))


def _one(batches: list[Any]) -> Any:
    return batches[0] if len(batches) == 1 else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _in_order(batches: list[Any]) -> Selection:
    """The rows of batches in order. The list is emptied: memory has the rows once."""
    whole = _one(batches)
    batches.clear()
    return Selection(whole, pc.sort_indices(whole, sort_keys=[(name, "ascending") for name in whole.schema.names]))


def _slices(rows: Selection, size: int) -> Iterator[Selection]:
    """Rows in slices of about `size` bytes."""
    count = max(1, rows.size * size // max(1, rows.batch.nbytes))
    return (rows.slice(first, count) for first in range(0, rows.size, count))


def _sorted(batches: list[Any]) -> Iterator[Any]:
    """Batches of `PIECE_BYTES` with the rows of batches in order. The list is emptied."""
    return (rows.taken() for rows in _slices(_in_order(batches), PIECE_BYTES))


def _merged(runs: list[Iterator[Any]]) -> Iterator[Any]:
    """The rows of sorted runs in order."""
    heads = [(piece, run) for run in runs if (piece := next(run, None)) is not None]
    while len(heads) > 1:
        bound = min(_row(piece, piece.num_rows - 1) for piece, _ in heads)
        parts: list[Any] = []
        following: list[tuple[Any, Iterator[Any]]] = []
        for piece, run in heads:
            count = bisect_right(range(piece.num_rows), bound, key=partial(_row, piece))
            if count:
                parts.append(piece.slice(0, count))
            rest = piece.slice(count) if count < piece.num_rows else next(run, None)
            if rest is not None:
                following.append((rest, run))
        heads = following
        yield from _sorted(parts)
    for piece, run in heads:
        yield piece
        yield from run


def _row(batch: Any, index: int) -> tuple[Any, ...]:
    """A row as Arrow orders it: nulls last."""
    values = (column[index].as_py() for column in batch.columns)
    return tuple((value is None, value) for value in values)


def _written(batches: Iterator[Any]) -> IO[bytes]:
    """A file with batches."""

    def write(run: IO[bytes]) -> None:
        first = next(batches)
        with pa.ipc.new_stream(pa.PythonFile(run, "w"), first.schema) as writer:
            for batch in itertools.chain((first,), batches):
                writer.write_batch(batch)

    return written(write)


def _read(run: IO[bytes]) -> Iterator[Any]:
    return iter(pa.ipc.open_stream(pa.PythonFile(run, "r")))


def _bodies(found: Iterable[Selection], options: SinkOptions) -> Iterator[tuple[bytes, int]]:
    """Cut rows into requests. Where one ends depends on its rows alone, and not on the batches that they come in."""
    room, most_rows = max(1, options.max_request_bytes - STREAM_BYTES), options.max_request_records
    parts: list[Selection] = []
    used = count = 0
    for rows in found:
        ends, start, before = rows.ends(), 0, 0
        while start < rows.size:
            end = min(bisect_right(ends, before + room - used, start), start + most_rows - count)
            if end == start and not count:
                end += 1  # a row that is larger than a request goes alone
            if end > start:
                parts.append(rows.slice(start, end - start))
                used, count, start, before = used + ends[end - 1] - before, count + end - start, end, ends[end - 1]
            if start < rows.size:
                yield _body(parts), count
                parts, used, count = [], 0, 0
    if parts:
        yield _body(parts), count


def _body(parts: list[Selection]) -> bytes:
    """One Arrow stream of one batch. The rows are copied, so that no byte depends on what was beside them."""
    whole = _one([rows.taken() for rows in parts])
    copied = len(parts) > 1 or parts[0].order is not None
    if not copied or any(column.null_count for column in whole.columns):  # a null may hide bytes
        whole = whole.take(pa.array(range(whole.num_rows), pa.int32()))
    return _stream(whole.schema, whole)


def _stream(schema: Any, *batches: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=OPTIONS) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream

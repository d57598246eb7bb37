"""Rows of texts or bytes as the columns of produceArrow, cut into requests without an object for each row."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from sharequeue_pipeline.options import SinkOptions
from sharequeue_pipeline.sink.digests import digest_of

ROW_BYTES: Final = 28
"""The most bytes of a row beside its key and its value: offsets, numbers and flags."""
STREAM_BYTES: Final = 2048
"""The most bytes of a request beside its rows."""
PLAIN: Final = pa.ipc.IpcWriteOptions(use_threads=False)
COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
"""How a request is written whose bytes become fewer: they travel and the gateway hashes them, which costs more than
LZ4. Where they do not, both sides would only copy them."""
SAMPLE_BYTES: Final = 64 * 1024
MOST_OF_SIZE: Final = 0.9
_LZ4: Final = pa.Codec("lz4")
_COLUMNS: Final = frozenset(("key", "value", "partition", "timestamp"))


def fits(options: SinkOptions, schema: spark.StructType) -> bool:
    """Return whether rows of a schema are written as columns. Other rows become JSON one by one (`rows`)."""
    value = schema["value"].dataType
    if not set(schema.names) <= _COLUMNS or options.topic is None:
        return False
    if isinstance(value, spark.StringType):
        return options.value_format in (None, "string", "binary")
    return isinstance(value, spark.BinaryType) and options.value_format in (None, "binary")


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


class ArrowChunk(NamedTuple):
    """The rows of one request, in parts of Spark's batches with the columns of produceArrow, and its body."""

    topic: str
    parts: list[Any]
    body: bytes

    @property
    def arrow(self) -> bool:
        return True

    @property
    def size(self) -> int:
        """The number of rows."""
        return sum(part.num_rows for part in self.parts)

    def digests(self) -> Iterator[bytes]:
        """The digest of each record, as `digest_of` makes it."""
        for part in self.parts:
            nothing = [None] * part.num_rows
            keys, values, partitions, times = (
                part.column(name).to_pylist() if name in part.schema.names else nothing
                for name in ("key", "value", "partition", "timestamp_ms")
            )
            for key, value, partition, time_ms in zip(keys, values, partitions, times, strict=True):
                yield digest_of(key, value, {}, partition, time_ms)

    def only(self, places: Sequence[int]) -> "ArrowChunk":
        """The request of some of the rows."""
        return _chunk(self.topic, [pa.concat_batches(self.parts).take(pa.array(places, pa.int32()))])

    def largest(self) -> tuple[int, str | bytes]:
        """The bytes of the largest row, and its key, or its value."""
        rows = pa.concat_batches(self.parts)
        ends = [0, *_ends(rows)]
        size, at = max((ends[row + 1] - ends[row], row) for row in range(rows.num_rows))
        names = [name for name in ("key", "value") if name in rows.schema.names]
        return int(size), next(filter(None, (rows.column(name)[at].as_py() for name in names)), "")


def chunks(batches: Iterable[Any], options: SinkOptions) -> Iterator[ArrowChunk]:
    """Cut a task's rows into requests. Where one ends depends on its rows alone, and not on Spark's batches."""
    room, most_rows = max(1, options.max_request_bytes - STREAM_BYTES), options.max_request_records
    topic = options.topic or ""
    parts: list[Any] = []
    used = count = 0
    for batch in batches:
        rows = columns_of(batch, options)
        ends, start, before = _ends(rows), 0, 0
        while start < rows.num_rows:
            end = min(bisect_right(ends, before + room - used, start), start + most_rows - count)
            if end == start and not count:
                end += 1  # a row that is larger than a request goes alone
            if end > start:
                parts.append(rows.slice(start, end - start))
                used, count, start, before = used + ends[end - 1] - before, count + end - start, end, ends[end - 1]
            if start < rows.num_rows:
                yield _chunk(topic, parts)
                parts, used, count = [], 0, 0
    if parts:
        yield _chunk(topic, parts)


def _ends(rows: Any) -> Any:
    """For each row: the bytes of all rows up to it."""
    sizes = pc.add(_lengths(rows.column("value")), ROW_BYTES)
    if "key" in rows.schema.names:
        sizes = pc.add(sizes, _lengths(rows.column("key")))
    return pc.cumulative_sum(sizes).to_numpy()


def _lengths(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _chunk(topic: str, parts: list[Any]) -> ArrowChunk:
    """One request. Its body has a copy of the rows, so that no byte depends on what was beside them."""
    rows = pa.concat_batches(parts)
    if any(column.null_count for column in rows.columns):  # a null may hide bytes
        rows = rows.take(pa.array(range(rows.num_rows), pa.int32()))
    return ArrowChunk(topic, parts, _stream(rows))


def _stream(rows: Any) -> bytes:
    """An Arrow stream of one record batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=COMPRESSED if _shrinks(rows) else PLAIN) as writer:
        writer.write_batch(rows)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _shrinks(rows: Any) -> bool:
    """Return whether LZ4 makes less of the first values."""
    values = rows.column("value").buffers()[2]
    sample = b"" if values is None else values[:SAMPLE_BYTES]
    return len(sample) == 0 or _LZ4.compress(sample).size <= MOST_OF_SIZE * len(sample)

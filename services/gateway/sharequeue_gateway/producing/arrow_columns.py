"""The records of a produce request as an Arrow stream: reads its columns, and refuses what is not one. Pure.

Columns: `value` (string or binary), and optionally `key` (string or binary), `value_is_json` (bool), `headers` (map of
string to string), `partition` and `timestamp_ms` (integers). The bytes come from anyone. So each message of the stream
is looked at before Arrow makes arrays of it: none may be a dictionary, and the size of compressed buffers after
decompression is counted before memory is taken for it. Arrow then checks every offset and every text of the arrays.
"""

import struct
from typing import Any, Final, NamedTuple

from sharequeue.protocol.types import MAX_INT32, MAX_INT64, MAX_RECORDS
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_http.forms import mistakes
from sharequeue_http.forms.errors import InvalidRequest

MOST_BATCHES: Final = 1000
"""Record batches of one stream. Each costs some time, however few rows it has."""
MOST_SCHEMA_BYTES: Final = 256 * 1024
END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""The last bytes of a whole stream."""
KINDS: Final = {
    "key": "string or binary",
    "value": "string or binary",
    "value_is_json": "bool",
    "headers": "map of string to string",
    "partition": "an integer",
    "timestamp_ms": "an integer (milliseconds)",
}
"""The columns, and their types as a refusal names them."""
MOST_BUFFERS: Final = 64
"""Of a record batch: all columns of a record have 21."""
_MESSAGE_VERSION, _MESSAGE_HEADER, _BATCH_BUFFERS, _BATCH_COMPRESSION, _COMPRESSION_CODEC = 0, 2, 2, 3, 0
"""Numbers of fields in the tables Message, RecordBatch and BodyCompression of Arrow's Message.fbs."""
_V5: Final = 4
"""The version of messages since Arrow 1.0. Earlier ones may say in their metadata that they are compressed."""
_LZ4_FRAME: Final = 0
_NOT_COMPRESSED: Final = -1
"""In place of a size, before the bytes of a buffer."""


class ArrowStream(NamedTuple):
    """A stream whose messages may be read. `grown_bytes`: its compressed buffers after decompression."""

    body: bytes
    grown_bytes: int


class Columns(NamedTuple):
    """Arrow arrays of one length; None: the column is missing. Texts have the type binary, and are UTF-8."""

    value: Any
    value_is_text: bool
    key: Any
    key_is_text: bool
    value_is_json: Any
    headers: Any
    partition: Any
    timestamp_ms: Any


def look_at(body: bytes) -> ArrowStream:
    """Check what a stream has, before its record batches are read.

    Raises: InvalidRequest: 400: it is not an Arrow stream; 422: a column is refused, or there are too many batches.
    """
    import pyarrow as pa  # noqa: PLC0415 - heavy: loaded with the first request in Arrow

    try:
        return ArrowStream(body, _looked_at(pa, body))
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError, struct.error) as fault:
        raise _unreadable(str(fault).partition("\n")[0]) from None


def read_columns(stream: ArrowStream) -> Columns:
    """The columns of a stream. They are views of its body, if that is not compressed.

    Raises: InvalidRequest: 400: it is damaged; 422: a column or the number of its rows is refused.
    """
    import pyarrow as pa  # noqa: PLC0415 - as above

    try:
        table = _table(pa, stream.body)
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as fault:
        raise _unreadable(str(fault).partition("\n")[0]) from None
    if not table.num_rows:
        raise unfit("/records", "an Arrow stream of records has 1 to 10,000 rows, and this one has none")
    found = {name: table.column(name).combine_chunks() for name in table.schema.names}
    found = {name: each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for name, each in found.items()}
    flags = found.get("value_is_json")
    if flags is not None and flags.null_count:
        raise unfit("/records", "the column value_is_json has a null: each of its rows is true or false")
    value, value_is_text = _bytes(pa, found["value"])
    key, key_is_text = _bytes(pa, found["key"]) if "key" in found else (None, True)
    numbers = {name: _number(pa, found.get(name), name, most) for name, most in _NUMBERS.items()}
    return Columns(value, value_is_text, key, key_is_text, flags, found.get("headers"), **numbers)


_NUMBERS: Final = {"partition": MAX_INT32, "timestamp_ms": MAX_INT64}
"""The columns of numbers, from 0, and the largest value of each."""


def _looked_at(pa: Any, body: bytes) -> int:
    """Walk the messages of a stream. Returns: `grown_bytes`."""
    source = pa.BufferReader(body)
    messages = pa.ipc.MessageReader.open_stream(source)
    try:
        head = messages.read_next_message()
    except StopIteration:
        raise _unreadable("it is empty") from None
    if head.type != "schema" or head.metadata.size > MOST_SCHEMA_BYTES:
        raise _unreadable(f"it does not begin with a schema of at most {MOST_SCHEMA_BYTES} bytes")
    _check_schema(pa, pa.ipc.read_schema(head))
    batches = grown_bytes = 0
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            break
        if message.type != "record batch":
            raise _unreadable(f"it has a {message.type}, and may have record batches alone behind its schema")
        batches += 1
        if batches > MOST_BATCHES:
            raise mistakes.too_many("/records", "record batches", MOST_BATCHES)
        grown_bytes += _grown_bytes(message.metadata.to_pybytes(), message.body)
    if source.tell() != len(body) or not body.endswith(END):
        raise _unreadable("it has no end, or bytes behind its end")
    return grown_bytes


def _table(pa: Any, body: bytes) -> Any:
    batches: list[Any] = []
    rows = 0
    pool = pa.system_memory_pool()  # Arrow's own keeps what is freed
    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.ipc.open_stream(pa.BufferReader(body), options=options, memory_pool=pool) as reader:
        for batch in reader:
            rows += batch.num_rows
            if rows > MAX_RECORDS:
                raise mistakes.too_many("/records", "entries", MAX_RECORDS)
            batch.validate(full=True)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)


def _check_schema(pa: Any, schema: Any) -> None:
    """Raises: InvalidRequest (422): a column is missing, unknown, there twice, or of another type."""
    names = schema.names
    if len(set(names)) < len(names) or "value" not in names:
        raise unfit("/records", "the columns of an Arrow stream have different names, and one is value")
    for field in schema:
        kind = field.type
        if field.name not in KINDS:
            shown = ascii(field.name[:60])
            raise unfit("/records", f"the column {shown} is unknown: a record has {', '.join(KINDS)}")
        if field.name in _NUMBERS:
            fits = pa.types.is_integer(kind)
        elif field.name == "value_is_json":
            fits = pa.types.is_boolean(kind)
        elif field.name == "headers":
            fits = pa.types.is_map(kind) and pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type)
        else:
            fits = kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
        if not fits:
            raise unfit("/records", f"the column {field.name} must be {KINDS[field.name]}, not {str(kind)[:60]}")


def _bytes(pa: Any, column: Any) -> tuple[Any, bool]:
    """A column of texts or bytes as binary, and whether it has texts."""
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.binary()), is_text


def _number(pa: Any, column: Any, name: str, most: int) -> Any:
    """Raises: InvalidRequest (422): a number is out of bounds."""
    if column is None:
        return None
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    bounds = pc.min_max(column).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= most:
        wrong = bounds["min"] if bounds["min"] < 0 else bounds["max"]
        raise unfit("/records", f"the column {name} has {wrong}: it must be a whole number from 0 to {most}")
    return column.cast(pa.int64())


def _grown_bytes(metadata: bytes, body: Any) -> int:
    """The bytes of a record batch's buffers after decompression; 0 if they are not compressed.

    Raises: InvalidRequest (400): they are compressed with another codec than LZ4, or the batch is of Arrow before 1.0;
        struct.error: it is damaged.
    """
    (root,) = struct.unpack_from("<I", metadata)
    version = _field(metadata, root, _MESSAGE_VERSION)
    if not version or struct.unpack_from("<h", metadata, version) != (_V5,):
        raise _unreadable("its record batches have a format before Arrow 1.0; write them in metadata version V5")
    header = _child(metadata, root, _MESSAGE_HEADER)
    compression = header and _child(metadata, header, _BATCH_COMPRESSION)
    if not compression:
        return 0
    codec = _field(metadata, compression, _COMPRESSION_CODEC)
    if codec and metadata[codec] != _LZ4_FRAME:
        raise _unreadable("its buffers are compressed with another codec than LZ4: use LZ4, or no compression")
    buffers = _child(metadata, header, _BATCH_BUFFERS)
    count = struct.unpack_from("<I", metadata, buffers)[0] if buffers else 0
    if count > MOST_BUFFERS:
        raise _unreadable(
            f"a record batch has {count} buffers; the limit is {MOST_BUFFERS}, and all columns of a record need 21"
        )
    grown_bytes = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * number)
        if length:
            (size,) = struct.unpack_from("<q", body, offset)
            if size < _NOT_COMPRESSED:
                raise _unreadable(f"a buffer says that it becomes {size} bytes")
            grown_bytes += max(size, 0)
    return grown_bytes


def _child(buffer: bytes, table: int, number: int) -> int:
    """The position of the table or vector to which a field of a table in a flatbuffer points; 0: there is none."""
    field = _field(buffer, table, number)
    return field and field + int(struct.unpack_from("<I", buffer, field)[0])


def _field(buffer: bytes, table: int, number: int) -> int:
    """The position of a field of a table in a flatbuffer; 0: the table does not have it."""
    (back,) = struct.unpack_from("<i", buffer, table)
    fields = table - back
    (size,) = struct.unpack_from("<H", buffer, fields)
    place = 4 + 2 * number
    if place >= size:
        return 0
    (offset,) = struct.unpack_from("<H", buffer, fields + place)
    return table + offset if offset else 0


def _unreadable(why: str) -> InvalidRequest:
    return InvalidRequest(f"the body is not an Arrow stream of records: {why}", status=400)

"""The records of a produce request as an Arrow stream: reads its columns, and refuses what is not one. Pure.

Columns: `value` (string or binary), and optionally `key` (string or binary), `value_is_json` (bool), `headers` (map of
string to string), `partition` and `timestamp_ms` (integers). The bytes come from anyone. So each message of the stream
is looked at before Arrow makes arrays of it: nothing in it may be compressed or a dictionary, and the rows are counted.
Arrow then checks every offset and every text of the arrays.
"""

import importlib.util
import struct
from typing import Any, Final, NamedTuple

from sharequeue.protocol import mistakes
from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.protocol.errors import InvalidRequest
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, MAX_RECORDS
from sharequeue_gateway.producing.record_tails import unfit

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
_MESSAGE_HEADER, _BATCH_COMPRESSION = 2, 3
"""Numbers of fields in the tables Message and RecordBatch of Arrow's Message.fbs."""


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


def check_available() -> None:
    """Raises: InvalidRequest (415): this gateway runs without the package pyarrow."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InvalidRequest(
            f"this gateway cannot read {ARROW_STREAM}: it runs without pyarrow (install sharequeue[arrow]); send JSON",
            status=415,
        )


def read_columns(body: bytes) -> Columns:
    """The columns of a stream. They are views of `body`.

    Raises: InvalidRequest: 400: it is not an Arrow stream; 422: a column or the number of its rows is refused.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional and heavy: loaded with the first request in Arrow

    try:
        table = _table(pa, body)
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError, struct.error) as fault:
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


def _table(pa: Any, body: bytes) -> Any:
    source = pa.BufferReader(body)
    messages = pa.ipc.MessageReader.open_stream(source)
    try:
        head = messages.read_next_message()
    except StopIteration:
        raise _unreadable("it is empty") from None
    if head.type != "schema" or head.metadata.size > MOST_SCHEMA_BYTES:
        raise _unreadable(f"it does not begin with a schema of at most {MOST_SCHEMA_BYTES} bytes")
    schema = pa.ipc.read_schema(head)
    _check_schema(pa, schema)
    batches: list[Any] = []
    rows = 0
    while True:
        try:
            message = messages.read_next_message()
        except StopIteration:
            break
        if message.type != "record batch":
            raise _unreadable(f"it has a {message.type}, and may have record batches alone behind its schema")
        if _compressed(message.metadata.to_pybytes()):
            raise _unreadable("its buffers are compressed; send them as they are")
        if len(batches) == MOST_BATCHES:
            raise mistakes.too_many("/records", "record batches", MOST_BATCHES)
        batch = pa.ipc.read_record_batch(message, schema)
        rows += batch.num_rows
        if rows > MAX_RECORDS:
            raise mistakes.too_many("/records", "entries", MAX_RECORDS)
        batch.validate(full=True)
        batches.append(batch)
    if source.tell() != len(body) or not body.endswith(END):
        raise _unreadable("it has no end, or bytes behind its end")
    return pa.Table.from_batches(batches, schema)


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


def _compressed(metadata: bytes) -> bool:
    """Whether a record batch says that its buffers are compressed: they may become a thousand times as large."""
    (root,) = struct.unpack_from("<I", metadata)
    header = _field(metadata, root, _MESSAGE_HEADER)
    if not header:
        return False
    (offset,) = struct.unpack_from("<I", metadata, header)
    return bool(_field(metadata, header + offset, _BATCH_COMPRESSION))


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

"""The answer of readRecords as an Arrow stream, for readers of many records: columns need no parsing per record.

Columns: `offset` int64, `timestamp_ms` int64, `key` binary, `value` binary, `value_is_json` bool, `headers` map of
string to string. A key is its bytes. A value is its JSON as produced if `value_is_json`, otherwise its bytes; a
tombstone is null. The metadata of the schema has `next_offset`, `log_start_offset` and `log_end_offset` as text.
"""

import base64
import importlib.util
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from sharequeue.protocol import nesting
from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.protocol.errors import InvalidRequest
from sharequeue.protocol.messages.records import ConsumerRecord
from sharequeue_gateway.http.answers import media_types

CONTENT_TYPE: Final = (b"content-type", ARROW_STREAM.encode())
_records: Final = msgspec.json.Decoder(list[ConsumerRecord])


def arrow_wanted(accept: str | None) -> bool:
    """Whether the header Accept asks for Arrow: it names the type, and prefers it to JSON if it names that too.

    Generated clients name every type that they know with the same weight, and can read JSON alone.

    Raises: InvalidRequest (406): only Arrow is accepted, and this gateway runs without the package pyarrow.
    """
    weights = media_types.qualities(accept or "")
    arrow = weights.get(ARROW_STREAM, 0.0)
    json = max(weights.get(kind, 0.0) for kind in ("application/json", "application/*", "*/*"))
    if arrow == 0 or weights.get("application/json", 0.0) >= arrow:
        return False
    if importlib.util.find_spec("pyarrow") is not None:
        return True
    if json > 0:
        return False
    raise InvalidRequest(
        f"this gateway cannot answer {ARROW_STREAM}: it runs without pyarrow (install sharequeue[arrow])", status=406
    )


def arrow_stream(records: bytes, next_offset: int, log_start_offset: int, log_end_offset: int) -> bytes:
    """The answer's body. `records`: a JSON array of records as readRecords answers them."""
    import pyarrow as pa  # noqa: PLC0415 - optional and heavy: loaded with the first answer in Arrow

    decoded = nesting.decode(_records, records)
    schema = pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp_ms", pa.int64(), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("value_is_json", pa.bool_(), nullable=False),
            pa.field("headers", pa.map_(pa.string(), pa.string()), nullable=False),
        ],
        metadata={
            "next_offset": str(next_offset),
            "log_start_offset": str(log_start_offset),
            "log_end_offset": str(log_end_offset),
        },
    )
    columns = [
        pa.array([record.offset for record in decoded], pa.int64()),
        pa.array([record.timestamp_ms for record in decoded], pa.int64()),
        pa.array([_key(record) for record in decoded], pa.binary()),
        pa.array([_value(record) for record in decoded], pa.binary()),
        pa.array([record.value_base64 is None for record in decoded], pa.bool_()),
        _headers(pa, decoded),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    body: bytes = sink.getvalue().to_pybytes()
    return body


def _key(record: ConsumerRecord) -> bytes | None:
    if record.key_base64 is not None:
        return base64.b64decode(record.key_base64)
    return None if record.key is None else record.key.encode()


def _value(record: ConsumerRecord) -> bytes | None:
    if record.value_base64 is not None:
        return base64.b64decode(record.value_base64)
    value = b"null" if isinstance(record.value, msgspec.UnsetType) else bytes(record.value)
    return None if value == b"null" else value


def _headers(pa: Any, records: Sequence[ConsumerRecord]) -> Any:
    """A map array; most records have no headers, so these cost one flat pass."""
    ends = [0]
    names: list[str] = []
    values: list[str] = []
    for record in records:
        if record.headers:
            names += record.headers
            values += record.headers.values()
        ends.append(len(names))
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
    )

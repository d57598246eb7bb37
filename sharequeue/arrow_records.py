"""Records as Arrow columns. A gateway answers readRecords with them, and the pipeline makes them of other answers.

Columns: `offset` int64, `timestamp_ms` int64, `key` binary, `value` binary, `value_is_json` bool, `headers` map of
string to string. A key is its bytes. A value is its JSON as produced if `value_is_json`, otherwise its bytes; a
tombstone is null.

pyarrow is heavy, so callers import this module with their first use of it.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa

from sharequeue.protocol.messages.records import ConsumerRecord

SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("value_is_json", pa.bool_(), nullable=False),
        pa.field("headers", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)
_records: Final = msgspec.json.Decoder(list[ConsumerRecord])


def columns_of(records: bytes) -> list[Any]:
    """The columns of records. `records`: a JSON array of them as readRecords answers them."""
    decoded = _records.decode(records)
    return [
        pa.array([record.offset for record in decoded], pa.int64()),
        pa.array([record.timestamp_ms for record in decoded], pa.int64()),
        pa.array([_key(record) for record in decoded], pa.binary()),
        pa.array([_value(record) for record in decoded], pa.binary()),
        pa.array([record.value_base64 is None for record in decoded], pa.bool_()),
        _headers(decoded),
    ]


def _key(record: ConsumerRecord) -> bytes | None:
    if record.key_base64 is not None:
        return base64.b64decode(record.key_base64)
    return None if record.key is None else record.key.encode()


def _value(record: ConsumerRecord) -> bytes | None:
    if record.value_base64 is not None:
        return base64.b64decode(record.value_base64)
    value = b"null" if isinstance(record.value, msgspec.UnsetType) else bytes(record.value)
    return None if value == b"null" else value


def _headers(records: Sequence[ConsumerRecord]) -> Any:
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

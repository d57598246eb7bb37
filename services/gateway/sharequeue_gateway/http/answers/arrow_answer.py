"""The answer of readRecords as an Arrow stream, for readers of many records: columns need no parsing per record.

`sharequeue.arrow_records` has the columns. The metadata of the schema has `next_offset`, `log_start_offset` and
`log_end_offset` as text.
"""

from importlib.util import find_spec
from typing import Final

from sharequeue.protocol.apis import ARROW_STREAM
from sharequeue.protocol.record_runs import Bounds

CONTENT_TYPE: Final = (b"content-type", ARROW_STREAM.encode())
AVAILABLE: Final = find_spec("pyarrow") is not None
"""Whether this gateway was installed with the extra [arrow]."""


def arrow_stream(records: bytes, bounds: Bounds) -> bytes:
    """The answer's body. `records`: a JSON array of records as readRecords answers them."""
    import pyarrow as pa  # noqa: PLC0415 - heavy: loaded with the first answer in Arrow

    from sharequeue.arrow_records import SCHEMA, columns_of  # noqa: PLC0415

    schema = SCHEMA.with_metadata({name: str(offset) for name, offset in bounds._asdict().items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns_of(records), schema=schema))
    body: bytes = sink.getvalue().to_pybytes()
    return body

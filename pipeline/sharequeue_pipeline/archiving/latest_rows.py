"""The work of tasks for a table of the latest records: the last record of each key in a range of the log."""

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sharequeue_pipeline.archiving.table_files import TOMBSTONE, TableTask
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.record_columns import RecordColumns


class LatestRows(NamedTuple):
    """`rows`: an Arrow stream of the table's columns and `TOMBSTONE`;
    `malformed`: values that did not fit the schema."""

    entry: Range
    records: int
    rows: bytes
    malformed: int


def latest_rows(task: TableTask) -> LatestRows:
    """Read a range, and keep the last record of each key, and all records without a key."""
    columns = RecordColumns(task.options, task.schema)
    schema = columns.arrow_schema.append(pa.field(TOMBSTONE, pa.bool_()))
    kept = schema.empty_table()
    records = 0
    with GatewayClient(task.options.gateway) as gateway:
        for batch in gateway.read(task.entry, "read_committed"):
            made = pa.Table.from_batches([columns.batch(task.entry, batch)])
            records += made.num_rows
            # a malformed value is null in a typed column, and no tombstone
            tombstones = pc.is_null(batch.column("value"))
            kept = _latest(pa.concat_tables([kept, made.append_column(TOMBSTONE, tombstones)]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(kept)
    return LatestRows(task.entry, records, sink.getvalue().to_pybytes(), columns.malformed)


def _latest(rows: pa.Table) -> pa.Table:
    last = rows.group_by("key").aggregate([("offset", "max")])["offset_max"]
    return rows.filter(pc.or_(pc.is_null(rows["key"]), pc.is_in(rows["offset"], last)))

"""`sharequeue pipeline ingest`: write the rows of files to a topic. A repeated run writes nothing twice.

Idempotency keys name the write (topic, files, columns), the task and the request. A repeated run must make
the same tasks, so files are cut by size and never by the number of CPUs, and rows keep their order.
"""

import hashlib
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from sharequeue.cli.output import key_values
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.jobs.command_line import echo_json, gateway_at, job, job_options, start
from sharequeue_pipeline.jobs.operator_client import OperatorClient
from sharequeue_pipeline.options import MAX_WRITE_ID, PLAIN_FORMATS
from sharequeue_pipeline.sink.batch_writer import written

FORMATS: Final = ("parquet", "csv", "ndjson")
_ENDINGS: Final = {"parquet": "parquet", "csv": "csv", "tsv": "csv", "ndjson": "ndjson", "jsonl": "ndjson"}
_PACKED: Final = ("gz", "bz2", "zst")
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text: Final = msgspec.json.Decoder(str)
_RECORD: Final = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
    ]
)
_DDL: Final = "key string, value string, partition int, timestamp timestamp, headers map<string,string>"


class ColumnNames(msgspec.Struct, frozen=True):
    """The columns of a file (fields of NDJSON), by the part of a record that each becomes. `headers`: column by
    header."""

    key: str | None
    value: str | None
    partition: str | None
    timestamp: str | None
    headers: dict[str, str]

    @property
    def named(self) -> list[str]:
        single = (self.key, self.value, self.partition, self.timestamp)
        return [name for name in (*single, *self.headers.values()) if name is not None]


def format_of(files: Sequence[str]) -> str:
    """The format by the file names. Raises: PipelineError: the names have no known ending, or several."""
    found = set()
    for file in files:
        parts = file.lower().rsplit("/", 1)[-1].split(".")
        found.add(_ENDINGS.get(parts[-2] if parts[-1] in _PACKED and len(parts) > 1 else parts[-1], ""))
    if len(found) != 1 or "" in found:
        raise PipelineError(f"the file names do not give one format: add --format {' | '.join(FORMATS)}")
    return found.pop()


def table_records(frame: DataFrame, columns: ColumnNames) -> DataFrame:
    """Rows of a table as the sink takes them. Without a value column, the whole row is the value."""
    missing = [name for name in columns.named if name not in frame.columns]
    if missing:
        raise PipelineError(f"there is no column {missing[0]!r}: the columns are {', '.join(frame.columns)}")

    def column(name: str) -> Column:
        return f.col("`" + name.replace("`", "``") + "`")

    def text(name: str) -> Column:
        return column(name) if dict(frame.dtypes)[name] == "binary" else column(name).cast("string")

    value = f.struct(*map(column, frame.columns)) if columns.value is None else column(columns.value)
    wanted = {"value": value}
    if columns.key is not None:
        wanted["key"] = text(columns.key)
    if columns.partition is not None:
        wanted["partition"] = column(columns.partition).cast("int")
    if columns.timestamp is not None:
        wanted["timestamp"] = column(columns.timestamp).cast("timestamp")
    if columns.headers:
        pairs = [
            part for name, of in sorted(columns.headers.items()) for part in (f.lit(name), text(of).cast("string"))
        ]
        wanted["headers"] = f.map_filter(f.create_map(*pairs), lambda _, each: each.isNotNull())
    return frame.select(*(each.alias(name) for name, each in wanted.items()))


def line_records(columns: ColumnNames) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """A function for mapInArrow: lines of JSON become records. A value stays as written, byte for byte."""

    def records(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            rows = [_record(line, columns) for line in batch.column(0).to_pylist() if line and not line.isspace()]
            yield pa.RecordBatch.from_pylist(rows, schema=_RECORD)

    return records


def _record(line: str, columns: ColumnNames) -> dict[str, Any]:
    try:
        fields = _fields.decode(line)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise PipelineError(f"{_short(line)} is not a JSON object: {fault}") from None

    def field(name: str) -> str:
        if name not in fields:
            raise PipelineError(f"{_short(line)} has no field {name!r}")
        return bytes(fields[name]).decode()

    headers = {name: _plain(field(of)) for name, of in columns.headers.items() if of in fields}
    try:
        return {
            "key": None if columns.key is None else _plain(field(columns.key)),
            "value": line.strip() if columns.value is None else field(columns.value),
            "partition": None if columns.partition is None else int(field(columns.partition)),
            "timestamp": None if columns.timestamp is None else _time(_plain(field(columns.timestamp))),
            "headers": [(name, text) for name, text in sorted(headers.items()) if text is not None],
        }
    except ValueError as fault:
        raise PipelineError(f"{_short(line)}: {fault}") from None


def _plain(raw: str) -> str | None:
    """The text of a JSON string, None for null, otherwise the JSON itself."""
    if raw == "null":
        return None
    return _text.decode(raw) if raw.startswith('"') else raw


def _time(text: str | None) -> datetime | None:
    """A time from ISO 8601 (UTC if it has no zone) or from milliseconds since 1970."""
    if text is None:
        return None
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _short(line: str) -> str:
    return repr(line if len(line) <= 80 else line[:79] + "…")


def read(spark: SparkSession, files: Sequence[str], kind: str, columns: ColumnNames, csv: dict[str, Any]) -> DataFrame:
    """The rows of the files as the sink takes them."""
    if kind == "ndjson":
        lines = spark.read.text(list(files)).mapInArrow(line_records(columns), _DDL)
        return lines.select("value", *(each for each in _RECORD.names if each != "value" and getattr(columns, each)))
    if kind == "csv":
        reader = spark.read.options(mode="FAILFAST", header=csv["header"], sep=csv["delimiter"])
        if csv["null"] is not None:
            reader = reader.option("nullValue", csv["null"])
        reader = reader.schema(csv["schema"]) if csv["schema"] else reader.option("inferSchema", csv["infer"])
        return table_records(reader.csv(list(files)), columns)
    return table_records(spark.read.parquet(*files), columns)


def write_id_of(topic_id: str, files: Sequence[str], arguments: Sequence[Any]) -> str:
    """The name of a write: the same for the same topic, files and arguments."""
    return hashlib.sha256(json.dumps([topic_id, sorted(files), *arguments]).encode()).hexdigest()[:40]


def _session(master: str | None, split_mib: int) -> SparkSession:
    """A session that cuts files by size alone, so that a repeated run makes the same tasks."""
    spark = start("ingest", master)
    spark.conf.set("spark.sql.files.maxPartitionBytes", split_mib << 20)
    spark.conf.set("spark.sql.files.openCostInBytes", 4 << 20)
    spark.conf.set("spark.sql.files.minPartitionNum", 1)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


@click.command()
@click.argument("topic")
@click.argument("files", nargs=-1, required=True)
@click.option("--format", "kind", type=click.Choice(FORMATS), help="default: by the endings of the file names")
@click.option("--key", metavar="COLUMN", help="column with the key")
@click.option("--value", metavar="COLUMN", help="column with the value; default: the whole row, as a JSON object")
@click.option("--value-format", type=click.Choice(PLAIN_FORMATS), help="default: by the type of the column")
@click.option("--partition", metavar="COLUMN", help="column with the partition; default: by the key's hash, or in turn")
@click.option("--timestamp", metavar="COLUMN", help="column with the timestamp; default: the time of the write")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=COLUMN", help="column that becomes a header; repeatable"
)
@click.option("--delimiter", default=",", show_default=True, help="separator of CSV")
@click.option(
    "--csv-header/--no-csv-header",
    default=True,
    show_default=True,
    help="whether the first line of CSV has the column names",
)
@click.option("--schema", metavar="DDL", help="columns of CSV, e.g. 'id INT, at TIMESTAMP'; default: all are text")
@click.option("--infer-schema", is_flag=True, help="infer the column types of CSV, which reads the data twice")
@click.option(
    "--null-value", metavar="TEXT", help="the text that stands for null in CSV, e.g. NA; default: an empty field"
)
@click.option("--create", type=click.IntRange(1), metavar="PARTITIONS", help="create the topic if it is missing")
@click.option(
    "--write-id", help=f"name of the write, at most {MAX_WRITE_ID} characters; default: from topic, files and columns"
)
@click.option(
    "--split-mib", type=click.IntRange(1, 4096), default=16, show_default=True, help="part of a file per task"
)
@job_options
@job
def command(
    topic: str,
    files: tuple[str, ...],
    kind: str | None,
    key: str | None,
    value: str | None,
    value_format: str | None,
    partition: str | None,
    timestamp: str | None,
    headers: tuple[str, ...],
    delimiter: str,
    csv_header: bool,
    schema: str | None,
    infer_schema: bool,
    null_value: str | None,
    create: int | None,
    write_id: str | None,
    split_mib: int,
    master: str | None,
    as_json: bool,
    url: str,
    timeout_s: int,
) -> None:
    """Write the rows of FILES (paths, directories, patterns; anything Spark reads) to TOPIC.

    After a failure or a crash, run it again with the same arguments within 7 days: it writes nothing twice.
    """
    kind = kind or format_of(files)
    columns = ColumnNames(key, value, partition, timestamp, key_values(headers, "--header"))
    target = gateway_at(url, timeout_s)
    with OperatorClient(target) as gateway:
        if create is not None:
            gateway.create_topic(topic, create)
        described = gateway.describe(topic, first_try=True)
    spark = _session(master, split_mib)
    csv = {
        "header": csv_header,
        "delimiter": delimiter,
        "schema": schema,
        "infer": infer_schema,
        "null": null_value,
    }
    frame = read(spark, files, kind, columns, csv)
    if kind == "ndjson":
        value_format = "json"
    found = frame.inputFiles()
    arguments = (kind, msgspec.to_builtins(columns), value_format, csv, split_mib)
    write_id = write_id or write_id_of(described.topic_id, found, arguments)
    options: dict[str, Any] = {**target.for_spark(), "topic": topic, "writeId": write_id}
    if value_format:
        options["valueFormat"] = value_format
    frame.write.format("sharequeue").options(**options).mode("append").save()
    records, known = written(write_id)
    new = records - known
    if as_json:
        counts = {"records": records, "new": new, "known": known}
        echo_json({"topic": topic, "files": len(found), **counts, "write_id": write_id})
        return
    click.echo(f"{topic}: {records} records of {len(found)} files: {new} new, {known} known (write {write_id})")


if __name__ == "__main__":  # under spark-submit: tasks must be able to import the functions they run
    importlib.import_module("sharequeue_pipeline.jobs.ingest").command()

"""Avro and Protobuf with a schema registry, on the real stack: streams, writes, and a table of typed columns."""

import base64
import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from pyspark.errors import StreamingQueryException

from tests.http.calls import Gateway, good
from tests.pipeline import delta_in_duckdb, schemas
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.jobs import Jobs
from tests.pipeline.test_source import settled


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return schemas.write(tmp_path / "schemas")


def produce(gateway: Gateway, topic: str, *values: bytes | None) -> None:
    """Produce bytes. The topic is created if it is missing."""
    records = [
        {"value": None} if value is None else {"value_base64": base64.b64encode(value).decode()} for value in values
    ]
    good(gateway.http.post(f"/v1/topics/{topic}/records", json={"records": records}))


def older(number: int) -> bytes:
    return schemas.avro(1, schemas.FIRST, {"id": number, "total": Decimal(number), "gone": "x"})


def newer(number: int, **fields: int) -> bytes:
    order = {"id": number, "total": Decimal(number), "note": "n", "at": 1000 * number, "raw": b"r", **fields}
    return schemas.avro(2, schemas.SECOND, order)


@pytest.mark.soak
def test_malformed_avro_values_become_dead_letters_and_the_others_arrive(
    pipeline: Pipeline, gateway: Gateway, name: str, registry: Path
) -> None:
    """Redriven after their schema was added, they arrive too."""
    late = b"\0\0\0\0\x03" + newer(9)[5:]
    produce(gateway, name, older(1), b'{"id":2}', newer(3), None, newer(4)[:-1], late)
    options = {"valueFormat": "avro", "schemaRegistry": registry, "valueSchema": 2}
    stream = pipeline.stream(topics=name, group=name, onMalformed="reject", parallelism=2, **options)
    pipeline.drain(stream.selectExpr("offset", "value.id AS id", "value.note AS note"))
    rows = sorted(tuple(row) for row in pipeline.out().collect())
    assert rows == [(0, 1, None), (2, 3, "n"), (3, None, None)]
    reasons = [letter["headers"]["__dlq.errors.reason"] for letter in gateway.letters(f"dlq.{name}", 3)]
    wait_for(lambda: settled(gateway, name, name), "the dead letters are written")
    assert sorted(reasons) == [
        "malformed: it has no schema id: a value begins with the byte 0 and 4 bytes of schema id",
        "malformed: its length does not fit schema 2",
        f"malformed: there is no schema 3: schemaRegistry '{registry}' has no 3.avsc",
    ]
    (registry / "3.avsc").write_text(json.dumps(schemas.SECOND))
    again = {"reason": "no schema 3"}
    assert good(gateway.http.post(f"/v1/share-groups/{name}/dead-letters/redrive", json=again))["redriven"] == 1
    pipeline.drain(stream.selectExpr("offset", "value.id AS id", "value.note AS note"))
    assert sorted(row.id for row in pipeline.out().where("id IS NOT NULL").collect()) == [1, 3, 9]


def test_a_malformed_value_fails_the_query_by_default(
    pipeline: Pipeline, gateway: Gateway, name: str, registry: Path
) -> None:
    produce(gateway, name, newer(1), b"\0\0\0\0\x63")
    stream = pipeline.stream(topics=name, mode="log", valueFormat="avro", schemaRegistry=registry, valueSchema=2)
    query = pipeline.start(stream.select("value.id"), availableNow=True)
    with pytest.raises(StreamingQueryException, match=f"{name}-0 offset 1 is malformed: there is no schema 99"):
        query.awaitTermination(60)


@pytest.mark.parametrize(("value_format", "schema", "message"), [("avro", 2, None), ("protobuf", 8, "shop.Order")])
def test_what_a_job_writes_comes_back_typed(
    pipeline: Pipeline,
    gateway: Gateway,
    name: str,
    registry: Path,
    value_format: str,
    schema: int,
    message: str | None,
) -> None:
    gateway.create_topic(name, 2)
    columns = {
        "avro": "'id', id, 'total', CAST(id / 4 AS DECIMAL(9,2)), 'note', if(id = 1, null, 'n'), "
        "'at', timestamp_millis(id), 'raw', CAST('r' AS BINARY)",
        "protobuf": "'id', id, 'price', id / 4, 'note', if(id = 1, null, 'n'), 'at', timestamp_millis(id), "
        "'state', 'PAID', 'tags', array('a', 'b'), 'counts', map('c', 1), 'lines', array(named_struct('sku', 's'))",
    }[value_format]
    options = {"valueFormat": value_format, "schemaRegistry": registry, "valueSchema": schema}
    if message is not None:
        options["valueMessage"] = message
    frame = pipeline.spark.range(40).selectExpr(f"named_struct({columns}) AS value")
    pipeline.write(frame, topic=name, **options)
    names = [field.name for field in frame.schema["value"].dataType.fields]  # type: ignore[attr-defined]
    found = pipeline.read(topics=name, parallelism=2, **options).selectExpr(*(f"value.{each}" for each in names))
    wanted = frame.selectExpr(*(f"value.{each}" for each in names))
    assert sorted(map(str, found.collect())) == sorted(map(str, wanted.collect()))
    (record, *_) = gateway.read(name)["records"]
    assert base64.b64decode(record["value_base64"])[:5] == b"\0\0\0\0" + (b"\x02" if message is None else b"\x08")


def archive(name: str, root: Path, registry: Path | str, schema_id: int, *more: str) -> tuple[Any, ...]:
    words = ("--value-format", "avro", "--schema-registry", registry, "--value-schema", schema_id)
    return ("archive", name, "--to", root, *words, *more)


def test_an_archive_has_the_columns_of_a_schema(
    jobs: Jobs, gateway: Gateway, name: str, registry: Path, tmp_path: Path
) -> None:
    """In two runs, with values of both versions."""
    produce(gateway, name, older(1), newer(2), None, b"what")
    report = jobs.done(*archive(name, tmp_path / "table", registry, 2, "--verify"))
    assert (report["records"], report["malformed_values"], report["verified_records"]) == (4, 1, 4)
    produce(gateway, name, newer(3))
    report = jobs.done(*archive(name, tmp_path / "table", registry, 2, "--verify"))
    assert (report["records"], report["verified_records"]) == (1, 5)
    frame = DeltaTable(tmp_path / "table").to_pandas().sort_values("offset")
    assert [value and value["id"] for value in frame["value"]] == [1, 2, None, None, 3]
    assert frame["value"].iloc[1] == {
        "id": 2,
        "total": Decimal("2.00"),
        "note": "n",
        "at": datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC),
        "raw": b"r",
    }
    select = "count(*), sum(value.id), sum(value.total), count(value.note)"
    assert delta_in_duckdb.query(tmp_path / "table", select) == "[(5, 6, Decimal('6.00'), 2)]"
    code, line = jobs.refused(*archive(name, tmp_path / "table", registry, 1))
    assert (code, "lacks columns for values of this --value-schema: add them with --merge-schema" in line) == (1, True)
    code, line = jobs.refused(*archive(name, tmp_path / "other", registry, 5))
    assert (code, "there is no schema 5" in line) == (1, True), line


def table_of_before(root: Path, topic_id: str) -> None:
    """A table of schema 1 without the column of what fits none."""
    fields = [
        "partition int32",
        "offset int64",
        "key binary",
        "value struct",
        "headers map",
        "timestamp us",
        "date date32",
    ]
    value = pa.struct([("id", pa.int32()), ("total", pa.decimal128(9, 2)), ("gone", pa.string())])
    types = {"struct": value, "map": pa.map_(pa.string(), pa.string()), "us": pa.timestamp("us", "UTC")}
    columns = [(name, types.get(of) or pa.type_for_alias(of)) for name, of in map(str.split, fields)]
    begun = CommitProperties(app_transactions=[Transaction(f"sharequeue/{topic_id}/0", 0)])
    schema = Schema.from_arrow(pa.schema(columns))
    DeltaTable.create(root, schema=schema, partition_by=["date"], commit_properties=begun)


def test_a_table_gets_the_columns_of_a_newer_schema_and_keeps_what_fits_none(
    jobs: Jobs, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    """With a registry over HTTP. The table was made before there was a column for what fits none."""
    root = tmp_path / "table"
    with schemas.RegistryServer().running() as registry:
        registry.put(1, schemas.FIRST)
        registry.put(2, schemas.SECOND)
        produce(gateway, name, older(1), newer(2))
        table_of_before(root, gateway.describe_topic(name)["topic_id"])
        code, line = jobs.refused(*archive(name, root, registry.url, 1))
        assert (code, "lacks columns" in line) == (1, True), line
        report = jobs.done(*archive(name, root, registry.url, 1, "--merge-schema", "--verify"))
        assert (report["records"], report["rescued_values"], report["verified_records"]) == (2, 1, 2)
        produce(gateway, name, newer(3), b"what", newer(5, id=2**40))
        report = jobs.done(*archive(name, root, registry.url, 2, "--merge-schema", "--verify"))
        assert (report["records"], report["rescued_values"], report["malformed_values"]) == (3, 2, 1)
        assert report["verified_records"] == 5
        produce(gateway, name, older(4))
        assert jobs.done(*archive(name, root, registry.url, 1, "--verify"))["verified_records"] == 6
    rows = DeltaTable(root).to_pandas().sort_values("offset")
    assert [value and value["id"] for value in rows["value"]] == [1, 2, 3, None, None, 4]
    assert [value and value["note"] for value in rows["value"]] == [None, None, "n", None, "n", None]
    assert json.loads(rows["_rescued_data"].iloc[4]) == {"id": 2**40}

"""Values with a schema registry's wire format, without Spark and without a gateway."""

import base64
import datetime
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as spark
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import sink_options, source_options
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.registry.opening import pinned
from sharequeue_pipeline.registry.schema_folder import SchemaFolder
from sharequeue_pipeline.sink.rows import Rows
from sharequeue_pipeline.source.record_columns import RecordColumns
from sharequeue_pipeline.source.schema import check_columns, ddl

from tests.pipeline import schemas
from tests.pipeline.test_columns import batch_of, raw, schema_of
from tests.pipeline.test_rows import records

UTC = datetime.UTC


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return schemas.write(tmp_path_factory.mktemp("registry") / "schemas")


def read(
    registry: Path, value_format: str, *values: bytes | None, schema: str = "orders-value", **options: str
) -> tuple[list[Any], dict[str, str]]:
    """The column `value`, and why values were rejected, by offset from 10 on."""
    given = {"topics": "t", "group": "g", "valueFormat": value_format, "schemaRegistry": str(registry)}
    made = source_options({**given, "valueSchema": schema, "onMalformed": "reject", **options})
    data_type = schemas.opened(registry, value_format, schema, options.get("valueMessage")).data_type
    columns = RecordColumns(made, schema_of(data_type))
    records = batch_of(['"value":null' if value is None else raw(value) for value in values])
    found = columns.batch(Range("t", 3, 10, 99, 2), records).to_pydict()
    return found["value"], {str(each.first_offset): why for each, why in columns.rejected}


# Avro


def test_avro_values_become_typed_columns(registry: Path) -> None:
    at = datetime.datetime(2026, 11, 22, 8, 0, 0, 5000, UTC)
    order = {"id": 2**40, "total": Decimal("9.50"), "note": "n", "at": at, "raw": b"\xff\x00"}
    found, malformed = read(registry, "avro", schemas.avro(2, schemas.SECOND, order), None)
    assert (found, malformed) == ([order, None], {})


def test_an_older_avro_value_is_resolved_to_the_reader_schema(registry: Path) -> None:
    """A number is promoted, a field that is gone is skipped, and new ones have their defaults, also times and bytes."""
    older = schemas.avro(1, schemas.FIRST, {"id": 5, "total": Decimal("-1.00"), "gone": "x" * 100})
    found, malformed = read(registry, "avro", older)
    default = datetime.datetime.fromtimestamp(1_700_000_000, UTC)
    assert found == [{"id": 5, "total": Decimal("-1.00"), "note": None, "at": default, "raw": b"\xff"}]
    assert malformed == {}


def test_a_newer_avro_value_is_resolved_to_an_older_reader_schema(registry: Path) -> None:
    small, large = (
        schemas.avro(2, schemas.SECOND, {"id": number, "total": Decimal(1), "note": None, "at": 0, "raw": b""})
        for number in (1, 2**40)
    )
    found, malformed = read(registry, "avro", small, large, schema="1")
    assert found == []
    assert malformed["10"].startswith("malformed: schema 2 cannot be read as schema 1: ")


def order_bytes() -> bytes:
    return schemas.avro(1, schemas.FIRST, {"id": 5, "total": Decimal("9.50"), "gone": "here"})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "it has no schema id"),
        (b"\0\0\0", "it has no schema id"),
        (b'{"id":1}', "it begins with the byte 123, not with the byte 0"),
        (b"\x01" + order_bytes()[1:], "it begins with the byte 1, not"),
        (b"\xff" + order_bytes()[1:], "it begins with the byte 255, not"),
        (b"\0\0\0\0\x63" + order_bytes()[5:], "there is no schema 99 in the registry"),
        (b"\0\xff\xff\xff\xff" + order_bytes()[5:], "there is no schema 4294967295 in the registry"),
        (order_bytes()[:-1], "it ends too early for schema 1"),
        (order_bytes()[:5], "it ends too early for schema 1"),
        (order_bytes() + b"\0\0", "it has 2 bytes more than schema 1 reads"),
        (order_bytes()[:5] + b"\xff" * 30, "it ends too early for schema 1"),
        (order_bytes()[:6] + b"\x00\x05", "it ends too early for schema 1"),
        (schemas.avro(1, schemas.FIRST, {"id": 1, "total": b"\x7f" * 9, "gone": ""}), "a number or a time in it"),
        (
            schemas.avro(2, schemas.SECOND, {"id": 1, "total": b"", "note": None, "at": 2**62, "raw": b""}),
            "it does not fit schema 2",
        ),
        (
            schemas.avro(2, schemas.SECOND, {"id": 1, "total": b"", "note": "ab", "at": 0, "raw": b""}).replace(
                b"ab", b"\xff\xfe"
            ),
            "it does not fit schema 2",
        ),
    ],
    ids=[
        "empty",
        "short",
        "JSON",
        "magic 1",
        "magic 255",
        "unknown id",
        "highest id",
        "truncated",
        "no datum",
        "trailing",
        "garbage",
        "negative length",
        "too many digits",
        "no time",
        "not UTF-8",
    ],
)
def test_a_malformed_avro_value_says_why_and_spares_the_others(registry: Path, value: bytes, why: str) -> None:
    found, malformed = read(registry, "avro", order_bytes(), value, order_bytes())
    assert [row["id"] for row in found] == [5, 5]
    assert list(malformed) == ["11"]
    assert malformed["11"].startswith(f"malformed: {why}")


@given(st.binary(max_size=60))
def test_any_avro_datum_is_read_or_malformed(tmp_path_factory: pytest.TempPathFactory, datum: bytes) -> None:
    home = tmp_path_factory.getbasetemp() / "any"
    if not home.exists():
        schemas.write(home)
    found, malformed = read(home, "avro", b"\0\0\0\0\x02" + datum)
    assert len(found) + len(malformed) == 1


def test_avro_types_are_those_of_from_avro(tmp_path: Path) -> None:
    kinds: dict[str, tuple[Any, str]] = {
        "flag": ("boolean", "boolean"),
        "i": ("int", "int"),
        "l": ("long", "bigint"),
        "f": ("float", "float"),
        "d": ("double", "double"),
        "s": ({"type": "string", "avro.java.string": "String"}, "string"),
        "u": ({"type": "string", "logicalType": "uuid"}, "string"),
        "b": ("bytes", "binary"),
        "x": ({"type": "fixed", "name": "Four", "size": 4}, "binary"),
        "again": ("Four", "binary"),
        "e": ({"type": "enum", "name": "E", "symbols": ["A"]}, "string"),
        "day": ({"type": "int", "logicalType": "date"}, "date"),
        "time": ({"type": "int", "logicalType": "time-millis"}, "int"),
        "ts": ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp"),
        "local": ({"type": "long", "logicalType": "local-timestamp-millis"}, "timestamp_ntz"),
        "nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, "bigint"),
        "money": (
            {"type": "fixed", "name": "M", "size": 8, "logicalType": "decimal", "precision": 12, "scale": 3},
            "decimal(12,3)",
        ),
        "list": ({"type": "array", "items": ["null", "string"]}, "array<string>"),
        "map": ({"type": "map", "values": "long"}, "map<string,bigint>"),
        "inner": (
            ["null", {"type": "record", "name": "In", "fields": [{"name": "select", "type": "int"}]}],
            "struct<`select`:int>",
        ),
    }
    fields = [{"name": name, "type": kind} for name, (kind, _) in kinds.items()]
    (tmp_path / "3.avsc").write_text(json.dumps({"type": "record", "name": "All", "fields": fields}))
    found = schemas.opened(tmp_path, "avro", "3").data_type
    assert ddl(found) == f"struct<{','.join(f'`{name}`:{of}' for name, (_, of) in kinds.items())}>"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type":', "cannot be used"),
        ('"no such type"', "the type 'no such type' is not defined in it"),
        ('{"type":"record","name":"R"}', "cannot be used"),
        ('{"type":"record","name":"R","fields":[{"name":"n","type":["null","R"]}]}', "the type 'R' contains itself"),
        ('["int","string"]', "value is a union of several types"),
        ('["null","int","long"]', "value is a union of several types"),
        ('{"type":"array","items":"null"}', "the items of an array take no bytes"),
        ('{"type":"record","name":"R","fields":[{"name":"n","type":"null"}]}', "value.n is of the type null"),
        (
            '{"type":"bytes","logicalType":"decimal","precision":50}',
            "value is a decimal of 50 digits; Spark has at most 38",
        ),
    ],
)
def test_an_avro_schema_without_a_column_is_one_line(tmp_path: Path, schema: str, why: str) -> None:
    (tmp_path / "3.avsc").write_text(schema)
    with pytest.raises(PipelineError, match=r"^3\.avsc in schemaRegistry '.*' cannot be used: ") as refused:
        schemas.opened(tmp_path, "avro", "3")
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


INNER = {
    "type": "record",
    "name": "In",
    "fields": [
        {"name": "raw", "type": "bytes", "default": "\u00fe"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@pytest.mark.parametrize(
    ("schema", "default", "value"),
    [
        ("string", "\u00e9", "\u00e9"),
        (["null", {"type": "int", "logicalType": "date"}], 3, datetime.date(1970, 1, 4)),
        ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            "\u0001\u0000",
            Decimal("2.56"),
        ),
        ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": b"\xff"}),
        ({"type": "array", "items": INNER}, [{}], [{"raw": b"\xfe", "note": None}]),
        (INNER, {"note": "n"}, None),
    ],
)
def test_a_default_is_what_a_value_would_be(tmp_path: Path, schema: Any, default: Any, value: Any) -> None:
    first = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    (tmp_path / "1.avsc").write_text(json.dumps(first))
    fields = [{"name": "id", "type": "int"}, {"name": "new", "type": schema, "default": default}]
    (tmp_path / "2.avsc").write_text(json.dumps({**first, "fields": fields}))
    if value is None:
        with pytest.raises(PipelineError, match=r"the default .* has a value of a union in it"):
            schemas.opened(tmp_path, "avro", "2")
        return
    found = schemas.opened(tmp_path, "avro", "2").decode(schemas.avro(1, first, {"id": 1}))
    assert found == {"id": 1, "new": value}


def test_a_schema_that_may_take_any_time_is_refused_for_values_too(registry: Path, tmp_path: Path) -> None:
    """A few bytes can announce 2^60 items that take no bytes, in a field that the reader schema lacks."""
    home = schemas.write(tmp_path / "schemas")
    bomb = {"name": "bomb", "type": {"type": "array", "items": "null"}}
    (home / "3.avsc").write_text(json.dumps({**schemas.FIRST, "fields": [*schemas.FIRST["fields"], bomb]}))
    with pytest.raises(PipelineError, match=r"3\.avsc in .* the items of an array take no bytes"):
        read(home, "avro", b"\0\0\0\0\x03" + order_bytes()[5:] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0")


# Protobuf


def order(registry: Path, **fields: Any) -> bytes:
    """A value of the newest Order, written by the sink."""
    data_type = schemas.opened(registry, "protobuf", "8", "shop.Order").data_type
    assert isinstance(data_type, spark.StructType)
    given = spark.StructType([data_type[name] for name in fields])
    options = {"topic": "t", "valueFormat": "protobuf", "schemaRegistry": str(registry), "valueSchema": "shop.Order"}
    ((_, record),) = records({"value": given}, (fields,), **options, valueMessage="shop.Order")
    return base64.b64decode(record["value_base64"])


def read_orders(registry: Path, *values: bytes) -> tuple[list[Any], dict[str, str]]:
    return read(registry, "protobuf", *values, schema="shop.Order", valueMessage="shop.Order")


def test_protobuf_values_become_typed_columns_and_come_back(registry: Path) -> None:
    fields = {
        "id": 2**40,
        "price": 9.5,
        "note": "",
        "at": datetime.datetime(2026, 11, 22, 8, 0, 0, 5, UTC),
        "state": "PAID",
        "lines": [{"sku": "a"}, {"sku": ""}],
        "counts": [("a", 1), ("b", 2)],
        "big": Decimal(2**64 - 1),
        "tags": ["x", "y"],
    }
    value = order(registry, **fields)
    assert value[:7] == b"\0\0\0\0\x08\x02\x02"
    assert read_orders(registry, value) == ([fields], {})


def test_a_field_without_presence_has_its_default_and_one_with_presence_is_null(registry: Path) -> None:
    (found,), _ = read_orders(registry, schemas.protobuf(8, [2, 2], b""))
    assert found == {
        "id": 0,
        "price": 0.0,
        "note": None,
        "at": None,
        "state": "NEW",
        "lines": [],
        "counts": [],
        "big": Decimal(0),
        "tags": [],
    }


def test_a_protobuf_value_of_another_version_goes_by_field_numbers(registry: Path) -> None:
    older = schemas.protobuf(7, [2, 2], b"\x08\x05\x12\x01x")
    (found,), malformed = read_orders(registry, older)
    assert (found["id"], found["note"], malformed) == (5, None, {})
    newer = order(registry, id=6, price=1.5, state="PAID")
    (row,), _ = read(registry, "protobuf", newer, schema="7", valueMessage="shop.Order")
    assert row == {"id": 6, "gone": ""}


def test_an_enum_value_that_the_reader_does_not_know_is_its_number(registry: Path) -> None:
    (found,), _ = read_orders(registry, schemas.protobuf(8, [2, 2], b"\x30\x07"))
    assert found["state"] == "7"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\0\0\0\0\x08", "its message indexes are cut off"),
        (
            b"\0\0\0\0\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
            "its message indexes are cut off or too long",
        ),
        (b"\0\0\0\0\x08\x01", "it has -1 message indexes"),
        (b"\0\0\0\0\x08\xfe\xff\xff\xff\x0f", "it has 2147483647 message indexes; 1 to 100"),
        (b"\0\0\0\0\x08\x02\x04", "schema 8 has no message with the indexes [2]"),
        (b"\0\0\0\0\x08\x02\x01", "schema 8 has no message with the indexes [-1]"),
        (b"\0\0\0\0\x08\x00\x08\x01", "it is a shop.Refund, not a shop.Order"),
        (b"\0\0\0\0\x09\x02\x02\x08\x01", "there is no schema 9 in the registry"),
        (b"\0\0\0\0\x01\x02\x02\x08\x01", "there is no schema 1 in the registry"),
        (b"\0\0\0\0\x08\x02\x02\x08", "it does not fit shop.Order of schema 8"),
        (b"\0\0\0\0\x08\x02\x02\x22\x05ab", "it does not fit shop.Order of schema 8"),
        (b"\0\0\0\0\x08\x02\x02\x22\x01\xff", "it does not fit shop.Order of schema 8"),
        (b"\0\0\0\0\x08\x02\x02\x2a\x0a\x08" + b"\xff" * 8 + b"\x7f", "a number or a time in it"),
    ],
)
def test_a_malformed_protobuf_value_says_why_and_spares_the_others(registry: Path, value: bytes, why: str) -> None:
    good = schemas.protobuf(7, [2, 2], b"\x08\x05")
    found, malformed = read_orders(registry, good, value, good)
    assert [row["id"] for row in found] == [5, 5]
    assert list(malformed) == ["11"]
    assert malformed["11"].startswith(f"malformed: {why}"), malformed


@given(st.binary(max_size=60))
def test_any_protobuf_message_is_read_or_malformed(tmp_path_factory: pytest.TempPathFactory, message: bytes) -> None:
    home = tmp_path_factory.getbasetemp() / "any protobuf"
    if not home.exists():
        schemas.write(home)
    found, malformed = read_orders(home, b"\0\0\0\0\x08\x02\x02" + message)
    assert len(found) + len(malformed) == 1


def test_a_protobuf_schema_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    home = schemas.write(tmp_path / "schemas")
    loop = schemas.order_file(older=True)
    schemas.field(loop.message_type[1], "next", 9, schemas.Field.TYPE_MESSAGE, ".shop.Order")
    (home / "3.desc").write_bytes(schemas.descriptor_set(loop))
    (home / "4.desc").write_bytes(b"no descriptor")
    (home / "5.desc").write_bytes(b"")
    for schema_id, message, why in (
        ("3", "shop.Order", "the message shop.Order contains itself"),
        ("8", "shop.Nothing", "it has no message 'shop.Nothing'; it has shop.Order, shop.Order.CountsEntry, "),
        ("4", None, "it is not a descriptor set of protoc"),
        ("5", None, "it is an empty descriptor set"),
    ):
        with pytest.raises(PipelineError, match=why):
            schemas.opened(home, "protobuf", schema_id, message)


# Options, subjects, and the reader's columns


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"valueFormat": "avro"}, "valueFormat=avro needs schemaRegistry"),
        ({"schemaRegistry": "/s"}, "schemaRegistry needs valueFormat=avro or protobuf"),
        ({"valueFormat": "avro", "schemaRegistry": "/s", "valueMessage": "m"}, "valueMessage needs"),
        ({"valueFormat": "avro", "schemaRegistry": "/s", "topics": "a,b"}, "valueFormat=avro needs valueSchema"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        source_options({"topics": "t", **options})


def test_malformed_values_fail_a_read_unless_the_options_say_otherwise(registry: Path) -> None:
    """As in `from_avro` and `from_protobuf`. The subject of a topic is the default."""
    made = source_options({"topics": "orders", "valueFormat": "avro", "schemaRegistry": str(registry)})
    assert (made.value_schema, made.on_malformed) == ("orders-value", "fail")
    with pytest.raises(PipelineError, match="t-3 offset 10 is malformed: it has no schema id"):
        read(registry, "avro", b"x", onMalformed="fail")
    assert read(registry, "avro", b"x", onMalformed="null") == ([None], {})


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("nothing", r"has no subject 'nothing': subjects/nothing\.json is missing"),
        ("../1", r"has no subject '\.\./1': subjects/\.\.%2F1\.json is missing"),
        ("broken", r"subjects/broken\.json in schemaRegistry .* must be a list of schema ids"),
        ("empty", r"subjects/empty\.json in schemaRegistry .* must be a list of schema ids"),
        ("99", r"has no schema 99: 99\.avsc is missing"),
        ("0", "valueSchema 0 is not a schema id"),
    ],
)
def test_a_subject_or_id_that_is_not_there_is_one_line(tmp_path: Path, schema: str, why: str) -> None:
    home = schemas.write(tmp_path / "schemas")
    (home / "subjects" / "broken.json").write_text('[1, "2"]')
    (home / "subjects" / "empty.json").write_text("[]")
    with pytest.raises(PipelineError, match=why):
        schemas.opened(home, "avro", schema)


def test_a_registry_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="has no subject 'orders-value'"):
        schemas.opened(tmp_path / "nowhere", "avro", "orders-value")
    with pytest.raises(PipelineError, match=r"schemaRegistry 'what://x' cannot be opened"):
        schemas.opened("what://x", "avro", "1")


def test_an_id_that_is_added_while_a_task_runs_is_found_within_a_second(tmp_path: Path) -> None:
    """Unknown ids, however many, do not list the directory for each value."""
    home = schemas.write(tmp_path / "schemas")
    seconds = 5.0
    folder = SchemaFolder(str(home), "avsc", lambda: seconds)
    assert folder.knows(1)
    assert not folder.knows(3)
    (home / "3.avsc").write_text("{}")
    seconds += 0.9
    assert not folder.knows(3)
    seconds += 0.1
    assert folder.knows(3)
    assert not folder.knows(7), "another format"


def test_a_read_keeps_the_schema_that_its_columns_come_from(tmp_path: Path) -> None:
    """A version that is registered between load and start, or while tasks run, does not change the columns."""
    home = schemas.write(tmp_path / "schemas")
    (home / "subjects" / "orders-value.json").write_text("[1]")
    options = source_options({"topics": "orders", "valueFormat": "avro", "schemaRegistry": str(home)})
    first = schemas.opened(home, "avro", "1").data_type
    at_load = pinned(options)
    assert at_load.value_schema == "1"
    (home / "subjects" / "orders-value.json").write_text("[1, 2]")
    check_columns(schema_of(first), at_load)
    with pytest.raises(PipelineError, match="the columns of valueSchema have changed since load"):
        check_columns(schema_of(first), pinned(options))


# Writing


def written(registry: Path, data_type: spark.DataType, value: Any, **options: str) -> bytes:
    given = {"topic": "orders", "valueFormat": "avro", "schemaRegistry": str(registry), **options}
    ((_, record),) = records({"value": data_type}, (value,), **given)
    return base64.b64decode(record["value_base64"])


def struct(**types: spark.DataType) -> spark.StructType:
    return spark.StructType([spark.StructField(name, of) for name, of in types.items()])


def test_the_sink_writes_avro_with_the_newest_schema(registry: Path) -> None:
    """A column that is missing has the schema's default, and a narrower number is taken."""
    value = written(
        registry, struct(id=spark.IntegerType(), total=spark.DecimalType(5, 1)), {"id": 7, "total": Decimal("1.5")}
    )
    assert value[:5] == b"\0\0\0\0\x02"
    (found,), _ = read(registry, "avro", value)
    assert (found["id"], found["total"], found["raw"], found["note"]) == (7, Decimal("1.50"), b"\xff", None)


@pytest.mark.parametrize(
    ("data_type", "why"),
    [
        (struct(id=spark.LongType(), what=spark.LongType()), "value.what is unknown: the schema has id, total, note"),
        (struct(id=spark.StringType()), "value.id is of the type string, and the schema has bigint"),
        (struct(id=spark.LongType(), total=spark.DecimalType(12, 2)), "value.total is of the type decimal"),
        (spark.StringType(), "value is of the type string, and the schema has struct"),
    ],
)
def test_a_column_that_does_not_fit_the_schema_is_refused_before_any_task(
    registry: Path, data_type: spark.DataType, why: str
) -> None:
    options = sink_options({"topic": "orders", "valueFormat": "avro", "schemaRegistry": str(registry)})
    with pytest.raises(PipelineError, match=r"^valueFormat=avro: the column ") as refused:
        Rows(options, struct(value=data_type))
    assert why in str(refused.value)


def test_a_row_that_does_not_fit_the_schema_fails_the_write(registry: Path) -> None:
    with pytest.raises(PipelineError, match="valueFormat=avro: a value does not fit schema 2"):
        written(registry, struct(id=spark.LongType()), {"id": 1})
    with pytest.raises(PipelineError, match=r"valueFormat=protobuf: a value does not fit shop\.Order of schema 8"):
        order(registry, state="NOTHING")
    with pytest.raises(PipelineError, match=r"does not fit shop\.Order of schema 8: .*NoneType"):
        order(registry, lines=[None])


def test_what_the_sink_writes_any_reader_of_avro_reads(registry: Path) -> None:
    value = written(
        registry, struct(id=spark.LongType(), total=spark.DecimalType(9, 2)), {"id": 1, "total": Decimal(2)}
    )
    found = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schemas.SECOND), None)
    assert (found["id"], found["total"]) == (1, Decimal("2.00"))  # type: ignore[index, call-overload]

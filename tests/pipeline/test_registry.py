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
from sharequeue_pipeline.options import source_options
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.record_columns import RecordColumns

from tests.pipeline import schemas
from tests.pipeline.test_columns import batch_of, raw, schema_of
from tests.pipeline.test_rows import records

UTC = datetime.UTC


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return schemas.write(tmp_path_factory.mktemp("registry") / "schemas")


def read(
    registry: Path | str, value_format: str, *values: bytes | None, schema: int = 2, **options: str
) -> tuple[list[Any], dict[str, str]]:
    """The column `value`, and why values were rejected, by offset from 10 on."""
    given = {"topics": "t", "group": "g", "valueFormat": value_format, "schemaRegistry": str(registry)}
    made = source_options({**given, "valueSchema": str(schema), "onMalformed": "reject", **options})
    more = options.get("valueMessage"), options.get("schemaRegistryLogin")
    data_type = schemas.data_type(schemas.opened(registry, value_format, schema, *more).ddl)
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
    found, malformed = read(registry, "avro", small, large, schema=1)
    assert found == []
    assert malformed["10"] == "malformed: it does not fit schema 2, read as schema 1"


def order_bytes() -> bytes:
    return schemas.avro(1, schemas.FIRST, {"id": 5, "total": Decimal("9.50"), "gone": "here"})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "it has no schema id"),
        (b'{"id":1}', "it has no schema id: a value begins with the byte 0"),
        (b"\x01" + order_bytes()[1:], "it has no schema id"),
        (b"\0\0\0\0\x63" + order_bytes()[5:], "there is no schema 99: schemaRegistry '"),
        (order_bytes()[:-1], "its length does not fit schema 1"),
        (order_bytes()[:5], "it does not fit schema 1"),
        (order_bytes() + b"\0\0", "its length does not fit schema 1"),
        (order_bytes()[:5] + b"\xff" * 30, "it does not fit schema 1"),
        (order_bytes()[:6] + b"\x00\x05", "it"),
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
        "JSON",
        "magic 1",
        "unknown id",
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
    found = schemas.opened(tmp_path, "avro", 3).ddl
    assert found == f"struct<{','.join(f'`{name}`:{of}' for name, (_, of) in kinds.items())}>"


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type":', "cannot be used"),
        ('"no such type"', "no such type"),
        ('{"type":"record","name":"R"}', "marked with ?: ?null"),
        ('{"type":"record","name":"R","fields":[{"name":"n","type":["null","R"]}]}', "the type 'R' contains itself"),
        ('["int","string"]', "a part without a type in Spark, marked with ?: ?union"),
        ('{"type":"map","values":["null","int","long"]}', "marked with ?: map<string,?union>"),
        ('{"type":"array","items":"null"}', "the items of an array take no bytes"),
        ('{"type":"array","items":{"type":"record","name":"E","fields":[]}}', "the items of an array take no bytes"),
        ('{"type":"array","items":{"type":"fixed","name":"F","size":0}}', "the items of an array take no bytes"),
        ('{"type":"record","name":"R","fields":[{"name":"n","type":"null"}]}', "marked with ?: ?null"),
    ],
)
def test_an_avro_schema_without_a_column_is_one_line(tmp_path: Path, schema: str, why: str) -> None:
    (tmp_path / "3.avsc").write_text(schema)
    with pytest.raises(
        PipelineError, match=r"^3\.avsc in schemaRegistry '.*' cannot be used: |^schema 3 has "
    ) as refused:
        schemas.opened(tmp_path, "avro", 3)
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
        ([{"type": "long", "logicalType": "timestamp-millis"}, "null"], 5000, datetime.datetime.fromtimestamp(5, UTC)),
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
        with pytest.raises(PipelineError, match=r"2\.avsc in .* cannot be used"):
            schemas.opened(tmp_path, "avro", 2)
        return
    found = schemas.opened(tmp_path, "avro", 2).decode(schemas.avro(1, first, {"id": 1}))
    assert found == {"id": 1, "new": value}


def test_a_schema_that_may_take_any_time_is_refused_for_values_too(registry: Path, tmp_path: Path) -> None:
    """A few bytes can announce 2^60 items that take no bytes, in a field that the reader schema lacks."""
    home = schemas.write(tmp_path / "schemas")
    bomb = {"name": "bomb", "type": {"type": "array", "items": "null"}}
    (home / "3.avsc").write_text(json.dumps({**schemas.FIRST, "fields": [*schemas.FIRST["fields"], bomb]}))
    with pytest.raises(PipelineError, match=r"3\.avsc in .* the items of an array take no bytes"):
        read(home, "avro", b"\0\0\0\0\x03" + order_bytes()[5:] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\0")


# Protobuf


def order(registry: Path | str, **fields: Any) -> bytes:
    """A value of the newest Order, written by the sink."""
    data_type = schemas.data_type(schemas.opened(registry, "protobuf", 8, "shop.Order").ddl)
    assert isinstance(data_type, spark.StructType)
    given = spark.StructType([data_type[name] for name in fields])
    options = {"topic": "t", "valueFormat": "protobuf", "schemaRegistry": str(registry), "valueSchema": "8"}
    ((_, record),) = records({"value": given}, (fields,), **options, valueMessage="shop.Order")
    return base64.b64decode(record["value_base64"])


def read_orders(registry: Path, *values: bytes) -> tuple[list[Any], dict[str, str]]:
    return read(registry, "protobuf", *values, schema=8, valueMessage="shop.Order")


def test_protobuf_values_become_typed_columns_and_come_back(registry: Path) -> None:
    fields = {
        "id": 2**40,
        "price": 9.5,
        "note": "",
        "at": datetime.datetime(2026, 11, 22, 8, 0, 0, 5, UTC),
        "state": "PAID",
        "lines": [{"sku": "a"}, {"sku": ""}],
        "counts": [("a", 1), ("b", 2)],
        "tags": ["x", "y"],
    }
    value = order(registry, **fields)
    assert value[:7] == b"\0\0\0\0\x08\x02\x02"
    assert read_orders(registry, value) == ([{**fields, "big": Decimal(0)}], {})
    largest, _ = read_orders(registry, schemas.protobuf(8, [2, 2], b"\x48" + b"\xff" * 9 + b"\x01"))
    assert largest[0]["big"] == Decimal(2**64 - 1)


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
    (row,), _ = read(registry, "protobuf", newer, schema=7, valueMessage="shop.Order")
    assert row == {"id": 6, "gone": ""}


def test_an_enum_value_that_the_reader_does_not_know_is_its_number(registry: Path) -> None:
    (found,), _ = read_orders(registry, schemas.protobuf(8, [2, 2], b"\x30\x07"))
    assert found["state"] == "7"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"\0\0\0\0\x08", "its message is not one of the first 64 of a file"),
        (b"\0\0\0\0\x08\x04\x02\x00", "its message is not one of the first 64"),
        (b"\0\0\0\0\x08\x02\x04", "message 2 of schema 8 is not shop.Order"),
        (b"\0\0\0\0\x08\x00\x08\x01", "message 0 of schema 8 is not shop.Order"),
        (b"\0\0\0\0\x09\x02\x02\x08\x01", "there is no schema 9"),
        (b"\0\0\0\0\x08\x02\x02\x08", "it does not fit shop.Order of schema 8"),
        (b"\0\0\0\0\x08\x02\x02\x22\x05ab", "it does not fit shop.Order of schema 8"),
        (b"\0\0\0\0\x08\x02\x02\x22\x01\xff", "it does not fit shop.Order of schema 8"),
        (b"\0\0\0\0\x08\x02\x02\x2a\x0a\x08" + b"\xff" * 8 + b"\x7f", "it does not fit shop.Order of schema 8"),
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
        (3, "shop.Order", "the message shop.Order contains itself"),
        (8, "shop.Nothing", "schema 8 has no message 'shop.Nothing'; it has shop.Refund, shop.Order"),
        (4, None, "4.desc in schemaRegistry .* cannot be used"),
        (5, None, "5.desc in schemaRegistry .* cannot be used"),
    ):
        with pytest.raises(PipelineError, match=why):
            schemas.opened(home, "protobuf", schema_id, message)


# Options, and the directory


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"valueFormat": "avro", "valueSchema": "1"}, "valueFormat=avro needs schemaRegistry"),
        ({"valueFormat": "avro", "schemaRegistry": "/s"}, "valueFormat=avro needs schemaRegistry, .* and valueSchema"),
        ({"schemaRegistry": "/s"}, "schemaRegistry needs valueFormat=avro or protobuf"),
        (
            {"valueFormat": "avro", "schemaRegistry": "/s", "valueSchema": "1", "valueMessage": "m"},
            "valueMessage needs valueFormat=protobuf",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        source_options({"topics": "t", **options})


def test_malformed_values_fail_a_read_unless_the_options_say_otherwise(registry: Path) -> None:
    """As in `from_avro` and `from_protobuf`."""
    given = {"topics": "orders", "valueFormat": "avro", "schemaRegistry": str(registry), "valueSchema": "2"}
    assert source_options(given).on_malformed == "fail"
    with pytest.raises(PipelineError, match="t-3 offset 10 is malformed: it has no schema id"):
        read(registry, "avro", b"x", onMalformed="fail")
    assert read(registry, "avro", b"x", onMalformed="null") == ([None], {})


def test_a_schema_or_a_registry_that_is_not_there_is_one_line(registry: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"there is no schema 99: schemaRegistry '.*' has no 99\.avsc"):
        schemas.opened(registry, "avro", 99)
    with pytest.raises(PipelineError, match=r"schemaRegistry '.*nowhere' cannot be read"):
        schemas.opened(tmp_path / "nowhere", "avro", 1)
    with pytest.raises(PipelineError, match=r"schemaRegistry 'what://x' cannot be read"):
        schemas.opened("what://x", "avro", 1)


# Writing


def written(registry: Path, data_type: spark.DataType, value: Any, **options: str) -> bytes:
    given = {"topic": "orders", "valueFormat": "avro", "schemaRegistry": str(registry), "valueSchema": "2", **options}
    ((_, record),) = records({"value": data_type}, (value,), **given)
    return base64.b64decode(record["value_base64"])


def struct(**types: spark.DataType) -> spark.StructType:
    return spark.StructType([spark.StructField(name, of) for name, of in types.items()])


def test_the_sink_writes_avro_with_its_schema(registry: Path) -> None:
    """A column that is missing has the schema's default, and a narrower number is taken."""
    value = written(
        registry, struct(id=spark.IntegerType(), total=spark.DecimalType(5, 1)), {"id": 7, "total": Decimal("1.5")}
    )
    assert value[:5] == b"\0\0\0\0\x02"
    (found,), _ = read(registry, "avro", value)
    assert (found["id"], found["total"], found["raw"], found["note"]) == (7, Decimal("1.50"), b"\xff", None)


@pytest.mark.parametrize(
    ("data_type", "value", "why"),
    [
        (struct(id=spark.LongType()), {"id": 1}, "total"),
        (struct(id=spark.StringType()), {"id": "x"}, "id"),
        (struct(id=spark.DoubleType()), {"id": 1.5}, "id"),
        (struct(id=spark.LongType(), total=spark.DecimalType(12, 3)), {"id": 1, "total": Decimal("0.125")}, "Scale"),
        (spark.StringType(), "x", "record"),
    ],
)
def test_an_avro_value_that_does_not_fit_the_schema_fails_the_write(
    registry: Path, data_type: spark.DataType, value: Any, why: str
) -> None:
    """Nothing is cut: not a number, not a field that the schema lacks."""
    with pytest.raises(PipelineError, match=rf"^valueFormat=avro: a value does not fit schema 2: .*{why}"):
        written(registry, data_type, value)


def test_a_number_beyond_its_avro_type_and_an_unknown_field_fail_the_write(registry: Path) -> None:
    total = {"total": Decimal(1), "gone": ""}
    types = {"total": spark.DecimalType(9, 2), "gone": spark.StringType()}
    with pytest.raises(PipelineError, match=r"does not fit schema 1: .*id is <4294967296>"):
        written(registry, struct(id=spark.LongType(), **types), {"id": 2**32, **total}, valueSchema="1")
    with pytest.raises(PipelineError, match=r"does not fit schema 2: record contains more fields .*: gone"):
        written(registry, struct(id=spark.LongType(), **types), {"id": 1, **total})


def test_a_protobuf_value_that_does_not_fit_the_message_fails_the_write(registry: Path) -> None:
    with pytest.raises(PipelineError, match=r"valueFormat=protobuf: a value does not fit shop\.Order"):
        order(registry, state="NOTHING")
    with pytest.raises(PipelineError, match=r"does not fit shop\.Order: .*NoneType"):
        order(registry, lines=[None])


def test_what_the_sink_writes_any_reader_of_avro_reads(registry: Path) -> None:
    value = written(
        registry, struct(id=spark.LongType(), total=spark.DecimalType(9, 2)), {"id": 1, "total": Decimal(2)}
    )
    found = fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schemas.SECOND), None)
    assert (found["id"], found["total"]) == (1, Decimal("2.00"))  # type: ignore[index, call-overload]

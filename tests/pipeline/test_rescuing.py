"""Values for the columns of a table that may be older than their schema: what it takes, and the rest as JSON."""

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sharequeue_pipeline.source.registry_column import RegistryColumn, divided

from tests.pipeline import schemas
from tests.pipeline.test_registry import order

AT = datetime.datetime(2026, 11, 22, 8, tzinfo=datetime.UTC)
ITEM = pa.struct([("sku", pa.string())])


@pytest.mark.parametrize(
    ("value", "of", "kept", "rest"),
    [
        ({"id": 5, "new": "n"}, pa.struct([("id", pa.int32())]), {"id": 5}, {"new": "n"}),
        (
            {"id": 2**40, "note": "n"},
            pa.struct([("id", pa.int32()), ("note", pa.string())]),
            {"note": "n"},
            {"id": 2**40},
        ),
        ({"a": {"b": 1, "c": 2}}, pa.struct([("a", pa.struct([("b", pa.int64())]))]), {"a": {"b": 1}}, {"a": {"c": 2}}),
        ([{"sku": "x"}], pa.list_(ITEM), [{"sku": "x"}], None),
        ([{"sku": "x"}, {"sku": 2}], pa.list_(ITEM), [{"sku": "x"}, {}], [{"sku": "x"}, {"sku": 2}]),
        ("text", pa.int32(), None, "text"),
        (5, pa.timestamp("us", "UTC"), None, 5),
        (AT, pa.timestamp("us", "UTC"), AT, None),
        (Decimal("12.345"), pa.decimal128(4, 2), None, Decimal("12.345")),
        ({"x": 1}, pa.map_(pa.string(), pa.int32()), {"x": 1}, None),
        (None, ITEM, None, None),
    ],
)
def test_a_column_takes_what_fits_and_the_rest_is_kept(value: Any, of: Any, kept: Any, rest: Any) -> None:
    taken, left = divided(value, of)
    assert (pa.array([taken], of), left) == (pa.array([kept], of), rest)


def column(registry: Path, value_format: str, schema: int, of: Any, *values: bytes) -> tuple[list[Any], list[Any]]:
    """What a column takes, and the rests. A value that cannot be read is a `malformed` one."""
    malformed: dict[int, str] = {}
    opened = schemas.opened(registry, value_format, schema, "shop.Order" if value_format == "protobuf" else None)
    made = RegistryColumn(opened, of, malformed, same=True, rescues=True)
    taken = made(pa.array(values, pa.binary()), None).to_pylist()
    assert {place for place, rest in made.rests.items() if "_malformed" in rest} == set(malformed)
    return taken, [json.loads(made.rests.get(place, "null")) for place in range(len(values))]


def test_fields_of_a_newer_avro_schema_are_rescued_and_others_stay(tmp_path: Path) -> None:
    registry = schemas.write(tmp_path / "schemas")
    of = pa.struct([("id", pa.int32()), ("total", pa.decimal128(9, 2)), ("gone", pa.string())])
    own = schemas.avro(1, schemas.FIRST, {"id": 1, "total": Decimal(1), "gone": "x"})
    small, large = (
        schemas.avro(2, schemas.SECOND, {"id": number, "total": Decimal(2), "note": None, "at": AT, "raw": b"r"})
        for number in (2, 2**40)
    )
    taken, rests = column(registry, "avro", 1, of, own, small, large, b"what")
    more = {"at": "2026-11-22T08:00:00Z", "raw": "cg=="}
    assert [each and each["id"] for each in taken] == [1, 2, None, None]
    assert [each and str(each["total"]) for each in taken] == ["1.00", "2.00", "2.00", None]
    assert rests[:3] == [None, more, {"id": 2**40, **more}]
    assert (rests[3]["_base64"], "it has no schema id" in rests[3]["_malformed"]) == ("d2hhdA==", True)


def test_set_fields_of_another_protobuf_schema_are_rescued(tmp_path: Path) -> None:
    registry = schemas.write(tmp_path / "schemas")
    of = pa.struct([("id", pa.int64()), ("gone", pa.string())])
    taken, rests = column(registry, "protobuf", 7, of, order(registry, id=5, price=0.5), order(registry, id=6))
    assert [each["id"] for each in taken] == [5, 6]
    assert rests == [{"price": 0.5}, None]

"""Schemas of a registry over HTTP, without Spark and without a gateway."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import source_options

from tests.pipeline import schemas
from tests.pipeline.test_registry import order, read


@pytest.fixture
def registry() -> Iterator[schemas.RegistryServer]:
    with schemas.RegistryServer().running() as server:
        server.put(1, schemas.FIRST)
        server.put(2, schemas.SECOND, schemaType="AVRO")
        yield server


def older(number: int) -> bytes:
    return schemas.avro(1, schemas.FIRST, {"id": number, "total": Decimal(number), "gone": "x"})


def test_each_schema_is_asked_for_once_also_when_it_is_new(registry: schemas.RegistryServer) -> None:
    for _ in range(2):
        found, malformed = read(registry.url, "avro", older(1), older(2))
        assert ([each["id"] for each in found], malformed) == ([1, 2], {})
    assert registry.asked == ["/schemas/ids/2", "/schemas/ids/1"]
    registry.put(3, schemas.FIRST)
    found, _ = read(registry.url, "avro", older(1), b"\0\0\0\0\x03" + older(7)[5:])
    assert [each["id"] for each in found] == [1, 7]
    assert registry.asked[2:] == ["/schemas/ids/3"]


def test_a_value_of_an_unknown_schema_is_malformed(registry: schemas.RegistryServer) -> None:
    registry.put(9, {}, schemaType="JSON")
    unknown, other = (b"\0\0\0\0" + bytes([number]) + older(1)[5:] for number in (8, 9))
    found, malformed = read(registry.url, "avro", unknown, unknown, other, older(4))
    assert [each["id"] for each in found] == [4]
    assert malformed["10"] == f"malformed: there is no schema 8: schemaRegistry '{registry.url}' has no avro schema 8"
    assert sorted(malformed) == ["10", "11", "12"]
    assert registry.asked.count("/schemas/ids/8") == 1


@pytest.mark.parametrize(("text", "header"), [("u:p", "Basic dTpw"), ("t0ken", "Bearer t0ken")])
def test_a_file_has_the_login(registry: schemas.RegistryServer, tmp_path: Path, text: str, header: str) -> None:
    registry.login = header
    (tmp_path / "login").write_text(f"{text}\n")
    found, _ = read(registry.url, "avro", older(1), schemaRegistryLogin=str(tmp_path / "login"))
    assert [each["id"] for each in found] == [1]


def test_faults_are_one_line(registry: schemas.RegistryServer, tmp_path: Path) -> None:
    registry.login = "Bearer t0ken"
    with pytest.raises(
        PipelineError, match="it wants another login: schemaRegistryLogin names a file with user:password"
    ):
        read(registry.url, "avro")
    with pytest.raises(PipelineError, match=r"schemaRegistryLogin cannot be used: .*none"):
        read(registry.url, "avro", schemaRegistryLogin=str(tmp_path / "none"))
    registry.login = ""
    with pytest.raises(PipelineError, match="has no avro schema 5"):
        read(registry.url, "avro", schema=5)
    registry.documents["/schemas/ids/6"] = {"error_code": 404, "message": "HTTP 404 Not Found"}
    with pytest.raises(PipelineError, match=f"'{registry.url}': HTTP 404 Not Found"):
        read(registry.url, "avro", schema=6)
    options = {"topics": "t", "valueFormat": "avro", "valueSchema": "1"}
    with pytest.raises(PipelineError, match="a directory has no login"):
        source_options({**options, "schemaRegistry": "/schemas", "schemaRegistryLogin": "f"})
    with pytest.raises(PipelineError, match="must not hold a user name") as refused:
        source_options({**options, "schemaRegistry": "http://u:pl4nted@localhost"})
    assert "pl4nted" not in str(refused.value)


def test_a_registry_that_is_busy_or_away_is_asked_again(registry: schemas.RegistryServer) -> None:
    registry.busy = 2
    found, _ = read(f"http://127.0.0.1:9,{registry.url}", "avro", older(1))
    assert [each["id"] for each in found] == [1]


def test_schemas_that_a_schema_refers_to_are_read_before_it(registry: schemas.RegistryServer) -> None:
    money: dict[str, Any] = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "int"}]}
    bill = {"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": "shop.Money"}]}
    registry.put(4, bill, references=[{"name": "shop.Money", "subject": "money/value", "version": 7}])
    registry.put(0, money)
    registry.documents["/subjects/money%2Fvalue/versions/7"] = registry.documents["/schemas/ids/0"]
    value = schemas.avro(4, {**bill, "fields": [{"name": "sum", "type": money}]}, {"sum": {"cents": 5}})
    assert read(registry.url, "avro", value, schema=4) == ([{"sum": {"cents": 5}}], {})


def test_circles_and_long_chains_of_references_are_refused(registry: schemas.RegistryServer) -> None:
    for number in range(102):
        registry.put(0, "x", references=[{"name": f"n{number + 1}", "subject": f"n{number + 1}", "version": 1}])
        registry.documents[f"/subjects/n{number}/versions/1"] = registry.documents["/schemas/ids/0"]
    registry.documents["/schemas/ids/0"] = registry.documents["/subjects/n0/versions/1"]
    with pytest.raises(PipelineError, match="refers to more than 100 others"):
        read(registry.url, "avro", schema=0)
    registry.documents["/subjects/n2/versions/1"] = registry.documents["/subjects/n0/versions/1"]
    with pytest.raises(PipelineError, match="cannot be used"):
        read(registry.url, "avro", schema=0)


def test_protobuf_is_read_without_protoc(registry: schemas.RegistryServer) -> None:
    registry.put_proto("/schemas/ids/8", schemas.order_file(older=False))
    value = order(registry.url, id=5, tags=["a"], at=datetime.datetime.fromtimestamp(1.5, datetime.UTC))
    found, malformed = read(registry.url, "protobuf", value, schema=8, valueMessage="shop.Order")
    assert (found[0]["id"], found[0]["tags"], found[0]["at"].timestamp(), malformed) == (5, ["a"], 1.5, {})
    registry.documents["/schemas/ids/7?format=serialized"] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    with pytest.raises(PipelineError, match="it knows no format=serialized"):
        read(registry.url, "protobuf", schema=7)

"""A schema registry in a directory: Avro and Protobuf schemas of orders, in two versions each."""

import base64
import io
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, timestamp_pb2
from pyspark.sql import types as spark
from sharequeue_pipeline.options import GatewayOptions, ValueOptions
from sharequeue_pipeline.registry import registry_values

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "gone", "type": "string", "default": "-"},
    ],
}
SECOND: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {
            "name": "at",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
            "default": 1_700_000_000_000,
        },
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
    ],
}


def write(directory: Path) -> Path:
    """Schemas 1 and 2 are Avro, 7 and 8 Protobuf. Returns: `directory`."""
    directory.mkdir(parents=True)
    for schema_id, schema in ((1, FIRST), (2, SECOND)):
        (directory / f"{schema_id}.avsc").write_text(json.dumps(schema))
    (directory / "7.desc").write_bytes(descriptor_set(order_file(older=True)))
    (directory / "8.desc").write_bytes(descriptor_set(order_file(older=False)))
    return directory


def opened(
    registry: Path | str, value_format: str, schema_id: int, message: str | None = None, login: str | None = None
) -> Any:
    """The values of a schema."""
    found = registry_values(
        ValueOptions(
            gateway=GatewayOptions(),
            value_format=value_format,
            value_schema=schema_id,
            schema_registry=str(registry),
            value_message=message,
            registry_login=login,
        )
    )
    assert found is not None
    return found


def data_type(ddl: str) -> spark.DataType:
    """A type for its DDL as Spark reads it, which needs no Spark here."""
    outer, _, inner = ddl.partition("<")
    parts = _parts(inner[:-1])
    if outer == "struct":
        fields = [part[1:].split("`:", 1) for part in parts]
        return spark.StructType([spark.StructField(name, data_type(of)) for name, of in fields])
    if outer == "array":
        return spark.ArrayType(data_type(*parts))
    if outer == "map":
        return spark.MapType(*map(data_type, parts))
    return spark._parse_datatype_json_value({"bigint": "long", "int": "integer"}.get(outer, outer))


def _parts(inner: str) -> list[str]:
    """Split at the commas that are in no brackets."""
    found, depth = [""], 0
    for character in inner:
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return found


def avro(schema_id: int, schema: Any, value: Any) -> bytes:
    """A value in the wire format."""
    out = io.BytesIO(b"\0" + schema_id.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


Field = descriptor_pb2.FieldDescriptorProto


def field(
    message: Any, name: str, number: int, kind: int, of: str = "", *, repeated: bool = False, optional: bool = False
) -> None:
    """Add a field to a message of proto3. `optional`: with presence."""
    added = message.field.add(name=name, number=number, type=kind, type_name=of or None)
    added.label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
    if optional:
        added.proto3_optional = True
        added.oneof_index = len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def order_file(*, older: bool) -> Any:
    """`order.proto`. The older version lacks most fields, and has one that the newer lacks."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    refund = file.message_type.add(name="Refund")
    field(refund, "id", 1, Field.TYPE_INT64)
    order = file.message_type.add(name="Order")
    field(order, "id", 1, Field.TYPE_INT64)
    if older:
        field(order, "gone", 2, Field.TYPE_STRING)
        return file
    field(order, "price", 3, Field.TYPE_DOUBLE)
    field(order, "note", 4, Field.TYPE_STRING, optional=True)
    field(order, "at", 5, Field.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    field(order, "state", 6, Field.TYPE_ENUM, ".shop.State")
    field(order, "lines", 7, Field.TYPE_MESSAGE, ".shop.Order.Line", repeated=True)
    field(order, "counts", 8, Field.TYPE_MESSAGE, ".shop.Order.CountsEntry", repeated=True)
    field(order, "big", 9, Field.TYPE_UINT64)
    field(order, "tags", 10, Field.TYPE_STRING, repeated=True)
    line = order.nested_type.add(name="Line")
    field(line, "sku", 1, Field.TYPE_STRING)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    field(entry, "key", 1, Field.TYPE_STRING)
    field(entry, "value", 2, Field.TYPE_INT32)
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    return file


def descriptor_set(*files: Any) -> bytes:
    """As protoc writes it with --include_imports."""
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.extend(files)
    return found.SerializeToString()


def protobuf(schema_id: int, indexes: Sequence[int], message: bytes) -> bytes:
    """A value in the wire format. `indexes`: as bytes on the wire, without zigzag."""
    return b"\0" + schema_id.to_bytes(4, "big") + bytes(indexes) + message


class RegistryServer(ThreadingHTTPServer):
    """A schema registry as Confluent's clients see it. `documents`: its answers by path; the others are 404."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.url = f"http://127.0.0.1:{self.server_port}/registry"
        self.documents: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.login = ""
        self.busy = 0
        """How many of the next requests get a 503."""

    def put(self, schema_id: int, schema: Any, **more: Any) -> None:
        self.documents[f"/schemas/ids/{schema_id}"] = {"schema": json.dumps(schema), **more}

    def put_proto(self, path: str, file: Any, **more: Any) -> None:
        """A .proto file, as it is given with format=serialized."""
        text = base64.b64encode(file.SerializeToString()).decode()
        self.documents[f"{path}?format=serialized"] = {"schema": text, "schemaType": "PROTOBUF", **more}

    @contextmanager
    def running(self) -> "Iterator[RegistryServer]":
        thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


class _Answer(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_GET(self) -> None:
        registry, path = self.server, self.path.removeprefix("/registry")
        registry.asked.append(path)
        document = registry.documents.get(path, {"error_code": 40403, "message": "Schema not found"})
        status = 404 if "error_code" in document else 200
        if registry.login not in ("", self.headers["Authorization"]):
            status, document = 401, {"error_code": 401, "message": "Unauthorized"}
        elif registry.busy:
            registry.busy -= 1
            status, document = 503, {"error_code": 50003, "message": "no leader"}
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

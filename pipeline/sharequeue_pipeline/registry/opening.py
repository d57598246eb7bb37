"""From options to values: which schema of which format a column has.

The parts that read schemas and values are imported when a query has such a format.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import types as spark

if TYPE_CHECKING:
    from sharequeue_pipeline.registry.schema_folder import SchemaFolder

SUFFIXES: Final = {"avro": "avsc", "protobuf": "desc"}


class RegistryValues(Protocol):
    """Values of one column; see `avro_values` and `protobuf_values`."""

    data_type: spark.DataType

    def decode(self, value: bytes) -> Any: ...
    def check(self, given: spark.DataType) -> None: ...
    def encode(self, value: Any) -> bytes: ...


@dataclass(frozen=True)
class SchemaName:
    """A schema as options name it. `schema`: an id or a subject;
    `message`: of a Protobuf schema, None for its first."""

    value_format: str
    registry: str
    schema: str
    message: str | None

    def folder(self) -> "SchemaFolder":
        from sharequeue_pipeline.registry.schema_folder import SchemaFolder  # noqa: PLC0415

        return SchemaFolder(self.registry, SUFFIXES[self.value_format])

    def pinned(self) -> str:
        """The schema id. Raises: PipelineError: the subject is unknown."""
        return str(self.folder().resolve(self.schema))

    def open(self) -> RegistryValues:
        """Raises: PipelineError: the schema is missing, or cannot be used."""
        schemas = self.folder()
        schema_id = schemas.resolve(self.schema)
        if self.value_format == "avro":
            from sharequeue_pipeline.registry.avro_values import AvroValues  # noqa: PLC0415

            return AvroValues(schemas, schema_id)
        from sharequeue_pipeline.registry.protobuf_values import ProtobufValues  # noqa: PLC0415

        return ProtobufValues(schemas, schema_id, self.message)


def ddl(data_type: spark.DataType) -> str:
    """A type as DDL; names may be any words."""
    if isinstance(data_type, spark.StructType):
        return f"struct<{','.join(f'`{field.name}`:{ddl(field.dataType)}' for field in data_type.fields)}>"
    if isinstance(data_type, spark.ArrayType):
        return f"array<{ddl(data_type.elementType)}>"
    if isinstance(data_type, spark.MapType):
        return f"map<{ddl(data_type.keyType)},{ddl(data_type.valueType)}>"
    return data_type.simpleString()

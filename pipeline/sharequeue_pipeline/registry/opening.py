"""From options to values: which schema of which format a column has.

The parts that read schemas and values are imported when a query has such a format.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql import types as spark

from sharequeue_pipeline.options import REGISTRY_FORMATS, SinkOptions, SourceOptions

if TYPE_CHECKING:
    from sharequeue_pipeline.registry.schema_folder import SchemaFolder

Options = TypeVar("Options", SourceOptions, SinkOptions)


class RegistryValues(Protocol):
    """Values of one column; see `avro_values` and `protobuf_values`."""

    data_type: spark.DataType

    def decode(self, value: bytes) -> Any: ...
    def encode(self, value: Any) -> bytes: ...


@dataclass(frozen=True)
class SchemaName:
    """A schema as options name it. `schema`: an id or a subject; `message`: of a Protobuf schema, None for its first.

    Methods raise PipelineError: the schema or the subject is missing, or cannot be used.
    """

    value_format: str
    registry: str
    schema: str
    message: str | None

    def folder(self) -> "SchemaFolder":
        from sharequeue_pipeline.registry.schema_folder import SchemaFolder  # noqa: PLC0415

        return SchemaFolder(self.registry, "avsc" if self.value_format == "avro" else "desc")

    def open(self) -> RegistryValues:
        schemas = self.folder()
        schema_id = schemas.resolve(self.schema)
        if self.value_format == "avro":
            from sharequeue_pipeline.registry.avro_values import AvroValues  # noqa: PLC0415

            return AvroValues(schemas, schema_id)
        from sharequeue_pipeline.registry.protobuf_values import ProtobufValues  # noqa: PLC0415

        return ProtobufValues(schemas, schema_id, self.message)


def registered_schema(options: SourceOptions | SinkOptions) -> SchemaName | None:
    """The schema of values in the registry; None for formats without one."""
    if options.value_format not in REGISTRY_FORMATS:
        return None
    assert options.schema_registry is not None  # the options were checked
    assert options.value_schema is not None
    return SchemaName(options.value_format, options.schema_registry, options.value_schema, options.value_message)


def pinned(options: Options) -> Options:
    """The options with a schema id in place of a subject, so that all tasks have one schema. Raises: PipelineError."""
    name = registered_schema(options)
    return options if name is None else replace(options, value_schema=str(name.folder().resolve(name.schema)))

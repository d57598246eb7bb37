"""From options to values: which schema of which format a column has.

The parts that read schemas and values are imported when a query has such a format.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql import types as spark

from sharequeue_pipeline.options import REGISTRY_FORMATS, ValueOptions

if TYPE_CHECKING:
    from sharequeue_pipeline.registry.schema_folder import SchemaFolder

Options = TypeVar("Options", bound=ValueOptions)


class RegistryValues(Protocol):
    """Values of one column; see `avro_values` and `protobuf_values`."""

    data_type: spark.DataType

    def decode(self, value: bytes) -> Any: ...
    def encode(self, value: Any) -> bytes: ...


def registry_values(options: ValueOptions) -> RegistryValues | None:
    """The values of the options' schema; None for formats without one.

    Raises: PipelineError: the schema is missing, or cannot be used.
    """
    if options.value_format not in REGISTRY_FORMATS:
        return None
    schemas, schema_id = _schema(options)
    if options.value_format == "avro":
        from sharequeue_pipeline.registry.avro_values import AvroValues  # noqa: PLC0415

        return AvroValues(schemas, schema_id)
    from sharequeue_pipeline.registry.protobuf_values import ProtobufValues  # noqa: PLC0415

    return ProtobufValues(schemas, schema_id, options.value_message)


def pinned(options: Options) -> Options:
    """The options with a schema id in place of a subject, so that all tasks have one schema. Raises: PipelineError."""
    if options.value_format not in REGISTRY_FORMATS:
        return options
    return replace(options, value_schema=str(_schema(options)[1]))


def _schema(options: ValueOptions) -> tuple["SchemaFolder", int]:
    from sharequeue_pipeline.registry.schema_folder import SchemaFolder  # noqa: PLC0415

    assert options.schema_registry is not None  # the options were checked
    assert options.value_schema is not None
    folder = SchemaFolder(options.schema_registry, "avsc" if options.value_format == "avro" else "desc")
    return folder, folder.resolve(options.value_schema)

"""Values with a schema registry's wire format: a schema id in front of Avro or Protobuf.

    value, Avro       00 │ schema id, 4 bytes │ datum
    value, Protobuf   00 │ schema id, 4 bytes │ message indexes │ message

The id in a value names the schema that it was written with, the *writer schema*. The *reader schema* is the one that
the options name; it gives the columns. A value of another version is read by the rules of its format: Avro resolves the
writer schema to the reader schema, Protobuf goes by field numbers.

`wire_format` cuts and joins the parts of a value. `avro_values` and `protobuf_values` read and write values; they are
imported when a query needs them. The room `schemas` finds schemas. Other rooms use `registry_values` and `Malformed`.
"""

from typing import TYPE_CHECKING

from sharequeue_pipeline.options import REGISTRY_FORMATS, ValueOptions

if TYPE_CHECKING:
    from sharequeue_pipeline.registry.avro_values import AvroValues
    from sharequeue_pipeline.registry.protobuf_values import ProtobufValues


def registry_values(options: ValueOptions) -> "AvroValues | ProtobufValues | None":
    """The values of the options' schema; None for formats without one. Raises: PipelineError: it cannot be used."""
    if options.value_format not in REGISTRY_FORMATS:
        return None
    if options.value_format == "avro":
        from sharequeue_pipeline.registry.avro_values import AvroValues  # noqa: PLC0415

        return AvroValues(options)
    from sharequeue_pipeline.registry.protobuf_values import ProtobufValues  # noqa: PLC0415

    return ProtobufValues(options)

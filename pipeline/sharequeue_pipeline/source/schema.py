"""The columns of the source, and the types of values in them."""

from typing import Final

from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.registry import registry_values

COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "delivery_count")


def value_type(options: SourceOptions) -> str:
    """The type of values as DDL. Raises: PipelineError: `valueSchema` cannot be used."""
    values = registry_values(options)
    return options.value_format if values is None else values.ddl


def columns(options: SourceOptions) -> str:
    """The schema of the source as DDL."""
    return (
        "topic string, partition int, offset bigint, timestamp timestamp, "
        f"key {options.key_format}, value {value_type(options)}, headers map<string,string>, delivery_count int"
    )


def check_columns(schema: spark.StructType) -> None:
    """Raises: PipelineError: the schema is not the source's."""
    if tuple(schema.names) != COLUMNS:
        raise PipelineError(
            f"the columns are {', '.join(COLUMNS)}: leave out .schema(…), and give JSON its type with from_json"
        )

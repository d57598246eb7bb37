"""The columns of the source as DDL and as an Arrow schema, and the types of values in them."""

from typing import Any, Final

import pyspark
from pyspark.sql import types as spark

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.registry import registry_values
from sharequeue_pipeline.spark_version import NAMED_TIME_ZONE, reaches

RESCUED: Final = "_rescued_data"
"""The column of a typed table with the parts of a value that no column takes, as JSON."""
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


def arrow_schema(schema: spark.StructType) -> Any:
    """The `pyarrow.Schema` of rows of Spark, with times in UTC. Each version has its own way to ask for that."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - the start of a query needs no Arrow

    if reaches(pyspark.__version__, NAMED_TIME_ZONE):
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)

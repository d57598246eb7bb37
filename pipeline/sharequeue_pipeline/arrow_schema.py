"""The Arrow schema of rows of Spark, with times in UTC. Each version of Spark has its own way to ask for that."""

from typing import Any

import pyspark
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from sharequeue_pipeline.spark_version import NAMED_TIME_ZONE, reaches


def arrow_schema(schema: spark.StructType) -> Any:
    """Returns: a `pyarrow.Schema`."""
    if reaches(pyspark.__version__, NAMED_TIME_ZONE):
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)

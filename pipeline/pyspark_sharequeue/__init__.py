"""Registers the format `sharequeue` with Spark: it imports packages named `pyspark_…` and takes their `DefaultSource`.

So from Spark 4.1 on `format("sharequeue")` and `USING sharequeue` work in any session. docs/pipeline.md says what needs
`sharequeue_pipeline.register` even so. Spark 4.0 refuses to register a format that it has found by itself, so there the
format is left to `register`.
"""

import pyspark
from sharequeue_pipeline.spark_version import FOUND_BY_SPARK, reaches

if reaches(pyspark.__version__, FOUND_BY_SPARK):
    from sharequeue_pipeline.data_source import ShareQueueDataSource as DefaultSource

    __all__ = ["DefaultSource"]
    """Spark knows the source by this name."""

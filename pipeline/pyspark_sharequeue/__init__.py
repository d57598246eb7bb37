"""Registers the format `sharequeue` with Spark: it imports packages named `pyspark_…` and takes their `DefaultSource`.

So `format("sharequeue")` and `USING sharequeue` work in any session, without `sharequeue_pipeline.register`.
docs/pipeline.md says what needs `register`. With Spark 4.0 every program does: there, a session cannot register a
format that Spark has found by itself, and only a registered format reports to its session.
"""

import pyspark
from sharequeue_pipeline.spark_version import REGISTERED_AGAIN, reaches

if reaches(pyspark.__version__, REGISTERED_AGAIN):
    from sharequeue_pipeline.data_source import ShareQueueDataSource as DefaultSource

    __all__ = ["DefaultSource"]
    """Spark knows the source by this name."""

"""Registers the format `sharequeue` with Spark: it imports packages named `pyspark_…` and takes their `DefaultSource`.

So `format("sharequeue")` and `USING sharequeue` work in any session, without `sharequeue_pipeline.register`.
docs/pipeline.md says what needs `register`.
"""

from sharequeue_pipeline.data_source import ShareQueueDataSource as DefaultSource

__all__ = ["DefaultSource"]
"""Spark knows the source by this name."""

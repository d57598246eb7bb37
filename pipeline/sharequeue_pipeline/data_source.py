"""The format `sharequeue` for Spark: its schema, and which reader or writer serves which call.

Readers and writers are imported when they are needed: Spark imports this module in a new Python process at each start
of a stream, and the query waits for that.
"""

from typing import Any

import pyspark
from pyspark.sql import types as spark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import check_use, limits_of, sink_options, source_options
from sharequeue_pipeline.source.schema import check_columns, columns
from sharequeue_pipeline.source.topic_names import TopicNames
from sharequeue_pipeline.spark_version import STREAM_LIMITS, STREAM_WRITES, reaches
from sharequeue_pipeline.worker_process import spare_modules


class ShareQueueDataSource(DataSource):
    """The data source that Spark makes for `format("sharequeue")`. docs/pipeline.md has the options."""

    @classmethod
    def name(cls) -> str:
        return "sharequeue"

    def schema(self) -> str:
        spare_modules()
        options = source_options(self.options)
        with GatewayClient(options.gateway) as gateway:
            TopicNames(options).names(gateway, first_try=True)
            for topic in options.topics:
                gateway.describe(topic, first_try=True)
        return columns(options)

    def reader(self, schema: spark.StructType) -> DataSourceReader:
        spare_modules()
        options = source_options(self.options)
        check_columns(schema)
        of_log = options.group is None and options.accept is None
        reader: DataSourceReader
        if of_log:
            from sharequeue_pipeline.source.log_batch import LogBatchReader  # noqa: PLC0415

            reader = LogBatchReader(options, schema)
        else:
            from sharequeue_pipeline.source.group_batch import GroupBatchReader  # noqa: PLC0415

            reader = GroupBatchReader(options, schema)
        check_use(self.options, stream=False, group=not of_log)
        return reader

    def streamReader(self, schema: spark.StructType) -> DataSourceStreamReader:
        try:
            options = source_options(self.options)
            check_columns(schema)
            reader: DataSourceStreamReader
            of_log = options.mode == "log"
            if of_log:
                from sharequeue_pipeline.source.log_stream import LogStreamReader  # noqa: PLC0415

                reader = LogStreamReader(options, schema)
            else:
                _check_version(STREAM_LIMITS, "a stream of a group", "mode=log reads without one")
                from sharequeue_pipeline.source.group_stream import GroupStreamReader  # noqa: PLC0415

                reader = GroupStreamReader(options, schema)
            for name in limits_of(self.options):
                _check_version(
                    STREAM_LIMITS, f"the option {name}", "leave it out: a micro-batch has all records there are"
                )
            check_use(self.options, stream=True, group=not of_log)
            return reader
        except PipelineError as fault:
            return _RefusedStream(fault)

    def writer(self, schema: spark.StructType, overwrite: bool) -> DataSourceWriter:
        from sharequeue_pipeline.sink.batch_writer import BatchWriter  # noqa: PLC0415

        return BatchWriter(sink_options(self.options), schema, overwrite)

    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> DataSourceStreamWriter:
        _check_version(STREAM_WRITES, "a stream that writes", "write each of its batches in foreachBatch")
        from sharequeue_pipeline.sink.stream_writer import StreamWriter  # noqa: PLC0415

        return StreamWriter(sink_options(self.options), schema)


def _check_version(needed: tuple[int, int], what: str, instead: str) -> None:
    """Raises: PipelineError: this Spark is too old."""
    if not reaches(pyspark.__version__, needed):
        version = ".".join(map(str, needed))
        raise PipelineError(f"{what} needs Spark {version} or later, and this is {pyspark.__version__}; {instead}")


class _RefusedStream(DataSourceStreamReader):
    """Raises the fault at its first use. If `streamReader` itself raised it, Spark would hide the text."""

    def __init__(self, fault: PipelineError) -> None:
        self._text = str(fault)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise PipelineError(self._text)

    initialOffset = latestOffset = partitions = read = _refuse

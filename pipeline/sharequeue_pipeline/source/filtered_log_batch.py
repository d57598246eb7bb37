"""A batch read of the log, narrowed by the filters of the query. Spark tells them to a Python source since 4.1."""

from collections.abc import Iterable

from pyspark.sql import types as spark
from pyspark.sql.datasource import Filter

from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.log_batch import LogBatchReader
from sharequeue_pipeline.source.log_times import first_at
from sharequeue_pipeline.source.pushed_filters import begin_ms
from sharequeue_pipeline.source.pushed_filters import narrowed as narrowed_by


class FilteredLogBatchReader(LogBatchReader):
    """The same in a session that pushes filters down. Spark refuses a reader with `pushFilters` in other sessions."""

    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        super().__init__(options, schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep the filters to narrow the read. Returns: all of them, because Spark must apply them to the records."""
        self._filters = list(filters)
        return filters

    def narrowed(self, gateway: GatewayClient, wanted: list[Range]) -> list[Range]:
        found = narrowed_by([entry for entry in wanted if entry.size > 0], self._filters)
        time_ms = begin_ms(self._filters)
        if time_ms is None:
            return found
        late = []
        for entry in found:
            bounds = entry.first_offset, entry.last_offset + 1
            first = first_at(gateway, (entry.topic, entry.partition), bounds, time_ms)
            if first is not None:
                late.append(entry._replace(first_offset=first))
        return late

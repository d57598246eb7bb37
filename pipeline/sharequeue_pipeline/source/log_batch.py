"""A batch read of the log by offsets, without a group and without locks: `spark.read` with `mode=log`."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sharequeue_pipeline import ranges
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source import log_offsets
from sharequeue_pipeline.source.log_times import offsets_at
from sharequeue_pipeline.source.range_reads import read_ranges
from sharequeue_pipeline.source.topic_bounds import log_of, starts_of
from sharequeue_pipeline.source.topic_names import TopicNames


class LogBatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: spark.StructType) -> None:
        log_offsets.check_batch(options.starting)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with GatewayClient(options.gateway) as gateway:
            topic_ids, bounds, _ = log_of(gateway, TopicNames(options), committed=options.isolation == "read_committed")
            starts = starts_of(gateway, options, bounds)
            ending = options.ending
            if options.ending_at is not None:
                ending = offsets_at(gateway, options.ending_at, bounds, "endingOffsetsByTimestamp", fail_if_none=False)
            ends = log_offsets.ends_of(ending, bounds, starts, fail_on_data_loss=options.fail_on_data_loss)
            wanted = [
                Range(*place, start, ends[place] - 1, topic_id=topic_ids[place[0]])
                for place, start in sorted(starts.items())
            ]
        return [InputPartition((None, share)) for share in ranges.split(wanted, options.parallelism)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_ranges(self._options, self._schema, partition)

"""The work of a task: it reads its ranges from the log, and hands their records to Spark as record batches."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as spark
from pyspark.sql.datasource import InputPartition

from sharequeue.client.consuming.outcomes import Outcome
from sharequeue_pipeline.ahead import one_ahead
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.group_client import GroupClient
from sharequeue_pipeline.options import SourceOptions
from sharequeue_pipeline.worker_process import spare_modules

if TYPE_CHECKING:
    from sharequeue_pipeline.source.record_columns import RecordColumns


def read_ranges(options: SourceOptions, schema: spark.StructType, partition: InputPartition | None) -> Iterator[Any]:
    """The records of a task's ranges, as record batches of the source's schema.

    `partition`: the member that holds the records (None for a read of the log), and the ranges.
    """
    if partition is None or partition.value is None:
        return  # `partitions` gave none, so Spark passes None, and from 4.2 on a partition of its own
    member_id, ranges = partition.value
    # heavy, and for tasks alone; both before `spare_modules`, which spares what they import
    from sharequeue_pipeline import record_answers  # noqa: F401, PLC0415
    from sharequeue_pipeline.source.record_columns import RecordColumns  # noqa: PLC0415

    columns = RecordColumns(options, schema)
    spare_modules()
    skip_deleted = options.group is not None or not options.fail_on_data_loss
    # of a group's records the group's own level decided when they were acquired
    level = "read_uncommitted" if options.group is not None or options.isolation is None else options.isolation
    with GatewayClient(options.gateway) as gateway, GroupClient(options.gateway) as rejecting:
        answers = ((entry, page) for entry in ranges for page in gateway.pages(entry, level, skip_deleted=skip_deleted))
        with closing(one_ahead(answers)) as found:
            for entry, records in ((entry, records) for entry, page in found for records in page):
                batch = columns.batch(entry, records)
                if columns.rejected and options.group is not None and member_id is not None:
                    reject(rejecting, options.group, member_id, columns)
                yield batch


def reject(gateway: GroupClient, group: str, member_id: str, columns: "RecordColumns") -> None:
    """Make dead letters of malformed records. A task that runs again finds them rejected already."""
    outcomes = [(entry, Outcome("reject", reason)) for entry, reason in columns.rejected]
    columns.rejected.clear()
    gateway.settle(group, member_id, outcomes)

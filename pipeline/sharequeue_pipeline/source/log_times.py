"""Offsets by time: the first record of a partition whose timestamp is not earlier than a given one, as in Kafka.

Producers may set timestamps, so they need not ascend. The gateway lists the latest timestamp of each stored batch; the
first batch that reaches the time is read.
"""

from sharequeue_pipeline.errors import PipelineError
from sharequeue_pipeline.gateway_client import GatewayClient
from sharequeue_pipeline.options import Offsets
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.log_offsets import Bounds, Place, named


def offsets_at(
    gateway: GatewayClient, times: int | Offsets, bounds: Bounds, option: str, *, fail_if_none: bool
) -> Offsets:
    """The first offset at or after a time, for every partition.

    Args:
        times: one time in ms for all partitions, or one for each.
        fail_if_none: whether a partition without such a record is refused; otherwise its offset is the log end.
    """
    wanted = dict.fromkeys(bounds, times) if isinstance(times, int) else named(times, bounds, option)
    found: Offsets = {}
    for place, time_ms in wanted.items():
        offset = first_at(gateway, place, bounds[place], time_ms)
        if offset is None and fail_if_none:
            raise PipelineError(
                f"{option}: no record of {place[0]}-{place[1]} has the timestamp {time_ms} or a later one; "
                "startingOffsetsByTimestampStrategy=latest begins at the end of such partitions"
            )
        found.setdefault(place[0], {})[place[1]] = bounds[place][1] if offset is None else offset
    return found


def first_at(gateway: GatewayClient, place: Place, bounds: tuple[int, int], time_ms: int) -> int | None:
    """The first offset in the bounds with this timestamp or a later one; None: there is none."""
    import pyarrow.compute as pc  # noqa: PLC0415 - most reads name no time

    start, end = bounds
    for batch in gateway.batches(*place, start, end):
        if batch.record_count and batch.max_timestamp_ms >= time_ms:
            entry = Range(*place, max(start, batch.base_offset), min(end - 1, batch.last_offset))
            for records in gateway.read(entry, "read_uncommitted"):
                late = records.filter(pc.greater_equal(records.column("timestamp_ms"), time_ms))
                if late.num_rows:
                    return int(late.column("offset")[0].as_py())
    return None

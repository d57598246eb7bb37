"""Names the bound that makes new records of a share-partition wait, for those who look at it. Pure.

    held        ≤ share.partition.max.record.locks     also stops records that are delivered again
    held + waiting ≤ that + share.partition.max.delayed.records
    runs        ≤ max_runs, span ≤ max_span            memory, and the int32 of the count of finished records
    runs of all share-partitions ≤ max_delayed_runs    those with more than their equal part wait

With Kafka's defaults the span alone is bounded. `acquisition.room` applies these bounds, except the last one: the
leader of the share-partitions finds those with too many runs by `equal_part`.
"""

from collections.abc import Sequence
from typing import Final

from sharequeue_gateway.share_partition.acquisition import room
from sharequeue_gateway.share_partition.window import Window

RECORD_LOCKS: Final = "share.partition.max.record.locks"
DELAYED_RECORDS: Final = "share.partition.max.delayed.records"
RUNS: Final = "runs"
SPAN: Final = "span"
GATEWAY_RUNS: Final = "max_delayed_runs"

BOUNDS: Final = (RECORD_LOCKS, DELAYED_RECORDS, RUNS, SPAN, GATEWAY_RUNS)


def limited_by(window: Window) -> str | None:
    """The bound that makes new records wait, one of BOUNDS; None while there is room for one."""
    left, new = room(window, window.end_offset + 1)
    if new > 0:
        return None
    if left <= 0:
        return RECORD_LOCKS
    config = window.config
    if window.end_offset - window.start_offset >= config.max_span:
        return SPAN
    if len(window.runs) >= config.max_runs:
        return RUNS
    return GATEWAY_RUNS if window.crowded else DELAYED_RECORDS


def equal_part(runs: Sequence[int], most: int) -> int | None:
    """The number of runs above which a window is crowded; None while all of them together have at most `most`.

    Args:
        runs: the number of runs of each window.
    """
    return most // len(runs) if sum(runs) > most else None

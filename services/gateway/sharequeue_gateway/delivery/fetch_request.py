"""What a fetch asks for, whichever gateway leads its share-partitions, and what it gets."""

from collections.abc import Sequence
from typing import NamedTuple

from sharequeue.protocol.errors import ApiError, NotLeaderOrFollower
from sharequeue.protocol.messages.records import Acknowledgement
from sharequeue.protocol.types import AcquireMode
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.machine import AcquiredRange


class FetchLimits(NamedTuple):
    """What one fetch may take and how long it may wait; all checked and capped."""

    max_records: int
    max_bytes: int
    min_bytes: int
    batch_size: int
    acquire_mode: AcquireMode
    deadline_ms: int
    look_at_ends: bool = True
    """Look at the end of the log before the answer is empty: another gateway may have appended just now."""


class Asked(NamedTuple):
    """One fetch of a member.

    `now_ms`: when the fetch was read. `turn`: the epoch of its share session, which rotates partitions that gave records
    equally long ago. `fetch_id`: names the fetch for a repeat. `acknowledgements`: those that the only other leader is
    to apply; with `atomic`, those of one share-partition together.
    """

    group_id: str
    member_id: str
    limits: FetchLimits
    now_ms: int
    turn: int | None = None
    fetch_id: str | None = None
    with_records: bool = True
    acknowledgements: Sequence[Acknowledgement] = ()
    atomic: bool = False


class AcquiredRecords(NamedTuple):
    """What a fetch acquired from one share-partition, and the record batches that hold it."""

    led: LedSharePartition
    ranges: Sequence[AcquiredRange]
    batches: Sequence[RecordBatch]


class PartitionFault(NamedTuple):
    """Why nothing can be fetched from a partition."""

    topic: str
    partition: int
    error: ApiError

    @property
    def led_elsewhere(self) -> bool:
        return self.error.error is NotLeaderOrFollower.error

"""The limits of a fetch and its result. They are the same for this gateway and for another leader."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.types import AcquireMode
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.machine import AcquiredRange
from sharequeue_http.forms.errors import ApiError


class FetchLimits(msgspec.Struct, frozen=True):
    """The most that one fetch may take, and its longest wait. All values are checked and capped."""

    max_records: int
    max_bytes: int
    min_bytes: int
    batch_size: int
    acquire_mode: AcquireMode
    deadline_ms: int
    lock_duration_ms: int | None = None
    """The length of the locks; None: as the group's setting says."""
    look_at_ends: bool = True
    """Read the log ends before an empty answer: another gateway may have appended just now."""

    @property
    def bytes_wanted(self) -> int:
        """The bytes that a fetch waits for: `max_bytes` are enough."""
        return min(self.min_bytes, self.max_bytes)


class Asked(msgspec.Struct, frozen=True):
    """One fetch of a member.

    `now_ms`: the time at which the request was read. `turn`: the epoch of its share session, which rotates partitions
    that gave records equally long ago. `fetch_id`: names the fetch for a repeat; `new_id`: no earlier fetch had it.
    `levels`: by topic id; the fetch takes records of one level, the lowest that has some. None: of all topics in turn.
    """

    group_id: str
    member_id: str
    limits: FetchLimits
    now_ms: int
    turn: int | None = None
    fetch_id: str | None = None
    with_records: bool = True
    new_id: bool = False
    levels: Mapping[str, int] | None = None


class AcquiredRecords(msgspec.Struct, frozen=True):
    """The ranges that a fetch acquired from one share-partition, and the record batches that hold them."""

    led: LedSharePartition
    ranges: Sequence[AcquiredRange]
    batches: Sequence[RecordBatch]


class PartitionFault(NamedTuple):
    """The reason why nothing can be fetched from a partition."""

    topic: str
    partition: int
    error: ApiError

    @property
    def led_elsewhere(self) -> bool:
        return self.error.error is NotLeaderOrFollower.error

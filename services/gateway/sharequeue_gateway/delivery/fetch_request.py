"""The result of a fetch at this gateway."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.acquisition import AcquiredRange
from sharequeue_http.forms.errors import ApiError


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

"""The result of a routed fetch, joined from the answers of its leaders."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import structs

from sharequeue.protocol.errors import BY_CODE, KAFKA_CODES
from sharequeue.protocol.messages.leaders import AcquiredEntry, LeaderFetchResponse
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, PartitionFault
from sharequeue_gateway.record_log.record_batch import holding
from sharequeue_gateway.routing.routing import MOVED
from sharequeue_gateway.share_partition.stream_window import SentRange
from sharequeue_http.forms.errors import ApiError

_entry: Final = msgspec.json.Decoder(AcquiredEntry)
decoded: Final = msgspec.json.Decoder(LeaderFetchResponse).decode


class Fetched(msgspec.Struct, frozen=True):
    """The joined result of a fetch. `passed_on`: encoded entries of other leaders, which `leaders` names."""

    acquired: Sequence[AcquiredRecords] = ()
    faults: Sequence[PartitionFault] = ()
    passed_on: Sequence[tuple[Node, msgspec.Raw]] = ()
    leaders: Sequence[PartitionLeader] = ()
    lock_duration_ms: int | None = None
    paused: bool = False
    """Whether another leader says that the group is paused."""

    @property
    def has_records(self) -> bool:
        return bool(self.acquired or self.passed_on)

    @property
    def moved(self) -> bool:
        """Return whether a partition has a new leader, or will soon have one."""
        return any(KAFKA_CODES[fault.error.error] in MOVED for fault in self.faults)

    def without_moved(self) -> "Fetched":
        """Return this result without the faults of partitions that moved."""
        return structs.replace(self, faults=[fault for fault in self.faults if not fault.led_elsewhere])

    def with_answer(self, node: Node, answer: LeaderFetchResponse) -> "Fetched":
        """Return this result, joined with the answer of another leader."""
        faults = [
            PartitionFault(fault.topic, fault.partition, ApiError(fault.detail, error=BY_CODE[fault.code]))
            for fault in answer.errors
        ]
        return Fetched(
            self.acquired,
            [*self.faults, *faults],
            [*self.passed_on, *((node, raw) for raw in answer.batches)],
            [*self.leaders, *answer.leaders],
            answer.acquisition_lock_timeout_ms,
            self.paused or answer.paused,
        )

    def ranges(self) -> list[SentRange]:
        """List the ranges that were acquired or found held."""
        own = [
            SentRange(*item.led.key[1:], first_offset, last_offset, delivery_count)
            for item in self.acquired
            for first_offset, last_offset, delivery_count, *_ in item.ranges
        ]
        return [*own, *self.passed_on_ranges()]

    def records(self) -> int:
        return sum(part.size for part in self.ranges())

    def size(self) -> int:
        """Return how many bytes of records were acquired."""
        own = sum(
            batch.size_of(max(first, batch.base_offset), min(last, batch.last_offset))
            for item in self.acquired
            for first, last, *_ in item.ranges
            for batch in holding(item.batches, first, last)
        )
        return own + sum(len(raw) for _, raw in self.passed_on)

    def passed_on_ranges(self) -> list[SentRange]:
        return [SentRange(*structs.astuple(_entry.decode(raw))) for _, raw in self.passed_on]

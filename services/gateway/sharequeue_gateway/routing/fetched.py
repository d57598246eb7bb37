"""What a fetch over several gateways got: put together from their answers, or one answer that is relayed as it is."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from sharequeue.protocol import nesting
from sharequeue.protocol.errors import BY_CODE, ApiError
from sharequeue.protocol.messages.leaders import AcquiredEntry, LeaderFetchResponse
from sharequeue.protocol.messages.problems import AcknowledgementResult
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.delivery.fetch_request import AcquiredRecords, PartitionFault
from sharequeue_gateway.record_log.record_batch import holding
from sharequeue_gateway.routing.routing import MOVED

_entry: Final = msgspec.json.Decoder(AcquiredEntry)
_answer: Final = msgspec.json.Decoder(LeaderFetchResponse)


def decoded(body: bytes) -> LeaderFetchResponse:
    """The answer of a leader."""
    return nesting.decode(_answer, body)


class Fetched(NamedTuple):
    """What a fetch got. `passed_on`: encoded entries of other leaders, which `leaders` names, and their gateways.

    `results`: of acknowledgements that went with the fetch; None if none did.
    """

    acquired: Sequence[AcquiredRecords] = ()
    faults: Sequence[PartitionFault] = ()
    passed_on: Sequence[tuple[Node, msgspec.Raw]] = ()
    leaders: Sequence[PartitionLeader] = ()
    results: Sequence[AcknowledgementResult] | None = None
    lock_duration_ms: int | None = None

    @property
    def has_records(self) -> bool:
        return bool(self.acquired or self.passed_on)

    @property
    def moved(self) -> bool:
        """Whether another gateway leads a partition by now, or will soon."""
        return any(fault.error.error.kafka_code in MOVED for fault in self.faults)

    def opened(self) -> "Fetched":
        return self

    def without_moved(self) -> "Fetched":
        """This, without the faults of partitions that another gateway leads."""
        return self._replace(faults=[fault for fault in self.faults if not fault.led_elsewhere])

    def with_answer(self, node: Node, answer: LeaderFetchResponse) -> "Fetched":
        """This, and what another leader answered."""
        faults = [
            PartitionFault(fault.topic, fault.partition, ApiError(fault.detail, error=BY_CODE[fault.code]))
            for fault in answer.errors
        ]
        return Fetched(
            self.acquired,
            [*self.faults, *faults],
            [*self.passed_on, *((node, raw) for raw in answer.batches)],
            [*self.leaders, *answer.leaders],
            answer.acknowledgement_results or self.results,
            answer.acquisition_lock_timeout_ms,
        )

    def records(self) -> int:
        """How many offsets were acquired."""
        own = sum(last - first + 1 for _, ranges, _ in self.acquired for first, last, *_ in ranges)
        return own + sum(entry.last_offset - entry.first_offset + 1 for entry in self.entries())

    def size(self) -> int:
        """How many bytes of records were acquired."""
        own = sum(
            batch.size_of(max(first, batch.base_offset), min(last, batch.last_offset))
            for _, ranges, batches in self.acquired
            for first, last, *_ in ranges
            for batch in holding(batches, first, last)
        )
        return own + sum(len(raw) for _, raw in self.passed_on)

    def entries(self) -> list[AcquiredEntry]:
        return [nesting.decode(_entry, raw) for _, raw in self.passed_on]


class RelayedAnswer(NamedTuple):
    """The answer of the only leader: it has records and no faults, and a client can get it as it is.

    `results`: of acknowledgements that went with the fetch: all were applied. None if none did.
    """

    node: Node
    body: bytes
    results: Sequence[AcknowledgementResult] | None
    faults: Sequence[PartitionFault] = ()
    has_records: bool = True
    moved: bool = False

    def without_moved(self) -> "RelayedAnswer":
        return self

    def opened(self) -> Fetched:
        """The answer taken apart."""
        return Fetched(results=self.results).with_answer(self.node, decoded(self.body))

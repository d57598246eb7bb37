"""Appends without a key: to Kafka at once, all partitions side by side. Dead letters wait until they can be written."""

import asyncio
from collections.abc import Callable, Sequence

from sharequeue.protocol.errors import StorageError
from sharequeue_gateway.kafka_log.faults import append_error
from sharequeue_gateway.kafka_log.new_records import new_records
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import (
    AppendResult,
    DeadLetterRow,
    Elsewhere,
    IdempotencyKey,
    LogListener,
    PartitionAppend,
)
from sharequeue_http.forms.errors import ApiError, InvalidRequest
from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.producing import IdempotentProducer


class PlainAppends:
    """The `Appends` of a log without idempotency keys. `learn`: notes the log end of a partition."""

    def __init__(self, cluster: KafkaCluster, learn: Callable[[str, int, int], None], listener: LogListener) -> None:
        self._producer = IdempotentProducer(cluster)
        self._learn = learn
        self._listener = listener
        self.elsewhere: Elsewhere | None = None

    async def append(
        self,
        appends: Sequence[PartitionAppend],
        idempotency_key: IdempotencyKey | None = None,
        *,
        here: bool = False,
    ) -> AppendResult:
        """Append to each partition. Raises: ApiError; not definite if some partitions have their records."""
        if idempotency_key is not None:
            raise InvalidRequest("this record log takes no Idempotency-Key")
        results = await asyncio.gather(*map(self._append, appends), return_exceptions=True)
        faults = [result for result in results if isinstance(result, BaseException)]
        for fault in faults:
            if not isinstance(fault, ApiError) or len(faults) == len(appends):
                raise fault
        if faults:
            raise StorageError("some partitions have their records, and Kafka refused others", definite=False)
        return AppendResult([result for result in results if isinstance(result, int)], None)

    async def _append(self, append: PartitionAppend) -> int:
        place = Place(append.topic_id, append.partition)
        try:
            base_offset = await self._producer.append(place, new_records(append))
        except KafkaError as fault:
            raise append_error(fault) from fault
        end = base_offset + len(append.tails)
        self._learn(*place, end)
        self._listener.appended(*place, end, len(append.tails))
        return base_offset

    async def first_answer(self, key: IdempotencyKey) -> bytes | None:
        """Return None: no key is known."""
        return None

    async def close(self) -> None:
        await self._producer.close()


class WaitingLetters(DeadLetterLog):
    """The dead letters of a log that takes none: those that were parked or closed are there."""

    async def append(
        self,
        topic_id: str,
        partition: int,
        rows: Sequence[DeadLetterRow],
        *,
        leader_epoch: int | None = None,
        for_group: str | None = None,
    ) -> int:
        raise StorageError("this record log takes no dead letters: they wait", definite=True)

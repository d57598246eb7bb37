"""Appends to Kafka: plain ones go to the brokers at once, those with a key through an intent."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from sharequeue_gateway.kafka_log.faults import append_error
from sharequeue_gateway.kafka_log.intents import Intent, Kind, far_offsets, with_offsets
from sharequeue_gateway.kafka_log.new_records import new_records
from sharequeue_gateway.kafka_log.once import AppendOnce, Wanted
from sharequeue_gateway.record_log.locked_append import answer_of, keep_answer, lock_of
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.store import Connection
from sharequeue_http.forms.errors import ApiError
from sharequeue_kafka.cluster import KafkaCluster, Place
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.producing import Heard, IdempotentProducer

_decoder: Final = msgspec.json.Decoder(tuple[str, str, str, str, bytes, bytes, bool])
"""An IdempotencyKey, whose answer is made from offsets that are not known yet (`intents.far_offsets`)."""


async def keep_keyed(connection: Connection, intent: Intent, base_offsets: Sequence[int]) -> None:
    """Write the outcome of an append with a key: the key, with its answer; an empty one without offsets."""
    caller, path, topic_id, key, fingerprint, answer, lasting = _decoder.decode(intent.outcome)
    made = with_offsets(answer, base_offsets) if base_offsets else b""
    kept = IdempotencyKey(caller, path, topic_id, key, fingerprint, lambda _: made, lasting)
    await keep_answer(connection, kept, base_offsets)


class KafkaAppends:
    """The `Appends` of Kafka. `sent`: as in IdempotentProducer."""

    def __init__(
        self,
        cluster: KafkaCluster,
        once: AppendOnce,
        sent: Callable[[Place, bytes, list[PartitionAppend]], Heard],
        deadline_s: float,
    ) -> None:
        self._once = once
        self._producer = IdempotentProducer(cluster, int(deadline_s * 1000), sent)

    async def append(
        self, appends: Sequence[PartitionAppend], idempotency_key: IdempotencyKey | None = None
    ) -> AppendResult:
        """As `Appends.append`. Without a key each partition is appended to by itself: if one fails, others may have
        the records, and the error is not definite."""
        if idempotency_key is not None:
            return await self._keyed(appends, idempotency_key)
        if len(appends) == 1:
            return AppendResult([await self._plain(appends[0])], None)
        found = await asyncio.gather(*map(self._plain, appends), return_exceptions=True)
        base_offsets = [offset for offset in found if isinstance(offset, int)]
        faults = [each for each in found if isinstance(each, BaseException)]
        for fault in faults:
            if isinstance(fault, ApiError):
                fault.definite = not base_offsets and all(getattr(each, "definite", False) for each in faults)
            raise fault
        return AppendResult(base_offsets, None)

    async def _plain(self, append: PartitionAppend) -> int:
        place = Place(append.topic_id, append.partition)
        try:
            return await self._producer.append(place, new_records(append), append)
        except KafkaError as fault:
            raise append_error(fault) from fault

    async def _keyed(self, appends: Sequence[PartitionAppend], key: IdempotencyKey) -> AppendResult:
        answer = key.answer(far_offsets(len(appends)))
        outcome = msgspec.json.encode((*key[:5], answer, key.lasting))
        wanted = Wanted(lock_of(key), appends, Kind.KEYED, outcome, partial(answer_of, key=key))
        done = await self._once.append(wanted)
        first: AppendResult | None = done.found
        base_offsets = done.base_offsets if first is None else first.base_offsets
        if not base_offsets:
            raise ApiError(
                "it is unknown whether an earlier try with this Idempotency-Key appended its records: the log now begins"
                " behind the place where they would be, so its retention may have removed them. Find out from those who"
                " read the topic; if the records are missing, send them with a new key"
            )
        return first or AppendResult(base_offsets, key.answer(base_offsets))

    async def close(self) -> None:
        await self._producer.close()

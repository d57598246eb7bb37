"""Produce of an Arrow stream: as `producer`, for columns in place of records. The answer has an entry per partition."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from sharequeue.protocol.messages.problems import ProducedBatch
from sharequeue.protocol.messages.records import ProducedBatches
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.producing.arrow_columns import ArrowStream, look_at
from sharequeue_gateway.producing.arrow_tails import arrow_records
from sharequeue_gateway.producing.producer import (
    LARGE_BYTES,
    Prepared,
    Producer,
    aside,
    fingerprint_of,
    key_of,
    lasting,
    too_large,
)
from sharequeue_gateway.record_log.log import PartitionAppend
from sharequeue_gateway.record_log.owner import ANYBODY, Owner
from sharequeue_gateway.record_log.transactions.transaction_rules import check_transaction_id
from sharequeue_http.answer import Answer
from sharequeue_http.ceiling import Ceiling
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import TooLarge


@dataclass(eq=False)
class ArrowProducer:
    """Appends the records of Arrow streams."""

    _producer: Producer
    _metadata: Metadata
    _admission: Ceiling
    _max_request_bytes: int
    _max_value_depth: int
    _loaded: bool = field(init=False, default=False)
    """Whether Arrow is imported. The first request does that in a thread: it takes some hundred ms."""

    async def produce(
        self,
        topic_name: str,
        body: bytes,
        path: str,
        idempotency_key: str | None,
        retention: str | None,
        transaction_id: str | None,
        owner: Owner = ANYBODY,
    ) -> Answer:
        """Append the records. See `Producer.produce`.

        Raises: as `look_at`, `arrow_records` and `Producer.produce`; TooLarge, Throttled: a compressed body is,
            after decompression, larger than a request may be, or than this gateway takes now.
        """
        timestamp_ms = time.time_ns() // 1_000_000
        if transaction_id is not None:
            check_transaction_id(transaction_id)
        lasting(idempotency_key, retention)  # refuse a key that does not fit, before the body is looked at
        large = len(body) > LARGE_BYTES
        fingerprint = b""
        if idempotency_key is not None:
            fingerprint = await aside(large, fingerprint_of, body, None, transaction_id)
        stream = await aside(large or not self._loaded, look_at, body)
        self._loaded = True
        grown_bytes = stream.grown_bytes
        if grown_bytes > self._max_request_bytes:
            raise TooLarge(
                f"the body has {grown_bytes} bytes after decompression; the limit is {self._max_request_bytes} "
                "(max_request_bytes): send fewer records at once",
                limit=self._max_request_bytes,
            )
        if self._admission.used > len(body):  # beside other requests; one that is alone is not kept from growing
            self._admission.check(owner.principal, self._admission.used, size=grown_bytes)
        self._admission.take(owner.principal, grown_bytes)
        try:
            preparing = self._prepare(topic_name, stream, timestamp_ms, transaction_id)
            del body, stream  # a large request is not kept until it is durable
            prepared = await preparing
            key = key_of(owner.principal, prepared, path, idempotency_key, retention, fingerprint)
            return await self._producer.append(prepared, key, transaction_id, owner)
        finally:
            self._admission.give(owner.principal, grown_bytes)

    async def _prepare(
        self, topic_name: str, stream: ArrowStream, timestamp_ms: int, transaction_id: str | None
    ) -> Prepared:
        """One append per partition. Raises: as `Producer.produce`."""
        large = len(stream.body) + stream.grown_bytes > LARGE_BYTES
        records = await aside(large, arrow_records, stream, timestamp_ms, self._max_value_depth)
        del stream
        tails = records.tails
        topic = self._metadata.sure.get(topic_name) or await self._metadata.topic_to_produce(topic_name)
        if max(map(len, tails)) > topic.max_message_bytes:
            raise too_large(topic, tails)
        given, keys, times = records.partitions or [None] * len(tails), records.keys or (), records.timestamps
        times = times or [None] * len(tails)
        appends, _ = await self._producer.spread(topic, given, keys, tails, times, timestamp_ms, large, transaction_id)
        return Prepared(topic, appends, partial(_answer, appends))


def _answer(appends: Sequence[PartitionAppend], base_offsets: Sequence[int]) -> bytes:
    """The body of a ProducedBatches."""
    return encode(
        ProducedBatches(
            batches=[
                ProducedBatch(
                    partition=append.partition,
                    first_offset=base_offset,
                    last_offset=base_offset + len(append.tails) - 1,
                )
                for append, base_offset in zip(appends, base_offsets, strict=True)
            ]
        )
    )

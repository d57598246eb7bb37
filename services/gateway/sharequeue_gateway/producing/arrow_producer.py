"""Produce of an Arrow stream: as `producer`, for columns in place of records. The answer has an entry per partition."""

import itertools
import time
from collections.abc import Sequence
from functools import partial

from sharequeue.clock import Clock
from sharequeue.http.answer import JSON, Answer
from sharequeue.protocol.codec import encode
from sharequeue.protocol.errors import TooLarge, UnknownTopicOrPartition
from sharequeue.protocol.messages.problems import ProducedBatch
from sharequeue.protocol.messages.records import ProducedBatches
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.producing.admission import ProduceAdmission
from sharequeue_gateway.producing.arrow_columns import ArrowStream, look_at
from sharequeue_gateway.producing.arrow_tails import ArrowRecords, arrow_records
from sharequeue_gateway.producing.partitioner import key_hashes
from sharequeue_gateway.producing.producer import LARGE_BYTES, aside, fingerprint_of, lasting, too_large
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_gateway.record_log.appending import Appender
from sharequeue_gateway.record_log.log import MOST_PARTITIONS, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.transactions.transaction_rules import check_transaction_id
from sharequeue_gateway.record_log.transactions.transactions import PostgresTransactions


class ArrowProducer:
    """Appends the records of Arrow streams."""

    def __init__(
        self,
        metadata: Metadata,
        appender: Appender,
        transactions: PostgresTransactions,
        clock: Clock,
        admission: ProduceAdmission,
        max_request_bytes: int,
        max_value_depth: int,
    ) -> None:
        self._metadata = metadata
        self._clock = clock
        self._appender = appender
        self._transactions = transactions
        self._admission = admission
        self._max_request_bytes = max_request_bytes
        self._max_value_depth = max_value_depth
        self._turns = itertools.count()
        self._loaded = False
        """Whether Arrow is imported. The first request does that in a thread: it takes some hundred ms."""

    async def produce(
        self,
        topic_name: str,
        body: bytes,
        path: str,
        idempotency_key: str | None,
        retention: str | None,
        transaction_id: str | None,
    ) -> Answer:
        """Append the records. See `Producer.produce`.

        Raises: as `look_at`, `arrow_records` and `Producer.produce`; TooLarge, Throttled: a compressed body is,
            after decompression, larger than a request may be, or than this gateway takes now.
        """
        timestamp_ms = time.time_ns() // 1_000_000
        if transaction_id is not None:
            check_transaction_id(transaction_id)
        long_known = lasting(idempotency_key, retention)
        large = len(body) > LARGE_BYTES
        fingerprint = b""
        if idempotency_key is not None:
            fingerprint = await aside(large, fingerprint_of, body, None, transaction_id)
        stream = await aside(large or not self._loaded, look_at, body)
        self._loaded = True
        grown_bytes = stream.grown_bytes
        self._check_size(grown_bytes)
        self._admission.take(grown_bytes, in_hand=len(body))
        try:
            preparing = self._prepare(topic_name, stream, timestamp_ms, transaction_id)
            del body, stream  # a large request is not kept until it is durable
            topic, appends = await preparing
            key = None
            if idempotency_key is not None:
                key = IdempotencyKey(
                    "", path, topic.topic_id, idempotency_key, fingerprint, partial(_answer, appends), long_known
                )
            answer = await self._append(topic, appends, key, transaction_id)
        finally:
            self._admission.release(grown_bytes)
        if transaction_id is None:
            return Answer(answer)
        return Answer(answer, headers=(JSON, (b"transaction-id", transaction_id.encode())))

    def _check_size(self, grown_bytes: int) -> None:
        if grown_bytes > self._max_request_bytes:
            raise TooLarge(
                f"the body has {grown_bytes} bytes after decompression; the limit is {self._max_request_bytes} "
                "(max_request_bytes): send fewer records at once",
                limit=self._max_request_bytes,
            )

    async def _prepare(
        self, topic_name: str, stream: ArrowStream, timestamp_ms: int, transaction_id: str | None
    ) -> tuple[KnownTopic, list[PartitionAppend]]:
        """One append per partition. Raises: as `Producer.produce`."""
        large = len(stream.body) + stream.grown_bytes > LARGE_BYTES
        records = await aside(large, arrow_records, stream, timestamp_ms, self._max_value_depth)
        del stream
        topic = self._metadata.sure.get(topic_name) or await self._metadata.topic_to_produce(topic_name)
        if max(map(len, records.tails)) > topic.max_message_bytes:
            raise too_large(topic, records.tails)
        return topic, await self._spread(topic, records, timestamp_ms, large, transaction_id)

    async def _append(
        self,
        topic: KnownTopic,
        appends: list[PartitionAppend],
        key: IdempotencyKey | None,
        transaction_id: str | None,
    ) -> bytes:
        """Returns: the body of the answer."""
        try:
            if transaction_id is None:
                result = await self._appender.append(appends, key)
            else:
                result = await self._transactions.append(transaction_id, appends, key)
        except UnknownTopicOrPartition:
            self._metadata.forget(topic.topic_id)
            raise
        return _answer(appends, result.base_offsets) if result.answer is None else result.answer

    async def _spread(
        self, topic: KnownTopic, records: ArrowRecords, timestamp_ms: int, large: bool, transaction_id: str | None
    ) -> list[PartitionAppend]:
        """One append per partition. Raises: as `Producer.produce`."""
        given = [partition for partition in records.partitions or () if partition is not None]
        if given and max(given) >= topic.partitions:
            topic = await self._metadata.topic_with(topic.name, max(given))
        turn = next(self._turns) % topic.partitions
        appends = await aside(large, _appends, topic, records, timestamp_ms, turn, transaction_id)
        if len(appends) > MOST_PARTITIONS:
            raise TooLarge(
                f"the records go to {len(appends)} partitions; one request appends to {MOST_PARTITIONS} at most: "
                "send fewer records at once",
                limit=MOST_PARTITIONS,
            )
        self._check_timestamps(topic, records.timestamps or ())
        return appends

    def _check_timestamps(self, topic: KnownTopic, timestamps: Sequence[int | None]) -> None:
        """Refuse timestamps too far ahead, as `Producer` does."""
        latest_ms = self._clock.now_ms() + topic.max_ahead_ms
        if max((time_ms for time_ms in timestamps if time_ms is not None), default=0) <= latest_ms:
            return
        for index, time_ms in enumerate(timestamps):
            if time_ms is not None and time_ms > latest_ms:
                limit = f"{topic.max_ahead_ms} ms ahead of now (message.timestamp.after.max.ms of topic {topic.name!r})"
                raise unfit(f"/records/{index}/timestamp_ms", f"{time_ms} is more than {limit}")


def _appends(
    topic: KnownTopic, records: ArrowRecords, timestamp_ms: int, turn: int, transaction_id: str | None
) -> list[PartitionAppend]:
    """One append per partition, in the order of each partition's first record."""
    tails, timestamps = records.tails, records.timestamps
    latest = timestamp_ms
    chosen = choose(records, topic.partitions, turn)
    if chosen.count(chosen[0]) == len(chosen):
        if timestamps is not None:
            latest = max(timestamp_ms if time_ms is None else time_ms for time_ms in timestamps)
        return [PartitionAppend(topic.topic_id, chosen[0], tails, latest, None, transaction_id)]
    by_partition: dict[int, list[int]] = {partition: [] for partition in chosen}
    for index, partition in enumerate(chosen):
        by_partition[partition].append(index)
    appends = []
    for partition, indexes in by_partition.items():
        if timestamps is not None:
            own = [timestamps[index] for index in indexes]
            latest = max(timestamp_ms if time_ms is None else time_ms for time_ms in own)
        of_partition = [tails[index] for index in indexes]
        appends.append(PartitionAppend(topic.topic_id, partition, of_partition, latest, None, transaction_id))
    return appends


def choose(records: ArrowRecords, partitions: int, turn: int) -> list[int]:
    """The partition of each record: the given one, else by the key, else the next in turn."""
    count, keys = len(records.tails), records.keys
    chosen = [turn] * count
    if keys is not None and partitions > 1:
        keyed = [index for index, key in enumerate(keys) if key is not None]
        for index, found in zip(keyed, key_hashes([key for key in keys if key is not None]), strict=True):
            chosen[index] = found % partitions
    if records.partitions is not None:
        for index, partition in enumerate(records.partitions):
            if partition is not None:
                chosen[index] = partition
    return chosen


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

"""Produce: records become the JSON that fetches will send, grouped by partition, appended all or none."""

import asyncio
import base64
import binascii
import hashlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Final, ParamSpec, TypeVar

import msgspec

from sharequeue.clock import Clock
from sharequeue.http.serving import Answer, does_not_fit, too_many
from sharequeue.protocol import nesting
from sharequeue.protocol.errors import InvalidRequest, TooLarge, UnknownTopicOrPartition
from sharequeue.protocol.messages import ProduceRecord
from sharequeue.protocol.types import MAX_HEADERS, MAX_HEADERS_BYTES, whole_number
from sharequeue_gateway.cluster.metadata import Metadata, Topic
from sharequeue_gateway.producing.partitioner import key_hash
from sharequeue_gateway.record_log.log import MOST_PARTITIONS, Appends, IdempotencyKey, PartitionAppend

MAX_IDEMPOTENCY_KEY_LENGTH: Final = 128
DAY_MS: Final = 86_400_000
MAX_RETENTION_MS: Final = 7 * DAY_MS
"""The longest time that a client may ask an idempotency key to be known."""

LARGE_BYTES: Final = 256 * 1024
"""A request with more is prepared in a thread: keys are hashed at 7 MB/s, and the depth of values is counted."""

_encode: Final = msgspec.json.Encoder().encode
_decode_headers: Final = msgspec.json.Decoder(Annotated[dict[str, str], msgspec.Meta(max_length=MAX_HEADERS)]).decode
_NO_KEY: Final = b',"key":null'
_VALUE: Final = b',"value":'
_AROUND_VALUE: Final = len(b',"timestamp_ms":0,"key":null,"value":}')
"""The fewest bytes of a tail beside its value."""


P = ParamSpec("P")
T = TypeVar("T")


def record_tails(records: Sequence[ProduceRecord], timestamp_ms: int) -> list[bytes]:
    """Records as fetches send them, without their offsets: `,"timestamp_ms":…,"key":…,"value":…}`.

    Args:
        timestamp_ms: now, for records that bring no timestamp of their own.
    Raises: InvalidRequest (422): not exactly one of value, value_base64 and tombstone; two keys; base64 that is none.
    """
    timestamp = b',"timestamp_ms":%d' % timestamp_ms
    before_value = timestamp + _NO_KEY + _VALUE
    return [
        before_value + record.value + b"}"
        if record.value
        and record.key is None
        and record.timestamp_ms is None
        and not record.headers
        and record.key_base64 is None
        and record.value_base64 is None
        and not record.tombstone
        else _record_tail(record, timestamp, index)
        for index, record in enumerate(records)
    ]


def _record_tail(record: ProduceRecord, timestamp: bytes, index: int) -> bytes:
    """One that is more than a value. `index`: where it stands in the request, for faults."""
    value = record.value
    if record.timestamp_ms is not None:
        timestamp = b',"timestamp_ms":%d' % record.timestamp_ms
    if record.key is not None:
        if record.key_base64 is not None:
            raise _unfit(f"/records/{index}/key", "give key or key_base64, not both")
        key = b',"key":' + _encode(record.key)
    elif record.key_base64 is not None:
        _from_base64(record.key_base64, f"/records/{index}/key_base64")
        key = b',"key_base64":"%b"' % record.key_base64.encode()
    else:
        key = _NO_KEY
    if value and record.value_base64 is None and not record.tombstone:
        member = _VALUE + value
    elif not value and record.value_base64 is not None and not record.tombstone:
        _from_base64(record.value_base64, f"/records/{index}/value_base64")
        member = b',"value_base64":"%b"' % record.value_base64.encode()
    elif not value and record.value_base64 is None and record.tombstone:
        member = b',"value":null'
    else:
        raise _unfit(f"/records/{index}/value", "give exactly one of value, value_base64 and tombstone")
    headers = _headers(record, index)
    if headers:
        return b"".join((timestamp, key, member, b',"headers":', _encode(headers), b"}"))
    return b"".join((timestamp, key, member, b"}"))


def _headers(record: ProduceRecord, index: int) -> dict[str, str]:
    if not record.headers:
        return {}
    pointer = f"/records/{index}/headers"
    if len(memoryview(record.headers)) > MAX_HEADERS_BYTES:
        raise too_many(pointer, "bytes", MAX_HEADERS_BYTES)
    try:
        headers: dict[str, str] = _decode_headers(record.headers)
    except msgspec.ValidationError as fault:
        raise does_not_fit(str(fault), pointer) from None
    return headers


def _from_base64(text: str, pointer: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as fault:
        raise _unfit(pointer, f"not base64: {fault}") from None


def _unfit(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(f"{pointer}: {detail}", status=422, pointers=[(pointer, detail)])


def raw_record(key: str | None, partition: int | None, headers: dict[str, str]) -> ProduceRecord:
    """The record whose value is a request's body, which `produce` is given beside it: large ones are not copied often."""
    encoded = msgspec.Raw(_encode(headers)) if headers else msgspec.UNSET
    return ProduceRecord(key=key, partition=partition, headers=encoded)


def _raw_tails(record: ProduceRecord, value: bytes, timestamp_ms: int) -> list[bytes]:
    """As `record_tails`, of one record with bytes for a value."""
    key = _NO_KEY if record.key is None else b',"key":' + _encode(record.key)
    headers = _headers(record, 0)
    behind = b'","headers":%b}' % _encode(headers) if headers else b'"}'
    before = b',"timestamp_ms":%d%b,"value_base64":"' % (timestamp_ms, key)
    return [b"".join((before, base64.b64encode(value), behind))]


class Producer:
    """Appends what produce requests hold."""

    def __init__(self, metadata: Metadata, appender: Appends, clock: Clock, max_value_depth: int) -> None:
        self._metadata = metadata
        self._clock = clock
        self._appender = appender
        self._max_value_depth = max_value_depth
        self._turns = itertools.count()

    async def produce(
        self,
        topic_name: str,
        records: Sequence[ProduceRecord],
        body: bytes,
        path: str,
        idempotency_key: str | None,
        retention: str | None,
        raw_value: bytes | None = None,
    ) -> Answer:
        """Append the records and answer where they went, when they are durable.

        Args:
            body: the request's bytes, `raw_value` apart; a repeat of an idempotency key must bring the same.
            retention: for how long the key must be known, in ms; None: 24 hours.
            raw_value: the value of the one record, as bytes.
        Raises: UnknownTopicOrPartition; InvalidRequest; TooLarge: a record above the topic's max.message.bytes;
            InvalidRequest (422): a value nested deeper than max_value_depth;
            StorageError or RequestTimedOut: it may not have been appended.
        """
        timestamp_ms = time.time_ns() // 1_000_000
        fingerprint = b"" if idempotency_key is None else _fingerprint(body, raw_value)
        raw = raw_value is not None
        if raw_value is not None:
            large = len(raw_value) > LARGE_BYTES
            tails = await _aside(large, _raw_tails, records[0], raw_value, timestamp_ms)
            raw_value = None
        else:
            large = len(body) > LARGE_BYTES
            tails = await _aside(large, record_tails, records, timestamp_ms)
        largest = max(map(len, tails))
        if not raw and largest > 2 * self._max_value_depth + _AROUND_VALUE:
            await self._check_depths(records, tails)
        topic = await self._metadata.topic_to_produce(topic_name)
        self._check_sizes(topic, tails, largest)
        partitions = await self._partitions(topic, records, large)
        appends, places = await _aside(large, _group, topic.topic_id, partitions, tails, records, timestamp_ms)
        if len(appends) > MOST_PARTITIONS:
            raise TooLarge(
                f"the records go to {len(appends)} partitions; one request appends to {MOST_PARTITIONS} at most: "
                "send fewer records at once",
                limit=MOST_PARTITIONS,
            )
        self._check_timestamps(topic, appends, records)
        records, body, tails = (), b"", []  # large ones are not kept until they are durable
        key = None
        if idempotency_key is not None:
            if not 1 <= len(idempotency_key) <= MAX_IDEMPOTENCY_KEY_LENGTH:
                raise InvalidRequest(f"an Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} characters")
            key = IdempotencyKey(
                "",
                path,
                topic.topic_id,
                idempotency_key,
                fingerprint,
                lambda offsets: _answer(offsets, appends, places),
                _lasting(retention),
            )
        elif retention is not None:
            raise InvalidRequest("Idempotency-Retention-Ms goes with an Idempotency-Key")
        try:
            result = await self._appender.append(appends, key)
        except UnknownTopicOrPartition:
            self._metadata.forget(topic.topic_id)
            raise
        return Answer(_answer(result.base_offsets, appends, places) if result.answer is None else result.answer)

    @staticmethod
    def _check_sizes(topic: Topic, tails: Sequence[bytes], largest: int) -> None:
        limit = topic.max_message_bytes
        if largest > limit:
            index = next(index for index, tail in enumerate(tails) if len(tail) > limit)
            raise TooLarge(
                f"record {index} has {len(tails[index])} bytes; topic {topic.name!r} takes {limit} (max.message.bytes)",
                limit=limit,
                pointers=[(f"/records/{index}", f"larger than {limit} bytes")],
            )

    async def _check_depths(self, records: Sequence[ProduceRecord], tails: Sequence[bytes]) -> None:
        most = self._max_value_depth
        suspects = nesting.suspects(tails, most, _AROUND_VALUE)
        if not suspects:
            return
        if sum(len(tails[index]) for index in suspects) > LARGE_BYTES:
            index = await asyncio.to_thread(_first_too_deep, records, suspects, most)
        else:
            index = _first_too_deep(records, suspects, most)
        if index is not None:
            detail = f"nested deeper than {most} levels (max_value_depth)"
            raise InvalidRequest(
                f"the value of record {index} is {detail}; make it flatter, or send it as bytes in value_base64",
                status=422,
                limit=most,
                pointers=[(f"/records/{index}/value", detail)],
            )

    def _check_timestamps(
        self, topic: Topic, appends: Sequence[PartitionAppend], records: Sequence[ProduceRecord]
    ) -> None:
        """One far ahead would keep retention from all that is behind it, until its time has come."""
        latest_ms = self._clock.now_ms() + topic.max_ahead_ms
        if max([append.max_timestamp_ms for append in appends]) <= latest_ms:
            return
        for index, record in enumerate(records):
            if record.timestamp_ms is not None and record.timestamp_ms > latest_ms:
                limit = f"{topic.max_ahead_ms} ms ahead of now (message.timestamp.after.max.ms of topic {topic.name!r})"
                raise _unfit(f"/records/{index}/timestamp_ms", f"{record.timestamp_ms} is more than {limit}")

    async def _partitions(self, topic: Topic, records: Sequence[ProduceRecord], large: bool) -> list[int] | int:
        """The partition of each record, or the one of all: as given, else by the key, else the next in turn."""
        highest = max((record.partition for record in records if record.partition is not None), default=-1)
        if highest >= topic.partitions:
            topic = await self._metadata.topic_with(topic.name, highest)
        if topic.partitions == 1:
            return 0
        turn = next(self._turns) % topic.partitions
        return await _aside(large, _choose, records, topic.partitions, turn)


async def _aside(large: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function; for a large request in a thread, so that the event loop goes on."""
    return await asyncio.to_thread(function, *args, **kwargs) if large else function(*args, **kwargs)


def _choose(records: Sequence[ProduceRecord], partitions: int, turn: int) -> list[int] | int:
    chosen = [_partition(record, partitions, turn) for record in records]
    return chosen[0] if chosen.count(chosen[0]) == len(chosen) else chosen


def _fingerprint(body: bytes, raw_value: bytes | None) -> bytes:
    digest = hashlib.sha256()
    if raw_value is not None:
        digest.update(raw_value)
        digest.update(b"\0")
    digest.update(body)
    return digest.digest()


def _first_too_deep(records: Sequence[ProduceRecord], suspects: Sequence[int], most: int) -> int | None:
    """Which of the suspects comes first whose value is too deep."""
    for index in suspects:
        value = records[index].value
        if value and nesting.deeper_than(bytes(value), most):
            return index
    return None


def _lasting(retention: str | None) -> bool:
    """Whether a key must be known for more than a day. Raises: InvalidRequest."""
    if retention is None:
        return False
    retention_ms = whole_number(retention, MAX_RETENTION_MS)
    if not retention_ms:
        raise InvalidRequest(
            f"Idempotency-Retention-Ms must be a whole number from 1 to {MAX_RETENTION_MS}, not {retention!r}"
        )
    return retention_ms > DAY_MS


def _partition(record: ProduceRecord, partitions: int, turn: int) -> int:
    if record.partition is not None:
        return record.partition
    if record.key is not None:
        return key_hash(record.key.encode()) % partitions
    if record.key_base64 is not None:
        return key_hash(base64.b64decode(record.key_base64)) % partitions
    return turn


def _group(
    topic_id: str,
    partitions: list[int] | int,
    tails: list[bytes],
    records: Sequence[ProduceRecord],
    timestamp_ms: int,
) -> tuple[list[PartitionAppend], list[tuple[int, int]] | None]:
    """One append per partition, and for each record (append, position in it) when there are several."""
    timestamps = [timestamp_ms if record.timestamp_ms is None else record.timestamp_ms for record in records]
    if isinstance(partitions, int):
        return [PartitionAppend(topic_id, partitions, tails, max(timestamps))], None
    by_partition: dict[int, list[int]] = {}
    places = []
    order = {partition: position for position, partition in enumerate(dict.fromkeys(partitions))}
    for index, partition in enumerate(partitions):
        indexes = by_partition.setdefault(partition, [])
        places.append((order[partition], len(indexes)))
        indexes.append(index)
    appends = [
        PartitionAppend(
            topic_id, partition, [tails[index] for index in indexes], max(timestamps[index] for index in indexes)
        )
        for partition, indexes in by_partition.items()
    ]
    return appends, places


def _answer(
    base_offsets: Sequence[int], appends: Sequence[PartitionAppend], places: list[tuple[int, int]] | None
) -> bytes:
    if places is None:
        base_offset, append = base_offsets[0], appends[0]
        count = len(append.tails)
        entry = b'{"partition":%d,"offset":%%d},' % append.partition
        produced = entry * count % tuple(range(base_offset, base_offset + count))
    else:
        produced = b"".join(
            [
                b'{"partition":%d,"offset":%d},' % (appends[position].partition, base_offsets[position] + number)
                for position, number in places
            ]
        )
    return b'{"records":[%b]}' % produced[:-1]

"""Produce: makes one append per partition of the records of a request. All of them are appended, or none.

Records that have only a value take the short way: they go to one partition, with the time of the request.
"""

import asyncio
import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, ParamSpec, TypeVar

from sharequeue.clock import Clock
from sharequeue.protocol.errors import UnknownTopicOrPartition
from sharequeue.protocol.messages.records import PartitionLeader, ProduceRecord
from sharequeue.protocol.types import MAX_IDEMPOTENCY_KEY_LENGTH, MAX_IDEMPOTENCY_RETENTION_MS
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.producing.partitioner import key_hashes
from sharequeue_gateway.producing.record_keys import base64_bytes, is_null, key_bytes
from sharequeue_gateway.producing.record_tails import AROUND_VALUE, raw_tails, record_tails, unfit
from sharequeue_gateway.record_log.log import MOST_PARTITIONS, Appends, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.owner import ANYBODY, Owner
from sharequeue_gateway.record_log.transactions.transaction_rules import check_transaction_id
from sharequeue_gateway.record_log.transactions.transactions import PostgresTransactions
from sharequeue_http.answer import JSON, Answer
from sharequeue_http.forms import nesting
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import InvalidRequest, TooLarge
from sharequeue_http.forms.mistakes import quoted
from sharequeue_http.forms.texts import whole_number

DAY_MS: Final = 86_400_000

LARGE_BYTES: Final = 256 * 1024
"""A larger request is prepared in a thread, because hashing keys (7 MB/s) and checking depths would block the loop."""

P = ParamSpec("P")
T = TypeVar("T")
Places = list[list[int]] | None
"""For each append: which records of the request it has, in order. None: one append has all records, in order."""


class Prepared(NamedTuple):
    """The appends of records for one topic. `body`: makes the body of the answer from their base offsets.

    `plain`: the answer is a ProduceResponse of one append."""

    topic: KnownTopic
    appends: list[PartitionAppend]
    body: Callable[[Sequence[int]], bytes]
    plain: bool = False
    places: Places = None


@dataclass(eq=False)
class Producer:
    """Appends the records of produce requests."""

    _metadata: Metadata
    _cluster: Cluster
    _appender: Appends
    _routed: Appends
    """Appends while there are several gateways."""
    _transactions: PostgresTransactions
    _clock: Clock
    _max_value_depth: int
    _turns: "itertools.count[int]" = field(init=False, default_factory=itertools.count)

    async def produce(
        self,
        topic_name: str,
        records: Sequence[ProduceRecord],
        body: bytes,
        path: str,
        idempotency_key: str | None,
        retention: str | None,
        raw_value: bytes | None = None,
        transaction_id: str | None = None,
        owner: Owner = ANYBODY,
    ) -> Answer:
        """Append the records. The answer has their partitions and offsets; it is made when they are durable.

        Args:
            body: the bytes of the request without `raw_value`. A repeat of an idempotency key must send the same bytes.
            retention: how long the key must be known, in ms; None: 24 hours.
            raw_value: the value of the one record, as bytes.
            transaction_id: the transaction of the records. The answer repeats it in a header.
            owner: the caller. An equal idempotency key of another one is another key.
        Raises: UnknownTopicOrPartition; InvalidRequest; TooLarge: a record above the topic's max.message.bytes;
            InvalidRequest (422): a value nested deeper than max_value_depth;
            InvalidTxnState, ProducerFenced, TransactionalIdNotFound: the transaction is not open;
            StorageError or RequestTimedOut: the records may have been appended.
        """
        if transaction_id is not None:
            check_transaction_id(transaction_id)
        fingerprint = b"" if idempotency_key is None else fingerprint_of(body, raw_value, transaction_id)
        size = len(body if raw_value is None else raw_value)
        preparing = self.prepare(topic_name, records, size, raw_value, transaction_id)
        records, body, raw_value = (), b"", None  # a large request is not kept until it is durable
        prepared = await preparing
        key = None
        if idempotency_key is not None or retention is not None:
            key = key_of(owner.principal, prepared, path, idempotency_key, retention, fingerprint)
        return await self.append(prepared, key, transaction_id, owner)

    async def append(
        self, prepared: Prepared, key: IdempotencyKey | None, transaction_id: str | None, owner: Owner
    ) -> Answer:
        """Append the records of a request, and make its answer. Raises: as `produce`."""
        try:
            if transaction_id is None:
                appender = self._appender if self._cluster.alone else self._routed
                result = await appender.append(prepared.appends, key)
            else:
                result = await self._transactions.append(transaction_id, prepared.appends, key, owner)
        except UnknownTopicOrPartition:
            self._metadata.forget(prepared.topic.topic_id)
            raise
        answer = prepared.body(result.base_offsets) if result.answer is None else result.answer
        if result.node is not None and prepared.plain:
            leader = PartitionLeader(
                topic=prepared.topic.name,
                partition=prepared.appends[0].partition,
                node_id=result.node.node_id,
                url=result.node.url,
            )
            return Answer(b'%b,"leaders":[%b]}' % (answer[:-1], encode(leader)))
        if transaction_id is None:
            return Answer(answer)
        return Answer(answer, headers=(JSON, (b"transaction-id", transaction_id.encode())))

    async def prepare(
        self,
        topic_name: str,
        records: Sequence[ProduceRecord],
        size: int,
        raw_value: bytes | None = None,
        transaction_id: str | None = None,
    ) -> Prepared:
        """The appends of records. `size`: of the request. Raises: as `produce`."""
        timestamp_ms = time.time_ns() // 1_000_000
        large = size > LARGE_BYTES
        if raw_value is not None:
            tails, plain = await aside(large, raw_tails, records[0], raw_value, timestamp_ms), False
        elif large:
            tails, plain = await asyncio.to_thread(record_tails, records, timestamp_ms)
        else:
            tails, plain = record_tails(records, timestamp_ms)
        largest = max(map(len, tails))
        if raw_value is None and largest > 2 * self._max_value_depth + AROUND_VALUE:
            await self._check_depths(records, tails)
        topic = self._metadata.sure.get(topic_name) or await self._metadata.topic_to_produce(topic_name)
        if largest > topic.max_message_bytes:
            raise too_large(topic, tails)
        places: Places = None
        if plain:
            partition = next(self._turns) % topic.partitions if topic.partitions > 1 else 0
            appends = [PartitionAppend(topic.topic_id, partition, tails, timestamp_ms, None, transaction_id, plain)]
        else:
            given = [record.partition for record in records]
            keys = (bytes_of_key(record) if record.partition is None else None for record in records)
            times = [record.timestamp_ms for record in records]
            appends, places = await self.spread(topic, given, keys, tails, times, timestamp_ms, large, transaction_id)
        return Prepared(topic, appends, partial(produced_body, appends, places), places is None, places)

    async def _check_depths(self, records: Sequence[ProduceRecord], tails: Sequence[bytes]) -> None:
        most = self._max_value_depth
        suspects = nesting.suspects(tails, most, AROUND_VALUE)
        if not suspects:
            return
        large = sum(len(tails[index]) for index in suspects) > LARGE_BYTES
        index = await aside(large, _first_too_deep, records, suspects, most)
        if index is not None:
            detail = f"nested deeper than {most} levels (max_value_depth)"
            raise InvalidRequest(
                f"the value of record {index} is {detail}; make it flatter, or send it as bytes in value_base64",
                limit=most,
                pointers=[(f"/records/{index}/value", detail)],
            )

    async def spread(
        self,
        topic: KnownTopic,
        given: Sequence[int | None],
        keys: Iterable[bytes | None],
        tails: list[bytes],
        timestamps: Sequence[int | None],
        timestamp_ms: int,
        large: bool,
        transaction_id: str | None,
    ) -> tuple[list[PartitionAppend], Places]:
        """Make one append per partition of records with partitions, keys or timestamps of their own.

        Args:
            given: the partition of each record; None: its key chooses one, or the turn.
            timestamps: of each record; None: `timestamp_ms`, the present time.
        Raises: UnknownTopicOrPartition; TooLarge: too many partitions; InvalidRequest (422): a timestamp too far ahead.
        """
        highest = max((partition for partition in given if partition is not None), default=-1)
        if highest >= topic.partitions:
            topic = await self._metadata.topic_with(topic.name, highest)
        partitions: list[int] | int = 0
        if topic.partitions > 1:
            turn = next(self._turns) % topic.partitions
            partitions = await aside(large, choose, given, keys, topic.partitions, turn)
        appends, places = await aside(
            large, _group, topic.topic_id, partitions, tails, timestamps, timestamp_ms, transaction_id
        )
        check_partitions(appends)
        self._check_timestamps(topic, timestamps)
        return appends, places

    def _check_timestamps(self, topic: KnownTopic, timestamps: Sequence[int | None]) -> None:
        """Refuse timestamps too far ahead: such a record would keep retention from all records behind it until that
        time."""
        latest_ms = self._clock.now_ms() + topic.max_ahead_ms
        for index, timestamp_ms in enumerate(timestamps):
            if timestamp_ms is not None and timestamp_ms > latest_ms:
                limit = f"{topic.max_ahead_ms} ms ahead of now (message.timestamp.after.max.ms of topic {topic.name!r})"
                raise unfit(f"/records/{index}/timestamp_ms", f"{timestamp_ms} is more than {limit}")


def check_partitions(appends: Sequence[PartitionAppend]) -> None:
    """Raises: TooLarge: one request appends to too many partitions."""
    if len(appends) > MOST_PARTITIONS:
        raise TooLarge(
            f"the records go to {len(appends)} partitions; one request appends to {MOST_PARTITIONS} at most: "
            "send fewer records at once",
            limit=MOST_PARTITIONS,
        )


async def aside(large: bool, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function. For a large request, call it in a thread, so that it does not block the event loop."""
    return await asyncio.to_thread(function, *args, **kwargs) if large else function(*args, **kwargs)


def too_large(topic: KnownTopic, tails: Sequence[bytes]) -> TooLarge:
    limit = topic.max_message_bytes
    index = next(index for index, tail in enumerate(tails) if len(tail) > limit)
    return TooLarge(
        f"record {index} has {len(tails[index])} bytes; topic {topic.name!r} takes {limit} (max.message.bytes)",
        limit=limit,
        pointers=[(f"/records/{index}", f"larger than {limit} bytes")],
    )


def _first_too_deep(records: Sequence[ProduceRecord], suspects: Sequence[int], most: int) -> int | None:
    """The first of the suspects whose value is too deep."""
    for index in suspects:
        value = records[index].value
        if value and nesting.deeper_than(bytes(value), most):
            return index
    return None


def choose(given: Sequence[int | None], keys: Iterable[bytes | None], partitions: int, turn: int) -> list[int] | int:
    """The partition of each record, or the one of all records: the given one, else by the key, else the next in
    turn."""
    chosen = [turn if partition is None else partition for partition in given]
    keyed = {place: key for place, key in enumerate(keys) if key is not None and given[place] is None}
    for place, found in zip(keyed, key_hashes(list(keyed.values())), strict=True):
        chosen[place] = found % partitions
    return chosen[0] if chosen.count(chosen[0]) == len(chosen) else chosen


def bytes_of_key(record: ProduceRecord) -> bytes | None:
    """The bytes of a record's key; None: it has none."""
    if record.key:
        text = bytes(record.key)
        if b"\\" in text:
            return key_bytes(text)
        if text != b"null":
            return text[1:-1]
    if record.key_base64 and not is_null(record.key_base64):
        return base64_bytes(record.key_base64)
    return None


def _group(
    topic_id: str,
    partitions: list[int] | int,
    tails: list[bytes],
    timestamps: Sequence[int | None],
    timestamp_ms: int,
    transaction_id: str | None,
) -> tuple[list[PartitionAppend], Places]:
    """Make one append per partition, in the order of each partition's first record."""
    given = [timestamp_ms if timestamp is None else timestamp for timestamp in timestamps]
    if isinstance(partitions, int):
        return [PartitionAppend(topic_id, partitions, tails, max(given), None, transaction_id)], None
    by_partition: dict[int, list[int]] = {partition: [] for partition in partitions}
    for index, partition in enumerate(partitions):
        by_partition[partition].append(index)
    appends = [
        PartitionAppend(
            topic_id,
            partition,
            [tails[index] for index in indexes],
            max([given[index] for index in indexes]),
            transaction_id=transaction_id,
        )
        for partition, indexes in by_partition.items()
    ]
    return appends, list(by_partition.values())


def key_of(
    caller: str, prepared: Prepared, path: str, name: str | None, retention: str | None, fingerprint: bytes
) -> IdempotencyKey | None:
    """Make the key of a request; None: it has none.

    `retention`: how long the key must be known, in ms. Raises: InvalidRequest: see `lasting`.
    """
    long_known = lasting(name, retention)
    if name is None:
        return None
    return IdempotencyKey(
        caller, path, prepared.topic.topic_id, name, fingerprint, prepared.body, long_known, prepared.plain
    )


def fingerprint_of(body: bytes, raw_value: bytes | None, transaction_id: str | None) -> bytes:
    digest = hashlib.sha256()
    if transaction_id is not None:
        digest.update(f"{transaction_id}\0".encode())
    if raw_value is not None:
        digest.update(raw_value)
        digest.update(b"\0")
    digest.update(body)
    return digest.digest()


def lasting(name: str | None, retention: str | None) -> bool:
    """Return whether an idempotency key must be known for more than a day.

    Raises: InvalidRequest: the key has a wrong length, or its retention is not a number of ms in bounds; a retention
        without a key.
    """
    if name is None:
        if retention is not None:
            raise InvalidRequest("Idempotency-Retention-Ms needs an Idempotency-Key")
        return False
    if not 1 <= len(name) <= MAX_IDEMPOTENCY_KEY_LENGTH:
        raise InvalidRequest(f"an Idempotency-Key has 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} characters")
    retention_ms = DAY_MS if retention is None else whole_number(retention, MAX_IDEMPOTENCY_RETENTION_MS)
    if not retention_ms:
        raise InvalidRequest(
            f"Idempotency-Retention-Ms must be a whole number from 1 to {MAX_IDEMPOTENCY_RETENTION_MS}, not {quoted(str(retention))!r}"
        )
    return retention_ms > DAY_MS


def produced_body(appends: Sequence[PartitionAppend], places: Places, base_offsets: Sequence[int]) -> bytes:
    """The body of a ProduceResponse: the partition and offset of each record, in the order of the request."""
    if places is None:
        offsets = range(base_offsets[0], base_offsets[0] + len(appends[0].tails))
        entry = f'{{"partition":{appends[0].partition},"offset":%d}},'
        entries = entry * len(offsets) % tuple(offsets)
        return f'{{"records":[{entries[:-1]}]}}'.encode()
    answers = [""] * sum(map(len, places))
    for base_offset, append, indexes in zip(base_offsets, appends, places, strict=True):
        begin = f'{{"partition":{append.partition},"offset":'
        for offset, index in enumerate(indexes, base_offset):
            answers[index] = f"{begin}{offset}}}"
    return f'{{"records":[{",".join(answers)}]}}'.encode()

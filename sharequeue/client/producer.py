"""The producer: gathers records into batches, one request at a time for each topic, and never appends one twice."""

import asyncio
import base64
import contextlib
import math
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec
from msgspec import UNSET

from sharequeue.http.caller import Client
from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE, ApiError
from sharequeue.protocol.messages import ProduceRecord, ProduceResponse
from sharequeue.protocol.types import MAX_RECORDS

PRODUCE: Final = replace(apis.PRODUCE_RECORDS, idempotent=True)
"""Every request of this producer carries an Idempotency-Key, so a lost answer may be asked for again."""

ONE_RECORD_MAY_BE_AT_FAULT: Final = frozenset(
    BY_CODE[code] for code in ("MESSAGE_TOO_LARGE", "INVALID_REQUEST", "UNKNOWN_TOPIC_OR_PARTITION")
)

_encode: Final = msgspec.json.Encoder().encode


class NewRecord(NamedTuple):
    """A record to produce, where more than a value is given. `value`: any JSON, bytes, or None for a tombstone."""

    value: Any
    key: str | bytes | None = None
    headers: Mapping[str, str] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class Produced(NamedTuple):
    """Where a record is, durably."""

    topic: str
    partition: int
    offset: int


def encode_record(record: NewRecord) -> bytes:
    """The record as it travels. A fault in it is told to who sends it, and to nobody else.

    Raises: TypeError: the value is nothing JSON can say. ValueError: it is NaN or infinite, or a text is not Unicode.
    """
    value, key = record.value, record.key
    message = ProduceRecord(
        headers=msgspec.Raw(_encode(dict(record.headers))) if record.headers else UNSET,
        partition=record.partition,
        timestamp_ms=record.timestamp_ms,
    )
    if isinstance(key, str):
        message.key = key
    elif key is not None:
        message.key_base64 = base64.b64encode(key).decode()
    if isinstance(value, bytes | bytearray | memoryview):
        message.value_base64 = base64.b64encode(value).decode()
    elif value is None:
        message.tombstone = True
    elif isinstance(value, msgspec.Raw):
        message.value = value
    else:
        message.value = msgspec.Raw(_json_of(value))
    return _encode(message)


def _json_of(value: Any) -> bytes:
    """Raises: TypeError, ValueError: as `encode_record`."""
    encoded = _encode(value)
    if b"null" in encoded:  # msgspec writes that for what JSON has no word for, too
        for number in _floats(msgspec.to_builtins(value, enc_hook=lambda raw: None)):
            if not math.isfinite(number):
                raise ValueError(f"JSON has no {number}")
    return encoded


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _floats(inner)


class _Batch:
    """Records that go in one request. `done` is set when `results` says where each is or why it is not."""

    __slots__ = ("closed", "done", "full", "records", "results", "send_at", "size", "unseen", "whole")

    def __init__(self, send_at: float, *, whole: bool) -> None:
        self.send_at = send_at
        self.records: list[bytes] = []
        self.size = 0
        self.whole = whole
        """Appended whole or not at all."""
        self.closed = whole
        """Nothing is added any more."""
        self.full = asyncio.Event()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.results: list[Produced | ApiError] = []
        self.unseen: dict[int, ApiError] = {}
        """Failures nobody was told of."""


class Pending:
    """A record on its way. Await it to learn where it is. Raises: ApiError: it was not appended, or may not have been."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: _Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[Any, None, Produced]:
        yield from asyncio.shield(self._batch.done).__await__()
        result = self._batch.results[self._index]
        if isinstance(result, ApiError):
            self._batch.unseen.pop(self._index, None)
            raise result
        return result


class Producer:
    """Produces records to topics.

    Records that are sent within `linger_ms` of each other, or while a request of their topic is on its way, travel
    together. One request is under way for each topic, so records of one topic keep their order. A request is tried
    again until `deadline_ms` with the same idempotency key, so no retry appends a record twice.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080".
        linger_ms: how long the first record of a batch waits for others.
        max_batch_records, max_batch_bytes: a request holds no more (one larger record goes alone).
        max_buffer_bytes: above it `send` waits until there is room.

    Example:
        async with Producer("http://127.0.0.1:8080") as producer:
            where = await producer.send("orders", {"id": 1}, key="cust-9")   # Produced("orders", 0, 17)
    """

    def __init__(
        self,
        url: str,
        *,
        linger_ms: float = 5,
        max_batch_records: int = 1000,
        max_batch_bytes: int = 1024 * 1024,
        max_buffer_bytes: int = 32 * 1024 * 1024,
        deadline_ms: float = 30_000,
    ) -> None:
        if not 1 <= max_batch_records <= MAX_RECORDS:
            raise ValueError(f"max_batch_records must be in the range 1 to {MAX_RECORDS}")
        self._client = Client(url, deadline_s=deadline_ms / 1000)
        self._linger_s = linger_ms / 1000
        self._max_batch_records = max_batch_records
        self._max_batch_bytes = max_batch_bytes
        self._max_buffer_bytes = max_buffer_bytes
        self._buffered_bytes = 0
        self._room = asyncio.Condition()
        self._batches: dict[str, deque[_Batch]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[_Batch, None] = {}
        self._key_prefix = uuid.uuid4().hex
        self._requests = 0
        self._flushing = 0
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Produced:
        """Append one record; returns when it is durable.

        Args:
            value: any JSON, bytes, msgspec.Raw (JSON as it stands) or None (a tombstone).
        Raises: ApiError: the service's problem; `definite` says whether it surely was not appended.
        """
        return await (
            await self.send_soon(topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms)
        )

    async def send_soon(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Pending:
        """Hand over one record; returns as soon as there is room for it. Await what it returns to learn where it is.

        A failure that nobody awaited is raised by the next `flush` or `close`.
        """
        self._check_open()
        record = encode_record(NewRecord(value, key, headers, partition, timestamp_ms))
        size = len(record) + 1
        await self._wait_for_room(size)
        waiting = self._batches.setdefault(topic, deque())
        batch = waiting[-1] if waiting else None
        if (
            batch is None
            or batch.closed
            or len(batch.records) >= self._max_batch_records
            or batch.size + size > self._max_batch_bytes
        ):
            if batch is not None:
                batch.full.set()
            batch = self._new_batch(topic, whole=False)
        self._add(batch, record)
        if len(batch.records) >= self._max_batch_records or batch.size >= self._max_batch_bytes or self._flushing:
            batch.full.set()
        return Pending(batch, len(batch.records) - 1)

    async def send_many(self, topic: str, records: Iterable[Any]) -> list[Produced]:
        """Append many records; returns where each is when all are durable.

        Args:
            records: values, or NewRecord where there is more than a value. Up to `max_batch_records` and
                `max_batch_bytes` of them make one request, which is appended whole or not at all.
        Raises: ApiError: of the first record that was not appended; those of other requests may have been.
        """
        self._check_open()
        batches: list[_Batch] = []
        batch: _Batch | None = None
        for item in records:
            record = encode_record(item if isinstance(item, NewRecord) else NewRecord(item))
            size = len(record) + 1
            if (
                batch is None
                or len(batch.records) >= self._max_batch_records
                or batch.size + size > self._max_batch_bytes
            ):
                if batch is not None:
                    batch.full.set()
                await self._wait_for_room(size)
                batch = self._new_batch(topic, whole=True)
                batches.append(batch)
            self._add(batch, record)
        if batch is not None:
            batch.full.set()
        produced: list[Produced] = []
        failures: list[ApiError] = []
        for batch in batches:
            await asyncio.shield(batch.done)
            batch.unseen.clear()
            failures += [result for result in batch.results if isinstance(result, ApiError)]
            produced += [result for result in batch.results if not isinstance(result, ApiError)]
        if failures:
            raise failures[0]
        return produced

    async def flush(self) -> None:
        """Return when nothing waits any more. Raises: ApiError: the first failure nobody was told of."""
        self._flushing += 1
        try:
            while self._senders:
                for waiting in self._batches.values():
                    for batch in waiting:
                        batch.full.set()
                await asyncio.wait(self._senders.values())
        finally:
            self._flushing -= 1
        self._raise_unseen()

    def _raise_unseen(self) -> None:
        failed, self._failed = self._failed, {}
        for batch in failed:
            for error in batch.unseen.values():
                raise error

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Flush, then close the connections.

        Args:
            timeout_ms: give up what has no answer by then. Its records fail; the errors of those that were not sent are
                `definite`.
        Raises: as `flush`.
        """
        self._closed = True
        try:
            if timeout_ms is None:
                await self.flush()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_ms / 1000):
                        await self.flush()
        finally:
            given_up = list(self._senders.values())
            for sender in given_up:
                sender.cancel()
            if given_up:
                await asyncio.wait(given_up)
            await self._client.close()
        self._raise_unseen()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the producer is closed")

    async def _wait_for_room(self, size: int) -> None:
        if self._buffered_bytes and self._buffered_bytes + size > self._max_buffer_bytes:
            async with self._room:
                await self._room.wait_for(
                    lambda: not self._buffered_bytes or self._buffered_bytes + size <= self._max_buffer_bytes
                )

    def _new_batch(self, topic: str, *, whole: bool) -> _Batch:
        batch = _Batch(asyncio.get_running_loop().time() + self._linger_s, whole=whole)
        self._batches.setdefault(topic, deque()).append(batch)
        if topic not in self._senders:
            self._senders[topic] = asyncio.get_running_loop().create_task(self._send_batches(topic))
        return batch

    def _add(self, batch: _Batch, record: bytes) -> None:
        batch.records.append(record)
        batch.size += len(record) + 1
        self._buffered_bytes += len(record) + 1

    async def _send_batches(self, topic: str) -> None:
        """Send what waits for one topic, batch by batch, until nothing is left."""
        waiting = self._batches[topic]
        loop = asyncio.get_running_loop()
        try:
            while waiting:
                batch = waiting[0]
                if not batch.full.is_set() and batch.send_at > loop.time():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(batch.send_at):
                            await batch.full.wait()
                batch.closed = True
                results = await self._request(topic, batch.records, splits=not batch.whole)
                waiting.popleft()
                self._finish(batch, results)
                async with self._room:
                    self._room.notify_all()
        finally:
            for batch in waiting:
                stopped = ApiError("the producer was stopped before this was answered", definite=not batch.closed)
                self._finish(batch, [stopped] * len(batch.records))
            del self._batches[topic], self._senders[topic]

    def _finish(self, batch: _Batch, results: list[Produced | ApiError]) -> None:
        batch.results = results
        batch.unseen = {index: result for index, result in enumerate(results) if isinstance(result, ApiError)}
        if batch.unseen:
            self._failed[batch] = None
        self._buffered_bytes -= batch.size
        batch.records = []
        batch.done.set_result(None)

    async def _request(self, topic: str, records: list[bytes], *, splits: bool) -> list[Produced | ApiError]:
        """Append records in one request; one that is refused for a single record's fault is cut until that one is alone."""
        self._requests += 1
        try:
            answer: ProduceResponse = await self._client.call(
                PRODUCE,
                b'{"records":[%b]}' % b",".join(records),
                path={"topic": topic},
                headers={"Idempotency-Key": f"{self._key_prefix}-{self._requests}"},
            )
        except ApiError as error:
            if splits and len(records) > 1 and error.definite and error.error in ONE_RECORD_MAY_BE_AT_FAULT:
                middle = len(records) // 2
                first = await self._request(topic, records[:middle], splits=True)
                return first + await self._request(topic, records[middle:], splits=True)
            return [error] * len(records)
        return [Produced(topic, place.partition, place.offset) for place in answer.records]

"""Sends records: gathers them into batches, one request at a time for each topic, and appends no record twice.

A `Sender` is one order of records for each topic: a producer is one, and so is each of its transactions.
"""

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Unpack

import msgspec

from sharequeue.client import tracing
from sharequeue.client.errors import IllegalState, OneLoop
from sharequeue.client.following import FollowingClient
from sharequeue.client.new_record import NewRecord, RecordOptions, encode_record
from sharequeue.protocol import apis
from sharequeue.protocol.errors import BY_CODE
from sharequeue.protocol.messages.records import ProduceResponse, Unique
from sharequeue.protocol.types import MAX_IDEMPOTENCY_KEY_LENGTH
from sharequeue_http.calling.caller import Client, decoded
from sharequeue_http.forms.errors import ApiError

PRODUCE: Final = replace(apis.PRODUCE_RECORDS, idempotent=True)
"""Each request carries an Idempotency-Key, so it is safe to repeat one whose answer was lost."""

ONE_RECORD_MAY_BE_AT_FAULT: Final = frozenset(
    BY_CODE[code] for code in ("MESSAGE_TOO_LARGE", "INVALID_REQUEST", "UNKNOWN_TOPIC_OR_PARTITION")
)


class Produced(NamedTuple):
    """The place of a record that is durable. `duplicate`: of an earlier one, whose key was sent with `unique`."""

    topic: str
    partition: int
    offset: int
    duplicate: bool = False


class Terms(NamedTuple):
    """The members of a request besides its records. `key`: an idempotency key; None: the producer makes one."""

    unique: bytes = b""
    key: str | None = None


NO_TERMS: Final = Terms()


def terms_of(record: NewRecord, unique: Mapping[str, int | str] | None, key: str | None) -> Terms:
    """Return the terms of a record. Raises: ValueError: the service takes no such."""
    if key is not None and not (1 <= len(key) <= MAX_IDEMPOTENCY_KEY_LENGTH and key.isascii() and key.isprintable()):
        raise ValueError(f"an idempotency_key has 1 to {MAX_IDEMPOTENCY_KEY_LENGTH} characters of printable ASCII")
    if unique is None:
        return Terms(key=key)
    if record.key is None:
        raise ValueError("a record that is to be unique needs a key")
    try:
        message = msgspec.convert(unique, Unique)
    except msgspec.ValidationError as fault:
        raise ValueError(f"unique: {fault}") from None
    return Terms(b',"unique":' + msgspec.json.encode(message), key)


def traced(record: NewRecord, span: tracing.Span, terms: Terms) -> NewRecord:
    """Return the record with the trace of its span. One with an idempotency key stays: a repeat must be the same."""
    if span is None or terms.key is not None:
        return record
    return record._replace(headers=tracing.carried(span, record.headers))


@dataclass(eq=False)
class _Batch:
    """Records of one request. It is done when `results` has the place or the error of each."""

    terms: Terms
    whole: bool
    """The request is appended whole or not at all."""
    closed: bool
    """No record may join any more."""
    records: list[bytes] = field(default_factory=list)
    size: int = 0
    waiters: "list[asyncio.Future[None]]" = field(default_factory=list)
    results: list[Produced | ApiError] = field(default_factory=list)
    unraised: dict[int, ApiError] = field(default_factory=dict)
    """Errors that no caller has seen, by the index of the record."""

    def done(self) -> "asyncio.Future[None]":
        """Return a new future, which ends when the batch is done. A caller that is cancelled cancels no other one's."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.results:
            waiter.set_result(None)
        else:
            self.waiters.append(waiter)
        return waiter

    def finish(self, results: list[Produced | ApiError]) -> None:
        self.results = results
        self.unraised = {index: result for index, result in enumerate(results) if isinstance(result, ApiError)}
        self.records = []
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pending:
    """A record on its way. Await it for its place. The next `flush` or `close` raises a failure that was never awaited.

    Raises: ApiError: the record was not appended, or that is not known.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: _Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def result(self) -> Produced | ApiError:
        """Of a batch that is done."""
        return self._batch.results[self._index]

    def __await__(self) -> Generator[Any, None, Produced]:
        yield from self._batch.done()
        result = self.result
        if isinstance(result, ApiError):
            self._batch.unraised.pop(self._index, None)
            raise result
        return result


def _end(span: tracing.Span, result: Produced | ApiError | None) -> None:
    error = result if isinstance(result, ApiError) else None
    tracing.end(span, *((error.error.code, error.detail) if error else ()))


class Options(NamedTuple):
    """The arguments of a producer that say how records travel."""

    max_batch_records: int
    max_batch_bytes: int
    max_buffer_bytes: int


class Sender(OneLoop):
    """Sends records with a client that its owner closes.

    Args:
        transaction_id: the transaction that the records belong to.
    """

    _name = "producer"

    def __init__(self, client: Client, options: Options, transaction_id: str | None = None) -> None:
        self._client = client
        self._following = client if isinstance(client, FollowingClient) else None
        self._options = options
        self._transaction_id = transaction_id
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._batches: dict[str, deque[_Batch]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._failed: dict[_Batch, None] = {}
        self._key_prefix = uuid.uuid4().hex
        self._requests = 0
        self._flushing = 0
        self._closed = False
        self._lost_at_exit: list[ApiError] | None = None
        """Errors since the program began to end."""
        self._outside: ApiError | None = None
        """Set once records of the transaction were appended without it."""

    async def send(
        self, topic: str, value: Any, *, timestamp_ms: int | None = None, **options: Unpack[RecordOptions]
    ) -> Produced:
        """Append one record and return its place when it is durable.

        Args:
            value: any JSON, bytes, msgspec.Raw (JSON as it stands) or None (a tombstone).
        Raises: ApiError: the service's problem; if `definite`, the record was certainly not appended.
        """
        return await (await self.send_soon(topic, value, timestamp_ms=timestamp_ms, **options))

    async def send_soon(
        self, topic: str, value: Any, *, timestamp_ms: int | None = None, **options: Unpack[RecordOptions]
    ) -> Pending:
        """Hand over one record and return as soon as the buffer has room for it.

        Returns: a future of the record's place.
        """
        return await self._hand_over(topic, NewRecord(value, timestamp_ms=timestamp_ms, **options), NO_TERMS)

    async def _hand_over(self, topic: str, new: NewRecord, terms: Terms) -> Pending:
        """Put a record into a batch of the same terms. With a key of its own it has a request alone."""
        self._check_open()
        span = tracing.start("send", topic, "PRODUCER")
        record = encode_record(traced(new, span, terms))
        size = len(record) + 1
        await self._wait_for_room(size)
        waiting = self._batches.setdefault(topic, deque())
        batch = waiting[-1] if waiting else None
        if batch is None or batch.closed or batch.terms != terms or not self._fits(batch, size):
            batch = self._new_batch(topic, terms, whole=terms.key is not None)
        self._add(batch, record)
        pending = Pending(batch, len(batch.records) - 1)
        if span is not None:
            batch.done().add_done_callback(lambda _: _end(span, pending.result))
        return pending

    async def send_many(self, topic: str, records: Iterable[Any]) -> list[Produced]:
        """Append many records and return their places when all are durable.

        Args:
            records: values, or NewRecord where there is more than a value. Up to `max_batch_records` and
                `max_batch_bytes` of them make one request, which is appended whole or not at all.
        Raises: ApiError: of the first record that was not appended; those of other requests may have been.
        """
        self._check_open()
        batches: list[_Batch] = []
        batch: _Batch | None = None
        span = tracing.start("send", topic, "PRODUCER")
        for item in records:
            new = item if isinstance(item, NewRecord) else NewRecord(item)
            record = encode_record(traced(new, span, NO_TERMS))
            size = len(record) + 1
            if batch is None or not self._fits(batch, size):
                await self._wait_for_room(size)
                batch = self._new_batch(topic, NO_TERMS, whole=True)
                batches.append(batch)
            self._add(batch, record)
        produced: list[Produced] = []
        failures: list[ApiError] = []
        for batch in batches:
            await batch.done()
            batch.unraised.clear()
            failures += [result for result in batch.results if isinstance(result, ApiError)]
            produced += [result for result in batch.results if not isinstance(result, ApiError)]
        if span is not None:
            span.set_attribute("messaging.batch.message_count", len(produced) + len(failures))
            _end(span, failures[0] if failures else None)
        if failures:
            raise failures[0]
        return produced

    async def flush(self) -> None:
        """Return when no record waits any more. Raises: ApiError: the first failure that no caller has seen."""
        self._check_loop()
        self._flushing += 1
        try:
            while self._senders:
                await asyncio.wait(self._senders.values())
        finally:
            self._flushing -= 1
        self._raise_unraised()

    async def _flush_at_exit(self, seconds: float) -> str:
        """Flush for so long at most. Returns: a sentence about records that may be lost; "": there are none."""
        self._lost_at_exit = [] if self._lost_at_exit is None else self._lost_at_exit
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.flush()
        waiting = sum(len(batch.records) for batches in self._batches.values() for batch in batches)
        lost = waiting + len(self._lost_at_exit)
        why = self._lost_at_exit[0].detail if self._lost_at_exit else f"{self._client.base_url} has not answered"
        return f"{lost} of its records may not be appended: {why}" if lost else ""

    def _raise_unraised(self) -> None:
        failed, self._failed = self._failed, {}
        for batch in failed:
            for error in batch.unraised.values():
                raise error

    async def _give_up(self) -> None:
        """Stop. Records that have no answer fail, with a `definite` error if they were not sent."""
        self._closed = True
        given_up = list(self._senders.values())
        for sender in given_up:
            sender.cancel()
        if given_up:
            await asyncio.wait(given_up)

    def _check_open(self) -> None:
        self._check_loop()
        if self._closed:
            raise IllegalState(f"the {self._name} is closed")

    async def _wait_for_room(self, size: int) -> None:
        while self._buffered_bytes and self._buffered_bytes + size > self._options.max_buffer_bytes:
            self._room.clear()
            await self._room.wait()
            if not self._flushing:  # a close that flushes sends this record, too
                self._check_open()

    def _new_batch(self, topic: str, terms: Terms, *, whole: bool) -> _Batch:
        batch = _Batch(terms, whole, closed=whole)
        self._batches.setdefault(topic, deque()).append(batch)
        if topic not in self._senders:
            self._senders[topic] = asyncio.get_running_loop().create_task(self._send_batches(topic))
        return batch

    def _fits(self, batch: _Batch, size: int) -> bool:
        """Return whether a request may hold so many bytes more, in one more record."""
        options = self._options
        return len(batch.records) < options.max_batch_records and batch.size + size <= options.max_batch_bytes

    def _add(self, batch: _Batch, record: bytes) -> None:
        batch.records.append(record)
        batch.size += len(record) + 1
        self._buffered_bytes += len(record) + 1

    async def _send_batches(self, topic: str) -> None:
        """Send the batches of one topic, one after another, until none is left."""
        waiting = self._batches[topic]
        sent: _Batch | None = None
        try:
            while waiting:
                sent = batch = waiting[0]
                batch.closed = True
                results = await self._request(topic, batch.records, batch.terms, splits=not batch.whole)
                waiting.popleft()
                self._finish(batch, results)
        finally:
            for batch in waiting:
                stopped = ApiError(
                    f"the {self._name} was closed before the service answered", definite=batch is not sent
                )
                self._finish(batch, [stopped] * len(batch.records))
            del self._batches[topic], self._senders[topic]

    def _finish(self, batch: _Batch, results: list[Produced | ApiError]) -> None:
        batch.finish(results)
        if batch.unraised:
            self._failed[batch] = None
        if self._lost_at_exit is not None:
            self._lost_at_exit += batch.unraised.values()
        self._buffered_bytes -= batch.size
        self._room.set()

    async def _request(
        self, topic: str, records: list[bytes], terms: Terms, *, splits: bool
    ) -> list[Produced | ApiError]:
        """Append records in one request. A request that one record may spoil is halved until that record is alone."""
        self._requests += 1
        headers = {"Idempotency-Key": terms.key or f"{self._key_prefix}-{self._requests}"}
        if self._transaction_id is not None:
            headers["Transaction-Id"] = self._transaction_id
        try:
            content = b'{"records":[%b]%b}' % (b",".join(records), terms.unique)
            body, told = await self._client.relay(PRODUCE, content, path={"topic": topic}, headers=headers)
            if self._transaction_id is not None and told.get("transaction-id") != self._transaction_id:
                self._outside = ApiError(
                    f"records of {topic} were appended outside of the transaction: the answer of {self._client.base_url}"
                    " has no header Transaction-Id, so a proxy may have removed it from the request",
                    definite=False,
                )
                raise self._outside
            answer: ProduceResponse = decoded(PRODUCE, body, self._client.base_url)
            if self._following is not None:
                self._following.learn({(topic, place.partition) for place in answer.records}, answer.leaders)
        except ApiError as error:
            if splits and len(records) > 1 and error.definite and error.error in ONE_RECORD_MAY_BE_AT_FAULT:
                middle = len(records) // 2
                first = await self._request(topic, records[:middle], terms, splits=True)
                return first + await self._request(topic, records[middle:], terms, splits=True)
            return [error] * len(records)
        return [Produced(topic, place.partition, place.offset, place.duplicate) for place in answer.records]

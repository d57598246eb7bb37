"""`Producer` and `ShareConsumer` without async, for ordinary code.

Each object owns an event loop in a thread of its own. A method hands its call to the same method of the async object
there and waits for the answer. Signatures are those of `sharequeue.client`, and so is what they raise; a call after
`close` raises IllegalState. Several threads may use one Producer. One thread at a time uses a ShareConsumer.
"""

import concurrent.futures
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self

from sharequeue import client
from sharequeue.client.consuming.deliveries import Record
from sharequeue.client.consuming.settling import CommitCallback, Committed
from sharequeue.client.loop_thread import LoopThread
from sharequeue.client.sending import Produced, Sender
from sharequeue.protocol.messages.transactions import EndedTransaction
from sharequeue.protocol.types import AcquireMode


class _Sending:
    """What a producer and its transactions have."""

    _thread: LoopThread
    _sender: Sender

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Produced:
        """Append one record and return its place when it is durable.

        Args:
            value: any JSON, bytes, msgspec.Raw (JSON as it stands) or None (a tombstone).
        Raises: ApiError: the service's problem; if `definite`, the record was certainly not appended.
        """
        return self._thread.wait_for(
            lambda: self._sender.send(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )

    def send_soon(
        self,
        topic: str,
        value: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "concurrent.futures.Future[Produced]":
        """Hand over one record and return as soon as the buffer has room for it.

        Returns: a future of the record's place.
        """
        pending = self._thread.wait_for(
            lambda: self._sender.send_soon(
                topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
            )
        )
        return self._thread.later(pending)

    def send_many(self, topic: str, records: Iterable[Any]) -> list[Produced]:
        """Append many records and return their places when all are durable.

        Args:
            records: values, or NewRecord where there is more than a value. Up to `max_batch_records` and
                `max_batch_bytes` of them make one request, which is appended whole or not at all.
        Raises: ApiError: of the first record that was not appended; those of other requests may have been.
        """
        return self._thread.wait_for(lambda: self._sender.send_many(topic, records))

    def flush(self) -> None:
        """Return when no record waits any more. Raises: ApiError: of the first failure that nobody has seen yet."""
        self._thread.wait_for(self._sender.flush)


class Producer(_Sending):
    """`sharequeue.client.Producer` without async; its docstring explains the arguments.

    Example:
        with Producer("http://127.0.0.1:8080") as producer:
            place = producer.send("orders", {"id": 1})
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
        transactional_id: str | None = None,
    ) -> None:
        self._thread = LoopThread()
        try:
            self._sender = self._producer = self._thread.call(
                lambda: client.Producer(
                    url,
                    linger_ms=linger_ms,
                    max_batch_records=max_batch_records,
                    max_batch_bytes=max_batch_bytes,
                    max_buffer_bytes=max_buffer_bytes,
                    deadline_ms=deadline_ms,
                    transactional_id=transactional_id,
                )
            )
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def transaction(self, *, timeout_ms: int = 60_000, note: str | None = None) -> "Transaction":
        """A transaction: `with producer.transaction() as t`. Its records become visible together, or never.

        What is sent with the transaction is part of it; what is sent with the producer is not.

        Args:
            timeout_ms: the service aborts it if it is open for longer.
            note: kept by the commit for the next transaction of the same `transactional_id`, as `committed_note`.
        """
        return Transaction(
            self._thread, self._thread.call(lambda: self._producer.transaction(timeout_ms=timeout_ms, note=note))
        )

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Flush, close the connections and end the thread. Once closed, this does nothing.

        Args:
            timeout_ms: give up requests that have no answer by then. Their records fail, with a `definite` error if
                they were not sent.
        Raises: as `flush`.
        """
        if self._thread.stopped:
            return
        try:
            self._thread.wait_for(lambda: self._producer.close(timeout_ms=timeout_ms))
        finally:
            self._thread.stop()


class Transaction(_Sending):
    """`sharequeue.client.Transaction` without async; its docstring says what becomes of it.
    `Producer.transaction` makes it.

    Example:
        with producer.transaction() as t:
            t.send("orders", {"id": 1})
            t.send("payments", {"order": 1})
            t.acknowledge(record)              # of a ShareConsumer or RecordStream: settled by the commit
    """

    def __init__(self, thread: LoopThread, transaction: client.Transaction) -> None:
        self._thread = thread
        self._sender = self._transaction = transaction

    @property
    def transaction_id(self) -> str:
        """Its id, for other calls. Raises: IllegalState: it has not begun."""
        return self._transaction.transaction_id

    @property
    def committed_note(self) -> str | None:
        """The note of the last commit with the same transactional id. Raises: IllegalState: it has not begun."""
        return self._transaction.committed_note

    @property
    def outcome(self) -> EndedTransaction | None:
        """What became of it: when it was committed or aborted. None while it is open, or if that is not known."""
        return self._transaction.outcome

    @property
    def in_doubt(self) -> bool:
        """Whether it may have been committed, or not: the answer to its commit was lost."""
        return self._transaction.in_doubt

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Have the commit settle a record that a consumer holds; see `sharequeue.client.Transaction.acknowledge`."""
        self._transaction.acknowledge(
            record, type, reason=reason, delay_ms=delay_ms, begun=begun
        )  # needs no event loop

    def __enter__(self) -> Self:
        self._thread.wait_for(self._transaction.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.wait_for(lambda: self._transaction.__aexit__(kind, fault, trace))


class ShareConsumer:
    """`sharequeue.client.ShareConsumer` without async; its docstring explains the modes and the arguments.

    Example:
        with ShareConsumer("http://127.0.0.1:8080", "billing", ["orders"]) as consumer:
            for record in consumer:            # asking for the next record accepts this one
                print(record.value)
    """

    def __init__(
        self,
        url: str,
        group: str,
        topics: Iterable[str] = (),
        *,
        member_id: str | None = None,
        acknowledgement: Literal["implicit", "explicit", "deferred"] = "implicit",
        max_records: int = 500,
        max_bytes: int = 52_428_800,
        min_bytes: int = 1,
        batch_size: int | None = None,
        acquire_mode: AcquireMode | Literal["record_limit", "batch_optimized"] = AcquireMode.RECORD_LIMIT,
        lock_duration_ms: int | None = None,
        renew: bool = True,
        follow_leaders: bool = False,
        request_timeout_ms: float = 30_000,
        max_poll_interval_ms: float = 300_000,
    ) -> None:
        self._thread = LoopThread()
        try:
            self._consumer = self._thread.call(
                lambda: client.ShareConsumer(
                    url,
                    group,
                    topics,
                    member_id=member_id,
                    acknowledgement=acknowledgement,
                    max_records=max_records,
                    max_bytes=max_bytes,
                    min_bytes=min_bytes,
                    batch_size=batch_size,
                    acquire_mode=acquire_mode,
                    lock_duration_ms=lock_duration_ms,
                    renew=renew,
                    follow_leaders=follow_leaders,
                    request_timeout_ms=request_timeout_ms,
                    max_poll_interval_ms=max_poll_interval_ms,
                )
            )
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.stopped:
            return
        try:
            self._thread.wait_for(lambda: self._consumer.__aexit__(kind, fault, trace))
        finally:
            self._thread.stop()

    @property
    def member_id(self) -> str:
        """The id of this member, given or made."""
        return self._consumer.member_id

    @property
    def group(self) -> str:
        """The share group."""
        return self._consumer.group

    @property
    def subscription(self) -> list[str]:
        """The names of the topics that polls fetch from."""
        return self._consumer.subscription

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that the group assigned to this member, by topic; empty without `subscribe`."""
        return self._consumer.assignment

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group for these topics, in place of the earlier ones. Polls then fetch what the group assigns."""
        self._thread.call(lambda: self._consumer.subscribe(topics))

    def poll(self, timeout_ms: float = 10_000) -> list[Record]:
        """Return records as soon as there are any; an empty list when there are none within `timeout_ms`.

        Raises: IllegalState: in explicit mode, a record of an earlier poll is not acknowledged.
            AcknowledgementError: earlier acknowledgements were not applied; the next poll returns the records of this
                one.
            ApiError: the service refused, or was out of reach for request_timeout_ms.
        """
        return self._thread.wait_for(lambda: self._consumer.poll(timeout_ms))

    def __iter__(self) -> Iterator[Record]:
        """Records without end. In implicit mode asking for the next one accepts the one before. Raises: as `poll`."""
        while True:
            yield self._thread.wait_for(self._consumer.__anext__)

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject", "renew"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Choose the outcome of a record; the next poll or commit sends it. The last choice before that counts.

        Args:
            type: accept: done. release: deliver it again, to any member. reject: write it to the dead-letter queue.
                renew: start the lock again; the next poll returns the record again.
            reason: why, on release and reject; up to 1024 characters. delay_ms: on release, not before that time;
                None: after the group's backoff (`share.retry.backoff.ms`), 0: at once.
            begun: False on release: the program did not begin to work on the record, so its delivery is no attempt.
        Raises: IllegalState: implicit mode, or the outcome was sent already. ValueError: no such type, or an option
            that it does not allow.
        """
        self._consumer.acknowledge(record, type, reason=reason, delay_ms=delay_ms, begun=begun)  # needs no event loop

    def commit(self) -> Committed:
        """Settle every chosen outcome; in implicit mode, accept what was handed out. Returns when it is durable.

        Returns: how many offsets were settled, by (topic, partition).
        Raises: AcknowledgementError: some were not applied; the others were. ApiError: the outcome is not known yet;
            commit again, which is safe.
        """
        return self._thread.wait_for(self._consumer.commit)

    def commit_async(self, callback: CommitCallback | None = None) -> None:
        """As `commit`, in the background. The consumer's own thread calls `callback(committed, error)` at the end.

        Without a callback the next poll or `close` raises a failure.
        """
        self._thread.call(lambda: self._consumer.commit_async(callback))

    def close(self) -> None:
        """Settle what has an outcome, release everything else, close the session and end the thread.

        Raises: AcknowledgementError, ApiError: as `commit`; the consumer is closed all the same.
        """
        if self._thread.stopped:
            return
        try:
            self._thread.wait_for(self._consumer.close)
        finally:
            self._thread.stop()


class RecordStream:
    """`sharequeue.client.RecordStream` without async; its docstring explains the arguments.

    Example:
        with RecordStream("http://127.0.0.1:8080", "billing", ["orders"]) as stream:
            for record in stream:
                print(record.value)
                stream.acknowledge(record)
    """

    def __init__(
        self,
        url: str,
        group: str,
        topics: Iterable[str],
        *,
        member_id: str | None = None,
        window: int = 100,
        resume_ms: int = 5000,
        request_timeout_ms: float = 30_000,
    ) -> None:
        self._thread = LoopThread()
        try:
            self._stream = self._thread.call(
                lambda: client.RecordStream(
                    url,
                    group,
                    topics,
                    member_id=member_id,
                    window=window,
                    resume_ms=resume_ms,
                    request_timeout_ms=request_timeout_ms,
                )
            )
        except BaseException:
            self._thread.stop()
            raise

    @property
    def member_id(self) -> str:
        return self._stream.member_id

    @property
    def group(self) -> str:
        return self._stream.group

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Record]:
        return self

    def __next__(self) -> Record:
        """As `RecordStream.__anext__` of the async client."""
        return self._thread.wait_for(self._stream.__anext__)

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject", "renew"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Settle a record, or renew its lock; durable when this returns."""
        self._thread.wait_for(
            lambda: self._stream.acknowledge(record, type, reason=reason, delay_ms=delay_ms, begun=begun)
        )

    def close(self) -> None:
        """End the stream, and release what has no outcome."""
        if self._thread.stopped:
            return
        try:
            self._thread.wait_for(self._stream.close)
        finally:
            self._thread.stop()

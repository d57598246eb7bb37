# Made by `make renew-document` from the classes of `sharequeue.client`; do not edit. docs/sync_client.py makes it.
"""`Producer`, `ShareConsumer` and `Admin` without async, for ordinary code.

Each object owns an async object and the thread of its event loop, which `close` ends. A method calls the same method
there and waits for the answer. Signatures are those of `sharequeue.client`, and so is what they raise; a call after
`close` raises IllegalState. Several threads may use one Producer. One thread at a time uses a ShareConsumer.
"""

import concurrent.futures
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Generic, Literal, Unpack, cast, overload

from sharequeue import client
from sharequeue.client.consuming.acknowledging import Committed
from sharequeue.client.consuming.deliveries import Record, V
from sharequeue.client.consuming.settling import CommitCallback
from sharequeue.client.loop_thread import OnThread, OwnThread
from sharequeue.client.new_record import RecordOptions
from sharequeue.client.producer import SendOptions
from sharequeue.client.scheduling import Scheduled
from sharequeue.client.sending import Produced
from sharequeue.protocol.messages.access import Acl, AclList, CreatedKey, KeyDescription, RevokedKeys
from sharequeue.protocol.messages.dead_letters import DeadLetter, DropResult, RedriveResult
from sharequeue.protocol.messages.groups import (
    GroupTopicOffsets,
    ResetOffsetsResult,
    ResetTopic,
    ShareGroupDescription,
    ShareGroupListing,
    ShareGroupServiceConfig,
)
from sharequeue.protocol.messages.in_flight import ListInFlightResponse, RecordChange, RecordLife, Window
from sharequeue.protocol.messages.records import ProduceRecord, RecordPage
from sharequeue.protocol.messages.reports import ActivityEntry, GroupAttention, SampleList
from sharequeue.protocol.messages.scheduled import (
    CancelledRecords,
    DueRecord,
    ScheduleDescription,
    ScheduledListing,
    ScheduleList,
    ScheduleSummary,
)
from sharequeue.protocol.messages.topics import (
    DeletedRecords,
    DeleteRecordsPartition,
    Topic,
    TopicDescription,
    TopicListing,
)
from sharequeue.protocol.messages.transactions import EndedTransaction, TransactionDescription, TransactionList
from sharequeue.protocol.types import AcquireMode
from sharequeue_http.calling.login import Token


class Producer(OwnThread[client.Producer]):
    """Produces records to topics.

    A record alone goes at once. Records that are sent at the same moment, or while a request of their topic is under
    way, share a request. Each topic has one request under way at a time, so its records keep their order. A request is
    retried until `deadline_ms` with the same idempotency key, so no retry appends a record twice.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080". Of several, the next is called when one gives no answer.
        max_batch_records, max_batch_bytes: a request holds no more; a larger record has a request of its own.
        max_buffer_bytes: `send` waits while more than this is buffered.
        deadline_ms: for all tries of a request.
        transactional_id: a name that the producer keeps over its restarts. Its first transaction aborts an open one of
            an earlier producer with the same name, and the earlier producer is refused from then on.
        follow_leaders: call the gateway that appends to most of the partitions, once answers name it. That saves a hop.
            The producer must reach every gateway at its setting `url`.
        token: the key that every request carries, or a function that returns it; the function is called for each
            request, so that a new key counts at once. headers: further headers of every request, for a proxy before the
            gateway. ca: a file of the authorities that a URL of https is checked by; None: those of the system.

    Example:
        with Producer("http://127.0.0.1:8080") as producer:
            place = producer.send("orders", {"id": 1}, key="cust-9")   # Produced("orders", 0, 17)
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        max_batch_records: int = 1000,
        max_batch_bytes: int = 1024 * 1024,
        max_buffer_bytes: int = 32 * 1024 * 1024,
        deadline_ms: float = 30_000,
        transactional_id: str | None = None,
        follow_leaders: bool = False,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        super().__init__(
            lambda: client.Producer(
                url,
                max_batch_records=max_batch_records,
                max_batch_bytes=max_batch_bytes,
                max_buffer_bytes=max_buffer_bytes,
                deadline_ms=deadline_ms,
                transactional_id=transactional_id,
                follow_leaders=follow_leaders,
                token=token,
                headers=headers,
                ca=ca,
            )
        )

    def close(self, *, timeout_ms: float | None = None) -> None:
        """Flush, then close the connections. End transactions before: one that is open then is aborted by its time-out.

        Args:
            timeout_ms: give up requests that have no answer by then. Their records fail, with a `definite` error if
                they were not sent.
        Raises: as `flush`.
        """
        self._end(lambda: self._inner.close(timeout_ms=timeout_ms))

    @overload
    def send(self, topic: str, value: Any, *, delay_ms: int, **options: Unpack[SendOptions]) -> Scheduled: ...
    @overload
    def send(self, topic: str, value: Any, *, deliver_at_ms: int, **options: Unpack[SendOptions]) -> Scheduled: ...
    @overload
    def send(
        self, topic: str, value: Any, *, timestamp_ms: int | None = None, **options: Unpack[SendOptions]
    ) -> Produced: ...
    def send(
        self,
        topic: str,
        value: Any,
        *,
        timestamp_ms: int | None = None,
        idempotency_key: str | None = None,
        unique: Mapping[str, int | str] | None = None,
        delay_ms: int | None = None,
        deliver_at_ms: int | None = None,
        **options: Unpack[RecordOptions],
    ) -> Produced | Scheduled:
        """Append one record and return its place when it is durable.

        Args:
            value: any JSON, bytes, msgspec.Raw (JSON as it stands) or None (a tombstone).
            idempotency_key: a repeat with this key and the same record, within 24 hours and by any program, gets the
                first answer. Such a record has a request of its own. unique: as in produceRecords: {"within_ms": …}
                or {"until_group": …} appends the record only if its key is new in the topic for so long; else the place
                is that of the first.
            delay_ms, deliver_at_ms: in how many milliseconds, or when since the epoch, the record enters its topic,
                exactly once. Both reach up to ten years ahead. It waits at the service, and needs no program that runs.
        Returns: its place in the topic, or among the scheduled records.
        Raises: ApiError: the service's problem; if `definite`, the record was certainly not appended. ValueError: an
            argument that the service does not take, or that does not go with another.
        """
        answer: Produced | Scheduled = self._thread.wait_for(
            lambda: cast(Any, self._inner).send(
                topic,
                value,
                timestamp_ms=timestamp_ms,
                idempotency_key=idempotency_key,
                unique=unique,
                delay_ms=delay_ms,
                deliver_at_ms=deliver_at_ms,
                **options,
            )
        )
        return answer

    def send_soon(
        self, topic: str, value: Any, *, timestamp_ms: int | None = None, **options: Unpack[RecordOptions]
    ) -> "concurrent.futures.Future[Produced]":
        """Hand over one record and return as soon as the buffer has room for it.

        Returns: a future of the record's place.
        """
        return self._thread.later(
            self._thread.wait_for(lambda: self._inner.send_soon(topic, value, timestamp_ms=timestamp_ms, **options))
        )

    def send_many(self, topic: str, records: Iterable[Any]) -> list[Produced]:
        """Append many records and return their places when all are durable.

        Args:
            records: values, or NewRecord where there is more than a value. Up to `max_batch_records` and
                `max_batch_bytes` of them make one request, which is appended whole or not at all.
        Raises: ApiError: of the first record that was not appended; those of other requests may have been.
        """
        return self._thread.wait_for(lambda: self._inner.send_many(topic, records))

    def flush(self) -> None:
        """Return when no record waits any more. Raises: ApiError: the first failure that no caller has seen."""
        self._thread.wait_for(self._inner.flush)

    def transaction(self, *, timeout_ms: int = 60_000, note: str | None = None) -> "Transaction":
        """A transaction: `with producer.transaction() as t`. Its records become visible together, or never.

        What is sent with the transaction is part of it; what is sent with the producer is not.

        Args:
            timeout_ms: the service aborts it if it is open for longer.
            note: kept by the commit for the next transaction of the same `transactional_id`, as `committed_note`.
        """
        return Transaction(
            self._thread, self._thread.call(lambda: self._inner.transaction(timeout_ms=timeout_ms, note=note))
        )

    def cancel_scheduled(self, topic: str, *, schedule_ids: Sequence[str] = (), key: str | None = None) -> list[str]:
        """Cancel scheduled records, at most 1,000 in one call.

        Args: exactly one of both: their ids, or the key of the records.
        Returns: the ids of those that will not enter the topic. The others have entered it, or were cancelled before.
        Raises: ApiError.
        """
        return self._thread.wait_for(lambda: self._inner.cancel_scheduled(topic, schedule_ids=schedule_ids, key=key))


class Transaction(OnThread[client.Transaction]):
    """Records that become visible to `read_committed` groups together, or never. `Producer.transaction` makes it.

    The block of `with` is the transaction. At its end all records are flushed, and the transaction is committed.
    If the block raises, it is aborted. A failure of `send_soon` is in its future alone. After
    the block either `outcome` is there, or an ApiError was raised: its `problem` has `state` and `reason`, what became
    of it. Is it not `definite`, the transaction may have been committed; `describeTransaction` tells.

    Example:
        with producer.transaction() as t:
            t.send("orders", {"id": 1})
            t.send("payments", {"order": 1})
            t.acknowledge(record)              # of a ShareConsumer or RecordStream: settled by the commit
    """

    def send(
        self, topic: str, value: Any, *, timestamp_ms: int | None = None, **options: Unpack[RecordOptions]
    ) -> Produced:
        """Append one record and return its place when it is durable.

        Args:
            value: any JSON, bytes, msgspec.Raw (JSON as it stands) or None (a tombstone).
        Raises: ApiError: the service's problem; if `definite`, the record was certainly not appended.
        """
        return self._thread.wait_for(lambda: self._inner.send(topic, value, timestamp_ms=timestamp_ms, **options))

    def send_soon(
        self, topic: str, value: Any, *, timestamp_ms: int | None = None, **options: Unpack[RecordOptions]
    ) -> "concurrent.futures.Future[Produced]":
        """Hand over one record and return as soon as the buffer has room for it.

        Returns: a future of the record's place.
        """
        return self._thread.later(
            self._thread.wait_for(lambda: self._inner.send_soon(topic, value, timestamp_ms=timestamp_ms, **options))
        )

    def send_many(self, topic: str, records: Iterable[Any]) -> list[Produced]:
        """Append many records and return their places when all are durable.

        Args:
            records: values, or NewRecord where there is more than a value. Up to `max_batch_records` and
                `max_batch_bytes` of them make one request, which is appended whole or not at all.
        Raises: ApiError: of the first record that was not appended; those of other requests may have been.
        """
        return self._thread.wait_for(lambda: self._inner.send_many(topic, records))

    def flush(self) -> None:
        """Return when no record waits any more. Raises: ApiError: the first failure that no caller has seen."""
        self._thread.wait_for(self._inner.flush)

    @property
    def transaction_id(self) -> str:
        """Its id, for other calls. Raises: IllegalState: it has not begun."""
        return self._inner.transaction_id

    @property
    def committed_note(self) -> str | None:
        """The note of the last commit with the same transactional id. Raises: IllegalState: it has not begun."""
        return self._inner.committed_note

    @property
    def outcome(self) -> EndedTransaction | None:
        """Return what became of it: when it was committed or aborted. None while it is open, or if that is not
        known."""
        return self._inner.outcome

    @property
    def in_doubt(self) -> bool:
        """Return whether it may have been committed, or not: the answer to its commit was lost."""
        return self._inner.in_doubt

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Have the commit settle a record that a consumer holds; the arguments are ShareConsumer.acknowledge's.

        The consumer keeps its lock alive until then. If the transaction is aborted, it still holds the record, which
        needs another outcome. If it does not hold it any more, nothing of the transaction happens, and the end of the
        block raises an ApiError whose `problem` has `results`.

        Raises: IllegalState: the transaction is not open, or the record has an outcome. ValueError: as there, or renew.
        """
        self._inner.acknowledge(record, type, reason=reason, delay_ms=delay_ms, begun=begun)


class ShareConsumer(OwnThread[client.ShareConsumer[V]], Generic[V]):
    """Consumes topics as a member of a share group. One thread uses it at a time.

    `acknowledgement="implicit"`: the next poll or commit accepts what the last poll returned. `"explicit"`:
    `acknowledge` chooses the outcome of every record before the next poll. `"deferred"`: as explicit, but a record may
    stay without an outcome over many polls, as in a pool of workers. Outcomes travel with the next poll, or with
    `commit`. `close` releases the records that have none.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080". Of several, the next is called when one gives no answer.
        topics: names. Fetches from all their partitions without joining the group, and waits for topics that do not
            exist yet. `subscribe` joins the group instead.
        member_id: 1 to 36 characters; made when None. Two consumers must not share one.
        max_records: how many records a fetch returns at most. None: as many as the program handles within 0.2 seconds,
            by the time that those before took, at most 500; first 10 for `poll`, and 1 for a loop over the consumer. A
            deferred consumer fetches 500.
        max_bytes, min_bytes, batch_size, acquire_mode: as in fetchRecords, for each poll.
        priority: the topics are in the order of priority, as in fetchRecords: each fetch takes records of the first
            topic that has some. With a small max_records an urgent record waits for few others.
        lock_duration_ms: how long a record stays locked without a renewal; None: as long as the group's setting says.
        renew: renew the locks of held records in the background, where the group allows it.
        value_type: what `Record.value` is: a dataclass, a TypedDict, a msgspec.Struct, a model of pydantic, `bytes` or
            another type that msgspec decodes. None: any JSON, or bytes.
        follow_leaders: call the gateway that leads most of what is fetched, once answers name it. That saves a hop, and
            needs no share session. For consumers that reach every gateway by its own URL. Leaders get the token, too,
            but not `headers`; from a URL of https no leader of http is followed.
        request_timeout_ms: how long the service may be out of reach before that is an error. None: polls and commits
            wait until it is back.
        max_poll_interval_ms: a consumer that was not used for so long renews no locks, gives back the records that it
            has not begun, and leaves the group. None: it renews as long as its process lives; a member that does not
            poll leaves the group after five minutes, and joins again with its next poll.
        on_acknowledged: gets (committed, error), as the callback of `commit_async`, for the outcomes that a poll,
            `stop` or `close` sent. Without it failures are logged.
        token, headers, ca: as of Producer.

    Example:
        with ShareConsumer("http://127.0.0.1:8080", "billing", ["orders"]) as consumer:
            for record in consumer:      # asking for the next record accepts this one
                print(record.value)
    """

    def __init__(
        self,
        url: str | Sequence[str],
        group: str,
        topics: Iterable[str] = (),
        *,
        member_id: str | None = None,
        acknowledgement: Literal["implicit", "explicit", "deferred"] = "implicit",
        max_records: int | None = None,
        max_bytes: int = 52_428_800,
        min_bytes: int = 1,
        batch_size: int | None = None,
        acquire_mode: AcquireMode | Literal["record_limit", "batch_optimized"] = AcquireMode.RECORD_LIMIT,
        lock_duration_ms: int | None = None,
        priority: bool = False,
        renew: bool = True,
        value_type: type[V] | UnionType | None = None,
        follow_leaders: bool = False,
        request_timeout_ms: float | None = None,
        max_poll_interval_ms: float | None = None,
        on_acknowledged: CommitCallback | None = None,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        super().__init__(
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
                priority=priority,
                renew=renew,
                value_type=value_type,
                follow_leaders=follow_leaders,
                request_timeout_ms=request_timeout_ms,
                max_poll_interval_ms=max_poll_interval_ms,
                on_acknowledged=on_acknowledged,
                token=token,
                headers=headers,
                ca=ca,
            )
        )

    def close(self) -> None:
        """Settle what has an outcome, release everything else, close the session and the connections.

        What lies behind the last record that the program began goes back as no attempt. A record is begun when a loop
        reaches it, or when its key or value is read. `close` also releases the records that a cancelled poll or a poll
        with a lost answer has acquired.

        Raises: ApiError: the outcomes are not known; the consumer is closed all the same.
        """
        self._end(self._inner.close)

    @property
    def member_id(self) -> str:
        """The id of this member, given or made."""
        return self._inner.member_id

    @property
    def group(self) -> str:
        """The share group."""
        return self._inner.group

    @property
    def subscription(self) -> list[str]:
        """The names of the topics that polls fetch from."""
        return self._inner.subscription

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions that the group assigned to this member, by topic; empty without `subscribe`."""
        return self._inner.assignment

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group for these topics, in place of the earlier ones. Polls then fetch what the group assigns.

        A background task sends heartbeats. A member that the group evicted joins again. A member that was not used for
        max_poll_interval_ms (None: five minutes) leaves, and joins again with the next poll. Without topics the member
        leaves. Held records stay held.
        """
        self._thread.call(lambda: self._inner.subscribe(topics))

    def poll(self, timeout_ms: float = 10_000, *, max_records: int | None = None) -> list[Record[V]]:
        """Return records as soon as there are any; an empty list when there are none within `timeout_ms`.

        Records that the user renewed come before others. A cancelled poll loses nothing: the next one returns its
        records.

        Args:
            max_records: fetch no more this time; None: as many as the consumer's own `max_records`.

        Raises: IllegalState: in explicit mode, a record of an earlier poll is not acknowledged.
            ApiError: the service refused, or was out of reach for request_timeout_ms.
        """
        return self._thread.wait_for(lambda: self._inner.poll(timeout_ms, max_records=max_records))

    def __iter__(self) -> Iterator[Record[V]]:
        return self

    def __next__(self) -> Record[V]:
        """The next record; there is always another, until `stop`. In implicit mode this accepts the one before.

        Raises: as `poll`.
        """
        return self._thread.next(self._inner.__anext__)

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
        self._inner.acknowledge(record, type, reason=reason, delay_ms=delay_ms, begun=begun)

    def commit(self) -> Committed:
        """Settle every chosen outcome; in implicit mode, accept what was handed out. Returns when it is durable.

        Returns: how many offsets were settled, by (topic, partition). Its `failures` are those that were refused,
            because the lock had ended, for example.
        Raises: ApiError: the outcome is not known yet; commit again, which is safe.
        """
        return self._thread.wait_for(self._inner.commit)

    def commit_async(self, callback: CommitCallback | None = None) -> None:
        """As `commit`, in the background. The consumer's own thread calls `callback(committed, error)` at the end.

        Without a callback `on_acknowledged` gets the result; without that, too, failures are logged.
        """
        self._thread.call(lambda: self._inner.commit_async(callback))

    @property
    def stopped(self) -> bool:
        """Tell whether `stop` was called."""
        return self._inner.stopped

    def stop(self) -> None:
        """End the loops over the consumer and over what its last poll returned; a poll under way returns nothing.

        What the program has not begun goes back at once, as no attempt. It may finish the record in hand, settle it and
        `close`. If the service is away then, records come again when their locks end. Any thread and any signal handler
        may call this, at any time.
        """
        self._inner.stop()


class RecordStream(OwnThread[client.RecordStream[V]], Generic[V]):
    """Receives the records of topics as a member of a share group. One thread uses it at a time.

    A lost connection is opened again, and no record comes twice in one delivery. Nothing renews the locks: a record
    that is held beyond its lock comes again; one that waits goes back before. `close` releases what has no outcome.

    Args:
        url: the gateway, e.g. "http://127.0.0.1:8080". topics: names of topics that exist.
        member_id: 1 to 36 characters; made when None. Two streams must not share one.
        window: the most records that are held at a time. resume_ms: how long the service keeps them for a lost
            connection.
        request_timeout_ms: how long the service may be out of reach before that is an error. None: the loop waits.
        value_type: as of ShareConsumer. token, headers, ca: as of Producer.

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
        value_type: type[V] | UnionType | None = None,
        request_timeout_ms: float | None = None,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        super().__init__(
            lambda: client.RecordStream(
                url,
                group,
                topics,
                member_id=member_id,
                window=window,
                resume_ms=resume_ms,
                value_type=value_type,
                request_timeout_ms=request_timeout_ms,
                token=token,
                headers=headers,
                ca=ca,
            )
        )

    def close(self) -> None:
        """End the stream, and release what has no outcome. What the loop has not reached is no attempt.

        A stream that was replaced releases nothing: the other connection holds the records.
        """
        self._end(self._inner.close)

    @property
    def member_id(self) -> str:
        """The id of this member, given or made."""
        return self._inner.member_id

    @property
    def group(self) -> str:
        """The share group."""
        return self._inner.group

    def __iter__(self) -> Iterator[Record[V]]:
        return self

    def __next__(self) -> Record[V]:
        """The next record; there is always another.

        Raises: ApiError: the service refused, ended the stream for good, or was out of reach for request_timeout_ms.
            IllegalState: the stream is closed, or another connection of this member has replaced it.
        """
        return self._thread.next(self._inner.__anext__)

    def acknowledge(
        self,
        record: Record,
        type: Literal["accept", "release", "reject", "renew"] = "accept",
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        begun: bool = True,
    ) -> None:
        """Settle a record, or renew its lock; durable when this returns. The arguments are ShareConsumer.acknowledge's.

        Raises: AcknowledgementError: it was not applied, for example because the lock had ended. ApiError: the outcome
            is not known.
        """
        self._thread.wait_for(
            lambda: self._inner.acknowledge(record, type, reason=reason, delay_ms=delay_ms, begun=begun)
        )


class Admin(OwnThread[client.Admin]):
    """Manages topics, groups, dead letters, scheduled records, transactions, keys and rights.

    There is a method for each such call, with its name. It takes the parameters of the path and the members of the
    request, and returns the answer. A member with members of its own is a mapping, or the message of that form. A
    method that lists yields what it lists, and asks for the next page by itself; a list with several kinds yields its
    pages. docs/calls.md says what each call does. Each raises ApiError.

    Args:
        url, token, headers, ca: as of Producer. deadline_ms: for all tries of a call.

    Example:
        with Admin("http://127.0.0.1:8080") as admin:
            admin.create_topic("orders", partitions=4)
            for topic in admin.list_topics():
                print(topic.name)
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        deadline_ms: float = 30_000,
        token: Token | None = None,
        headers: Mapping[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        super().__init__(lambda: client.Admin(url, deadline_ms=deadline_ms, token=token, headers=headers, ca=ca))

    def close(self) -> None:
        """Close the connections."""
        self._end(self._inner.close)

    def create_key(self, principal: str, *, expires_at_ms: int | None = None, description: str = "") -> CreatedKey:
        """Make a key of a principal; its text is in this answer alone."""
        return self._thread.wait_for(
            lambda: self._inner.create_key(principal, expires_at_ms=expires_at_ms, description=description)
        )

    def list_keys(self, *, principal: str | None = None, page_size: int = 100) -> Iterator[KeyDescription]:
        """List keys by id, a page at a time, without their secrets."""
        return self._thread.iterate(lambda: self._inner.list_keys(principal=principal, page_size=page_size))

    def rotate_key(self, key_id: str, *, overlap_ms: int = 86400000, expires_at_ms: int | None = None) -> CreatedKey:
        """Make another key of the same principal; the old one holds for `overlap_ms` more."""
        return self._thread.wait_for(
            lambda: self._inner.rotate_key(key_id, overlap_ms=overlap_ms, expires_at_ms=expires_at_ms)
        )

    def revoke_key(self, key_id: str) -> KeyDescription:
        """Revoke a key: within 5 seconds no gateway takes it any more."""
        return self._thread.wait_for(lambda: self._inner.revoke_key(key_id))

    def revoke_keys(self, made_before_ms: int) -> RevokedKeys:
        """Revoke every key that was made before a time."""
        return self._thread.wait_for(lambda: self._inner.revoke_keys(made_before_ms))

    def add_acls(self, acls: Sequence[Acl | Mapping[str, Any]]) -> AclList:
        """Add rights of principals."""
        return self._thread.wait_for(lambda: self._inner.add_acls(acls))

    def list_acls(
        self,
        *,
        principal: str | None = None,
        operation: Literal["READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "ALTER"] | None = None,
        resource_type: Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"] | None = None,
        resource_name: str | None = None,
        pattern_type: Literal["LITERAL", "PREFIXED"] | None = None,
    ) -> AclList:
        """List rights."""
        return self._thread.wait_for(
            lambda: self._inner.list_acls(
                principal=principal,
                operation=operation,
                resource_type=resource_type,
                resource_name=resource_name,
                pattern_type=pattern_type,
            )
        )

    def remove_acls(
        self,
        *,
        principal: str | None = None,
        operation: Literal["READ", "WRITE", "CREATE", "DELETE", "DESCRIBE", "ALTER"] | None = None,
        resource_type: Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"] | None = None,
        resource_name: str | None = None,
        pattern_type: Literal["LITERAL", "PREFIXED"] | None = None,
    ) -> AclList:
        """Remove the rights that have these members; answers those that were removed."""
        return self._thread.wait_for(
            lambda: self._inner.remove_acls(
                principal=principal,
                operation=operation,
                resource_type=resource_type,
                resource_name=resource_name,
                pattern_type=pattern_type,
            )
        )

    def list_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        cause: Literal["rejected", "delivery_limit"] | None = None,
        reason: str | None = None,
        after_ms: int | None = None,
        before_ms: int | None = None,
        closed: bool = False,
        records: bool = False,
        page_size: int = 100,
    ) -> Iterator[DeadLetter]:
        """List a group's dead letters, with their reasons, and what became of them."""
        return self._thread.iterate(
            lambda: self._inner.list_dead_letters(
                group,
                topic=topic,
                partition=partition,
                offset=offset,
                key=key,
                cause=cause,
                reason=reason,
                after_ms=after_ms,
                before_ms=before_ms,
                closed=closed,
                records=records,
                page_size=page_size,
            )
        )

    def drop_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        cause: Literal["rejected", "delivery_limit"] | None = None,
        reason: str | None = None,
        after_ms: int | None = None,
        before_ms: int | None = None,
        max_records: int | None = None,
        page_token: str | None = None,
        dry_run: bool = False,
    ) -> DropResult:
        """Close dead letters of a group for good: they are open no more, and are never sent back."""
        return self._thread.wait_for(
            lambda: self._inner.drop_dead_letters(
                group,
                topic=topic,
                partition=partition,
                offset=offset,
                key=key,
                cause=cause,
                reason=reason,
                after_ms=after_ms,
                before_ms=before_ms,
                max_records=max_records,
                page_token=page_token,
                dry_run=dry_run,
            )
        )

    def redrive_dead_letters(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        key: str | None = None,
        cause: Literal["rejected", "delivery_limit"] | None = None,
        reason: str | None = None,
        after_ms: int | None = None,
        before_ms: int | None = None,
        max_records: int | None = None,
        page_token: str | None = None,
        dry_run: bool = False,
        to: Literal["retry", "source"] = "retry",
    ) -> RedriveResult:
        """Send a group's dead letters back to their topics."""
        return self._thread.wait_for(
            lambda: self._inner.redrive_dead_letters(
                group,
                topic=topic,
                partition=partition,
                offset=offset,
                key=key,
                cause=cause,
                reason=reason,
                after_ms=after_ms,
                before_ms=before_ms,
                max_records=max_records,
                page_token=page_token,
                dry_run=dry_run,
                to=to,
            )
        )

    def get_share_group_config(self, group: str) -> dict[str, str]:
        """Get the settings of a group in force."""
        return self._thread.wait_for(lambda: self._inner.get_share_group_config(group))

    def update_share_group_config(
        self, group: str, *, config: Mapping[str, str] = {}, reset: Sequence[str] = ()
    ) -> dict[str, str]:
        """Change settings of a group; the group need not exist yet."""
        return self._thread.wait_for(lambda: self._inner.update_share_group_config(group, config=config, reset=reset))

    def get_share_group_service_config(self, group: str) -> ShareGroupServiceConfig:
        """Get the service-wide settings of groups, and which of a group's own they clamp."""
        return self._thread.wait_for(lambda: self._inner.get_share_group_service_config(group))

    def list_share_group_offsets(self, group: str, *, page_size: int = 1000) -> Iterator[GroupTopicOffsets]:
        """List the start offset and the lag of every share-partition of a group, a page at a time."""
        return self._thread.iterate(lambda: self._inner.list_share_group_offsets(group, page_size=page_size))

    def list_in_flight_records(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        loaded: bool = False,
        page_size: int = 1000,
    ) -> Iterator[ListInFlightResponse]:
        """List the records that a group has in flight, with their holders, lock ends and delivery counts."""
        return self._thread.iterate(
            lambda: self._inner.list_in_flight_records(
                group, topic=topic, partition=partition, offset=offset, loaded=loaded, page_size=page_size
            )
        )

    def look_up_record(self, group: str, topic: str, partition: int, offset: int) -> RecordLife:
        """Look up what a group has done with one record: not fetched, held, delayed, finished, dead, redriven."""
        return self._thread.wait_for(lambda: self._inner.look_up_record(group, topic, partition, offset))

    def find_records(
        self, group: str, topic: str, key: str, *, partition: int | None = None, page_size: int = 10
    ) -> Iterator[RecordLife]:
        """Find the records with a key, the newest first, and what a group has done with each."""
        return self._thread.iterate(
            lambda: self._inner.find_records(group, topic, key, partition=partition, page_size=page_size)
        )

    def describe_window(
        self,
        group: str,
        topic: str,
        partition: int,
        *,
        from_offset: int | None = None,
        to_offset: int | None = None,
        buckets: int = 100,
    ) -> Window:
        """Count what a group does with the offsets of a partition, in up to 1,000 buckets of equal size."""
        return self._thread.wait_for(
            lambda: self._inner.describe_window(
                group, topic, partition, from_offset=from_offset, to_offset=to_offset, buckets=buckets
            )
        )

    def change_record(
        self,
        group: str,
        topic: str,
        partition: int,
        offset: int,
        action: Literal["release", "reject", "extend", "deliver_now"],
        delivery_count: int,
        *,
        reason: str | None = None,
        delay_ms: int | None = None,
        lock_duration_ms: int | None = None,
    ) -> RecordChange:
        """Release, reject or extend a held record by hand; deliver a delayed one now, or reject it."""
        return self._thread.wait_for(
            lambda: self._inner.change_record(
                group,
                topic,
                partition,
                offset,
                action,
                delivery_count,
                reason=reason,
                delay_ms=delay_ms,
                lock_duration_ms=lock_duration_ms,
            )
        )

    def leave_share_group(self, group: str, member_id: str) -> None:
        """Leave a group: the member's waiting fetches end, its share session is closed, and its records are
        released."""
        self._thread.wait_for(lambda: self._inner.leave_share_group(group, member_id))

    def list_share_groups(
        self, *, state: str | None = None, work: bool = False, page_size: int = 1000
    ) -> Iterator[ShareGroupListing]:
        """List groups by id, a page at a time."""
        return self._thread.iterate(lambda: self._inner.list_share_groups(state=state, work=work, page_size=page_size))

    def describe_share_group(
        self, group: str, *, page_size: int = 1000, page_token: str | None = None
    ) -> ShareGroupDescription:
        """Describe a group: its state and its members, what it has to do now, and who works on it."""
        return self._thread.wait_for(
            lambda: self._inner.describe_share_group(group, page_size=page_size, page_token=page_token)
        )

    def delete_share_group(self, group: str, *, force: bool = False) -> None:
        """Delete a group that is not in use, with its offsets in every topic."""
        self._thread.wait_for(lambda: self._inner.delete_share_group(group, force=force))

    def reset_share_group_offsets(
        self,
        group: str,
        to: Literal["earliest", "latest", "current", "offset", "datetime"],
        *,
        topics: Sequence[ResetTopic | Mapping[str, Any]] | None = None,
        offset: int | None = None,
        datetime: str | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> ResetOffsetsResult:
        """Set the start offsets of a group that is not in use; a group that does not exist is created."""
        return self._thread.wait_for(
            lambda: self._inner.reset_share_group_offsets(
                group, to, topics=topics, offset=offset, datetime=datetime, dry_run=dry_run, force=force
            )
        )

    def delete_share_group_offsets(self, group: str, topic: str, *, force: bool = False) -> None:
        """Delete the offsets of a group that is not in use in a topic."""
        self._thread.wait_for(lambda: self._inner.delete_share_group_offsets(group, topic, force=force))

    def read_records(
        self,
        topic: str,
        partition: int,
        *,
        offset: int = 0,
        max_records: int = 500,
        max_bytes: int = 52428800,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        topic_id: str | None = None,
    ) -> RecordPage:
        """Read records by offset, without a group and without locks."""
        return self._thread.wait_for(
            lambda: self._inner.read_records(
                topic,
                partition,
                offset=offset,
                max_records=max_records,
                max_bytes=max_bytes,
                isolation_level=isolation_level,
                topic_id=topic_id,
            )
        )

    def list_groups_by_attention(
        self, *, group_id: str | None = None, page_size: int = 100
    ) -> Iterator[GroupAttention]:
        """List groups in the order of their need for attention, each with its work, its workers and the reasons."""
        return self._thread.iterate(
            lambda: self._inner.list_groups_by_attention(group_id=group_id, page_size=page_size)
        )

    def list_activity(
        self,
        *,
        from_ms: int = 0,
        to_ms: int | None = None,
        group_id: str | None = None,
        topic: str | None = None,
        page_size: int = 1000,
    ) -> Iterator[ActivityEntry]:
        """Report the records that went through the queue, by hour, group and partition, a page at a time."""
        return self._thread.iterate(
            lambda: self._inner.list_activity(
                from_ms=from_ms, to_ms=to_ms, group_id=group_id, topic=topic, page_size=page_size
            )
        )

    def list_samples(
        self,
        *,
        group_id: str | None = None,
        topic: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        step_ms: int = 10000,
    ) -> SampleList:
        """Report what the cluster, a group or a topic had to do, and did, over the last week."""
        return self._thread.wait_for(
            lambda: self._inner.list_samples(
                group_id=group_id, topic=topic, from_ms=from_ms, to_ms=to_ms, step_ms=step_ms
            )
        )

    def list_scheduled_records(self, topic: str, *, page_size: int = 1000) -> Iterator[ScheduledListing]:
        """List and count the scheduled records of a topic, the next one due first."""
        return self._thread.iterate(lambda: self._inner.list_scheduled_records(topic, page_size=page_size))

    def list_due(self, *, page_size: int = 1000) -> Iterator[DueRecord]:
        """List what is due next in all topics: scheduled records, and the next record of each schedule that is not
        paused."""
        return self._thread.iterate(lambda: self._inner.list_due(page_size=page_size))

    def cancel_scheduled_records(
        self, topic: str, *, schedule_ids: Sequence[str] = (), key: str | None = None
    ) -> CancelledRecords:
        """Cancel scheduled records by their ids or their key, so that they never enter the log."""
        return self._thread.wait_for(
            lambda: self._inner.cancel_scheduled_records(topic, schedule_ids=schedule_ids, key=key)
        )

    def put_schedule(
        self,
        topic: str,
        name: str,
        cron: str,
        record: ProduceRecord | Mapping[str, Any],
        *,
        time_zone: str = "UTC",
        missed: Literal["one", "all", "none"] = "one",
        paused: bool = False,
    ) -> ScheduleSummary:
        """Make or replace a schedule: one record of the topic at each of its times."""
        return self._thread.wait_for(
            lambda: self._inner.put_schedule(
                topic, name, cron, record, time_zone=time_zone, missed=missed, paused=paused
            )
        )

    def get_schedule(self, topic: str, name: str) -> ScheduleDescription:
        """Describe a schedule: its times and its record."""
        return self._thread.wait_for(lambda: self._inner.get_schedule(topic, name))

    def update_schedule(
        self, topic: str, name: str, *, paused: bool | None = None, run: bool = False
    ) -> ScheduleSummary:
        """Pause a schedule, let it go on, or make one record now."""
        return self._thread.wait_for(lambda: self._inner.update_schedule(topic, name, paused=paused, run=run))

    def delete_schedule(self, topic: str, name: str) -> None:
        """Delete a schedule. Records that it has made stay."""
        self._thread.wait_for(lambda: self._inner.delete_schedule(topic, name))

    def list_schedules(self, topic: str) -> ScheduleList:
        """List the schedules of a topic by name."""
        return self._thread.wait_for(lambda: self._inner.list_schedules(topic))

    def create_topic(self, name: str, *, partitions: int = 1, config: Mapping[str, str] = {}) -> Topic:
        """Create a topic."""
        return self._thread.wait_for(lambda: self._inner.create_topic(name, partitions=partitions, config=config))

    def list_topics(self, *, page_size: int = 1000) -> Iterator[TopicListing]:
        """List topics by name, a page at a time."""
        return self._thread.iterate(lambda: self._inner.list_topics(page_size=page_size))

    def describe_topic(self, topic: str) -> TopicDescription:
        """Describe a topic: settings and the offsets of its partitions."""
        return self._thread.wait_for(lambda: self._inner.describe_topic(topic))

    def update_topic(
        self, topic: str, *, partitions: int | None = None, config: Mapping[str, str] = {}, reset: Sequence[str] = ()
    ) -> Topic:
        """Add partitions or change settings."""
        return self._thread.wait_for(
            lambda: self._inner.update_topic(topic, partitions=partitions, config=config, reset=reset)
        )

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, its records and every group's state for it."""
        self._thread.wait_for(lambda: self._inner.delete_topic(topic))

    def delete_records(
        self,
        topic: str,
        partitions: Sequence[DeleteRecordsPartition | Mapping[str, Any]],
        *,
        topic_id: str | None = None,
    ) -> DeletedRecords:
        """Delete records below an offset; -1 is the log end. Every gateway knows it within a second."""
        return self._thread.wait_for(lambda: self._inner.delete_records(topic, partitions, topic_id=topic_id))

    def terminate_transaction(self, transaction: str) -> EndedTransaction:
        """Abort a transaction as an operator: one that holds back the readers of committed records."""
        return self._thread.wait_for(lambda: self._inner.terminate_transaction(transaction))

    def list_transactions(
        self,
        *,
        state: Literal["open", "committed", "aborted"] = "open",
        transactional_id: str | None = None,
        transactional_id_prefix: str | None = None,
        older_than_ms: int = 0,
        page_size: int = 1000,
    ) -> Iterator[TransactionList]:
        """List the transactions of one state, a page at a time."""
        return self._thread.iterate(
            lambda: self._inner.list_transactions(
                state=state,
                transactional_id=transactional_id,
                transactional_id_prefix=transactional_id_prefix,
                older_than_ms=older_than_ms,
                page_size=page_size,
            )
        )

    def describe_transaction(self, transaction: str) -> TransactionDescription:
        """Describe a transaction: its state, and the partitions that it wrote to."""
        return self._thread.wait_for(lambda: self._inner.describe_transaction(transaction))

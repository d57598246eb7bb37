"""The slow path of appends: a transaction of its own, which locks the partitions and reads their ends under the locks.

It serves appends to several partitions or to a partition with an unknown end, and those that the fast path could not
finish. If the answer of a commit was lost, its append id is looked up before a repeat. Large appends run one after
another, so that they do not share time and memory.

An append may take part in a transaction of the log. It then asks its `Within` at each step; any other append asks
nobody.
"""

import asyncio
import hashlib
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg
import msgspec

from sharequeue.protocol.errors import StorageError, UnknownTopicOrPartition
from sharequeue.protocol.messages.problems import ProducedBatch
from sharequeue.protocol.messages.records import ProducedRecord
from sharequeue.protocol.types import TopicIdPartition
from sharequeue.repeats import APPEND
from sharequeue.service.postgres_faults import FAULTS, LOST
from sharequeue_gateway.record_log import key_store, store, time_lines
from sharequeue_gateway.record_log.append_store import new_append_id
from sharequeue_gateway.record_log.connections import ends_with, in_turn, locking
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.key_store import NO_KEY, NewKey
from sharequeue_gateway.record_log.log import AppendResult, IdempotencyKey, PartitionAppend
from sharequeue_gateway.record_log.owner import ANY_OWNER
from sharequeue_gateway.record_log.reading.cache import KnownLog
from sharequeue_gateway.record_log.record_batch import LARGE_RECORD_BYTES, RecordBatch
from sharequeue_http.forms.errors import ApiError, InvalidRequest, RequestTimedOut
from sharequeue_http.log import fields

log = logging.getLogger(__name__)

AT_ONCE_BYTES: Final = 8 << 20
"""The most bytes of a commit of several appends; a single append may be larger."""
LARGE_PARTITIONS: Final = 100
"""An append to more partitions, or of more than AT_ONCE_BYTES, is large."""
LOCK_TIMEOUT_MS: Final = 10_000

Inserted = list[tuple[TopicIdPartition, RecordBatch]]


class NotOpen(Exception):
    """The transaction of an append is not open. `past`: it is, and its time has passed."""

    def __init__(self, past: bool) -> None:
        super().__init__()
        self.past = past


class Within:
    """The transaction that an append takes part in, as `LockedAppend` asks for it: see `transactions.appends`.

    `owner`: patterns of the transactions that the caller may use: `transaction_rules.Owner`.
    """

    owner: str = ANY_OWNER
    gathers: bool = False
    """Whether the append may take the fast path."""

    async def lock(self, connection: Any, places: Sequence[TopicIdPartition], repeated: bool) -> None:
        """Lock the transaction. `repeated`: an earlier request with the same key has appended the records.

        Raises: NotOpen.
        """
        raise NotImplementedError

    async def at_once(self, connection: Any, row: store.Row, key: NewKey) -> bool:
        """Append one batch and commit in one statement. Returns: whether it has; if not, nothing has happened."""
        return False

    async def write(self, connection: Any, places: Sequence[TopicIdPartition], base_offsets: Sequence[int]) -> None:
        """The records are inserted, and not yet committed."""

    def count(self, seconds: float) -> None:
        """The append has committed, after this time."""

    async def find_end(self, past: bool, look_up: "LookUp") -> "AppendResult | ApiError":
        """Find the answer if it is not open. `look_up`: finds an earlier try. Returns: the answer of the append."""
        raise NotImplementedError


LookUp = Callable[[], Awaitable[AppendResult | None]]


class AppendRequest(msgspec.Struct, frozen=True):
    """One append to all of its partitions or to none. `number`: of the time line, when its topics were known."""

    appends: Sequence[PartitionAppend]
    key: IdempotencyKey | None
    append_id: str
    size: int
    number: int
    within: Within | None = None

    @property
    def places(self) -> list[TopicIdPartition]:
        return [(append.topic_id, append.partition) for append in self.appends]

    @property
    def large(self) -> bool:
        return self.size > AT_ONCE_BYTES or len(self.appends) > LARGE_PARTITIONS


class Together:
    """A transaction that appends, and changes other tables. `inserted`: its batches; they are published after its
    commit."""

    def __init__(self, locked_append: "LockedAppend", connection: Any) -> None:
        self._locked_append = locked_append
        self.connection = connection
        self.inserted: Inserted = []

    async def insert(self, appends: Sequence[PartitionAppend]) -> Inserted:
        """As `LockedAppend.insert`, once."""
        if appends:
            self.inserted = await self._locked_append.insert(self.connection, appends, new_append_id(), [])
        return self.inserted

    async def insert_each(self, records: Sequence[tuple[str, int, bytes]], timestamp_ms: int) -> list[int]:
        """Insert records by topic id, partition and tail, once. Returns: the offset of each, in their order."""
        tails: dict[TopicIdPartition, list[bytes]] = {}
        for topic_id, partition, tail in records:
            tails.setdefault((topic_id, partition), []).append(tail)
        inserted = await self.insert([PartitionAppend(*place, each, timestamp_ms) for place, each in tails.items()])
        offsets = {place: itertools.count(batch.base_offset) for place, batch in inserted}
        return [next(offsets[topic_id, partition]) for topic_id, partition, _ in records]


class LockedAppend:
    """Appends under the locks of the partitions. Repeats until it succeeds or the deadline passes."""

    def __init__(self, database: LogDatabase, known: KnownLog, deadline_s: float) -> None:
        self._database = database
        self._known = known
        self._deadline_s = deadline_s
        self._large = asyncio.Lock()

    async def append(
        self, request: AppendRequest, *, deadline: float | None = None, lost_at: int | None = None
    ) -> AppendResult:
        """Try until the deadline. After a try that may have happened, each further one first looks for its append id.

        Args:
            deadline: of `time.monotonic()`; None: the time begins when the append has a connection.
            lost_at: a commit at this offset may have happened: its answer was lost.
        """
        turn_by = time.monotonic() + self._deadline_s if deadline is None else deadline
        tried_at = [] if lost_at is None else [lost_at]
        try:
            if not request.large:
                return await self._try(request, tried_at, turn_by, deadline)

            def late(fault: TimeoutError) -> ApiError:
                return self._not_known(True, fault) if tried_at else not_in_time()

            async with in_turn(turn_by, [self._large], late):
                return await self._try(request, tried_at, turn_by, deadline)
        except NotOpen as not_open:  # the connection is given back: an end needs one
            answer = await self._find_end(request, not_open.past, tried_at)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def _find_end(self, request: AppendRequest, past: bool, tried_at: Sequence[int]) -> AppendResult | ApiError:
        """The answer of an append whose transaction is not open."""
        assert request.within is not None

        async def look_up() -> AppendResult | None:
            found: AppendResult | None = None
            if tried_at:
                found = await self._database.query(self._look_up, request, tried_at)
            return found

        try:
            return await request.within.find_end(past, look_up)
        except ApiError as error:
            error.definite = error.definite and not tried_at
            return error

    async def _try(
        self, request: AppendRequest, tried_at: list[int], turn_by: float, deadline: float | None
    ) -> AppendResult:
        while True:
            in_doubt = bool(tried_at)
            number = self._database.time_line.number
            if number != request.number:
                await self._check_topics(request, in_doubt)
                request = msgspec.structs.replace(request, number=number)
            try:
                remaining_s = (turn_by if deadline is None else deadline) - time.monotonic()
                lent_s = self._deadline_s if deadline is None else None
                async with self._database.connections.lend(remaining_s, lent_s=lent_s) as connection:
                    if deadline is None:
                        deadline = time.monotonic() + self._deadline_s
                    return await self._transaction(connection, request, tried_at)
            except ApiError:
                raise
            except (*FAULTS, ValueError, OverflowError) as fault:
                again = isinstance(fault, (*LOST, asyncpg.SerializationError, asyncpg.LockNotAvailableError))
                if not again and not in_doubt:
                    raise self._database.health.error(fault, "nothing was appended", definite=True) from fault
                if time.monotonic() + 2 * APPEND.pause_s >= (turn_by if deadline is None else deadline):
                    raise self._not_known(bool(tried_at), fault) from fault
                log.info("trying an append again", extra=fields(cause=repr(fault)))
                if isinstance(fault, time_lines.OlderLog):
                    await self._database.skip(fault.known, fault.sign)
                await APPEND.pause()

    async def _check_topics(self, request: AppendRequest, in_doubt: bool) -> None:
        """PostgreSQL was started again since the topics were known. Raises: ApiError: it has lost one of them."""
        try:
            if not await self._database.topics_exist({append.topic_id for append in request.appends}):
                raise StorageError("PostgreSQL went back and has lost the topic; send it again", definite=True)
        except ApiError as error:
            error.definite = error.definite and not in_doubt
            raise

    def _not_known(self, begun: bool, fault: BaseException) -> ApiError:
        if not begun:
            return self._database.health.error(fault, "nothing was appended", definite=True)
        sentence = self._database.health.note(fault).sentence
        return RequestTimedOut(
            f"the record log did not answer in time: the records may have been appended ({sentence})"
        )

    async def _transaction(self, connection: Any, request: AppendRequest, tried_at: list[int]) -> AppendResult:
        """Lock, look up an earlier try, insert.

        `tried_at`: the base offsets, by partition, of the first try that may have happened. The look-up begins there,
        under the same locks. Empty: there was none, and this try notes its own offsets.
        """
        key, within, began = request.key, request.within, time.monotonic()
        if within is not None and not within.gathers and not tried_at:
            done = await self._at_once(connection, request, within, tried_at)
            if done is not None:
                within.count(time.monotonic() - began)
                return done
        async with locking(connection, LOCK_TIMEOUT_MS):
            first_answer = None if key is None else await answer_of(connection, key)
            if within is not None:
                await within.lock(connection, request.places, first_answer is not None)
            if first_answer is not None:
                if not tried_at or await self._look_up(connection, request, tried_at) is None:
                    await store.wait_for_standby(connection)
                return first_answer
            if key is None and tried_at:  # a request with a key is found by its key
                happened = await self._look_up(connection, request, tried_at)
                if happened is not None:
                    return happened
            inserted = await self.insert(connection, request.appends, request.append_id, tried_at)
            base_offsets = [batch.base_offset for _, batch in inserted]
            if within is not None:
                await within.write(connection, request.places, base_offsets)
            kept = None if key is None else await keep_answer(connection, key, base_offsets)
        self._known.publish(inserted)
        if within is not None:
            within.count(time.monotonic() - began)
        return AppendResult(base_offsets, kept)

    async def _at_once(
        self, connection: Any, request: AppendRequest, within: Within, tried_at: list[int]
    ) -> AppendResult | None:
        """Append to one partition with a known end, if nothing is in the way. Returns: None: nothing has happened."""
        append, *others = request.appends
        place, key = (append.topic_id, append.partition), request.key
        end = self._known.cache.log_end_offset(place)
        if others or end < 0:
            return None
        batch = RecordBatch.encode(end, append.tails, append.max_timestamp_ms, append.for_group)
        kept = NO_KEY if key is None else new_key(key, end)
        tried_at.append(end)
        if not await within.at_once(connection, (*place, batch, request.append_id), kept):
            tried_at.clear()
            return None
        self._known.publish([(place, batch)])
        return AppendResult([end], kept.answer)

    async def _look_up(self, connection: Any, request: AppendRequest, tried_at: Sequence[int]) -> AppendResult | None:
        """The result of an earlier try, if it happened. The locks wait for a statement that the server still runs."""
        await store.lock(connection, request.places)
        found = [
            await store.appended(connection, *place, request.append_id, from_offset)
            for place, from_offset in zip(request.places, tried_at, strict=True)
        ]
        bases = [base for base in found if base is not None]
        if len(bases) < len(found):
            return None
        await store.wait_for_standby(connection)
        for place, append, base in zip(request.places, request.appends, bases, strict=True):
            self._known.cache.drop(place)
            self._known.listener.appended(*place, base + len(append.tails), len(append.tails))
        return AppendResult(bases, None)

    async def insert(
        self, connection: Any, appends: Sequence[PartitionAppend], append_id: str, tried_at: list[int]
    ) -> Inserted:
        """Lock the partitions and insert a batch in each, within a transaction.

        `tried_at`: as in `_transaction`. Raises: UnknownTopicOrPartition: a topic is deleted.
        """
        places = [(append.topic_id, append.partition) for append in appends]
        await store.lock(connection, places)
        bounds = await store.bounds(connection, places)
        known = self._known.cache.log_ends(places)
        if (sign := time_lines.older(known, bounds)) is not None:
            raise time_lines.OlderLog(known, sign)
        if missing := [place for place in places if place not in bounds]:
            await time_lines.make_partitions(connection, missing)
            bounds = await store.bounds(connection, places)
        if any(bounds[place].deleted for place in places):
            raise UnknownTopicOrPartition("the topic was deleted")
        ends = [bounds[place].log_end_offset for place in places]
        if not tried_at:
            tried_at += ends
        inserted: Inserted = []

        def encoded() -> Iterator[store.Row]:
            for place, append, end in zip(places, appends, ends, strict=True):
                batch = RecordBatch.encode(
                    end, append.tails, append.max_timestamp_ms, append.for_group, append.transaction_id
                )
                if batch.size > LARGE_RECORD_BYTES * batch.record_count:
                    append.tails[:] = batch.tails()
                inserted.append((place, batch))
                yield *place, batch, append_id

        size = sum([sum(map(len, append.tails)) for append in appends])
        async with ends_with(connection):
            await store.insert(connection, encoded(), size, appends[0].transaction_id)
        for place in places:  # if the append fails, only this reports the earlier appends of other gateways
            start, end, _, _, stable = bounds[place]
            waited_for = self._known.cache.log_end_offset(place) >= 0
            (self._known.learn if waited_for else self._known.cache.set_ends)(place, start, end, stable)
        return inserted

    @asynccontextmanager
    async def together(self, failed: str) -> AsyncIterator[Together]:
        """Begin a transaction that appends. Raises: StorageError, which begins with `failed`."""
        async with self._database.transaction(self._deadline_s, failed) as connection:
            together = Together(self, connection)
            yield together
        self._known.publish(together.inserted)

    async def once(
        self, failed: str, key: IdempotencyKey | None, make: Callable[[Together], Awaitable[bytes]]
    ) -> tuple[bytes, bool]:
        """Have `make` change something in such a transaction, and keep its answer with the key of the request.

        Returns: the answer, and whether it is that of an earlier request with the key.
        """
        async with self.together(failed) as together:
            if key is not None and (first := await answer_of(together.connection, key)) is not None:
                await store.wait_for_standby(together.connection)
                return first.answer or b"", True
            answer = await make(together)
            if key is not None:
                await keep_answer(together.connection, key._replace(answer=lambda _: answer), ())
        return answer, False


def not_in_time() -> StorageError:
    return StorageError("PostgreSQL did not begin with this append in time; send it again", definite=True)


async def answer_of(connection: Any, key: IdempotencyKey) -> AppendResult | None:
    """Take the key for this transaction. Returns: the first answer, if the key was used before."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_of(key))
    used = await connection.fetchrow(key_store.LOOK_UP, key.topic_id, key.key, key.path, key.caller)
    if used is None:
        return None
    fingerprint, answer, base_offsets = used
    if fingerprint != key.fingerprint:
        batches = _batches_of(answer)
        raise InvalidRequest(
            f"Idempotency-Key {key.key!r} was used for a request with another body or other headers: to repeat that request,"
            " send the same bytes; for another request, use a new key",
            extra={"first_batches": msgspec.to_builtins(batches)} if batches else None,
        )
    return AppendResult(list(base_offsets), answer, repeated=True)


def lock_of(key: IdempotencyKey) -> int:
    """The advisory lock of a key. All callers have the same one: a producer may have repeated a request with its key,
    while the first try without one is under way."""
    name = hashlib.blake2b(f"{key.path}\0{key.topic_id}\0{key.key}".encode(), digest_size=8).digest()
    return int.from_bytes(name, "big", signed=True)


def new_key(key: IdempotencyKey, base_offset: int) -> key_store.NewKey:
    """The key of an append to one partition, with its answer."""
    answer = key.answer([base_offset])
    return key_store.NewKey(lock_of(key), key.key, key.path, key.caller, key.fingerprint, answer, _known_ms(key))


async def keep_answer(connection: Any, key: IdempotencyKey, base_offsets: Sequence[int]) -> bytes:
    """Store the answer with its key. Returns: the answer."""
    answer = key.answer(base_offsets)
    await connection.execute(
        f"{key_store.KEEP} $1, $2, $3, $4, $5, $6, $7, $8",
        _known_ms(key),
        *(key.topic_id, key.key, key.path, key.caller, key.fingerprint, answer, list(base_offsets)),
    )
    return answer


def _known_ms(key: IdempotencyKey) -> int:
    return key_store.LASTING_MS if key.lasting else key_store.DAY_MS


class _FirstAnswer(msgspec.Struct):
    """Of produceRecords or produceArrow. The answers of other calls have neither."""

    records: list[ProducedRecord] = []
    batches: list[ProducedBatch] = []


_decode_answer: Final = msgspec.json.Decoder(_FirstAnswer).decode


def _batches_of(answer: bytes) -> list[ProducedBatch]:
    """The offsets by partition, in the order of each partition's first record. Answers of other calls give none."""
    try:
        found = _decode_answer(answer)
    except msgspec.DecodeError:
        return []
    if found.batches:
        return found.batches
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for record in found.records:
        first.setdefault(record.partition, record.offset)
        last[record.partition] = record.offset
    return [
        ProducedBatch(partition=partition, first_offset=offset, last_offset=last[partition])
        for partition, offset in first.items()
    ]

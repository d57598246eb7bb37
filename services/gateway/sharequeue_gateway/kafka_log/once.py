"""Appends to Kafka that happen once: begins their intents, settles those that are left open, and sweeps them."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from sharequeue import background
from sharequeue.protocol.errors import StorageError
from sharequeue.repeats import INTENT, Every, Tries
from sharequeue.service.failed_looks import looking
from sharequeue_gateway.kafka_log import intent_store
from sharequeue_gateway.kafka_log.faults import MISSING, append_error, storage_error
from sharequeue_gateway.kafka_log.intents import Intent, Kind, Part
from sharequeue_gateway.kafka_log.new_records import APPEND_HEADER, new_records
from sharequeue_gateway.record_log.database import LogDatabase
from sharequeue_gateway.record_log.log import PartitionAppend
from sharequeue_gateway.record_log.store import Connection
from sharequeue_http.forms.errors import ApiError, RequestTimedOut
from sharequeue_http.log import fields
from sharequeue_kafka.batches import read_batches
from sharequeue_kafka.cluster import KafkaCluster, Place, sure
from sharequeue_kafka.errors import KafkaError
from sharequeue_kafka.fetching import Fetching
from sharequeue_kafka.transactions import Slot, TransactionalSlots, fence

log = logging.getLogger(__name__)

SLOTS: Final = 4
"""The transactional ids of a gateway."""
GRACE_MS: Final = 2000
"""A repeat waits so long for the gateway that has begun, before it fences its producer."""
SWEPT_MS: Final = 5000
"""The sweep settles intents of this age: their gateway has ended, or its broker is silent."""
SWEPT_AT_ONCE: Final = 100
SWEEP_PAUSE_S: Final = 1.0
LOOK_BYTES: Final = 1 << 20
_UNWRITTEN: Final = {Kind.LETTERS: "dead letters cannot be written"}
"""The error of an intent that PostgreSQL refuses to store or to end; kinds without one have that of an append."""

Finish = Callable[[Connection, Intent, Sequence[int]], Awaitable[None]]
"""Writes the outcome of an intent whose records have these base offsets, in the transaction that removes it."""


class Wanted(NamedTuple):
    """An append that must happen once; `subject`, `kind`, `outcome`: as in Intent.

    `check`: looks, in the transaction that stores the intent, whether an earlier one has done it. Returns: what it
    found, or None. It may raise, and then nothing is appended.
    """

    subject: int
    appends: Sequence[PartitionAppend]
    kind: Kind
    outcome: bytes
    check: Callable[[Connection], Awaitable[Any]]


class Done(NamedTuple):
    """The end of an append. `found`: the answer of the check; this call then appended nothing and has no offsets.
    Neither: as `_look`, nobody knows whether it did."""

    base_offsets: Sequence[int]
    found: Any = None


class AppendOnce:
    """Begins and settles intents. `sweep` must be running.

    Args:
        name: of this gateway, in its transactional ids: no other gateway has it.
        finish: by kind.
        appended: receives the topic id, the partition, the log end and the number of records.
    """

    def __init__(
        self,
        database: LogDatabase,
        cluster: KafkaCluster,
        name: str,
        finish: Mapping[Kind, Finish],
        appended: Callable[[str, int, int, int], None],
        deadline_s: float,
    ) -> None:
        self._database = database
        self._cluster = cluster
        self._finish = finish
        self._appended = appended
        self._deadline_s = deadline_s
        ids = [f"sharequeue-{name}-{number}" for number in range(SLOTS)]
        self._slots = TransactionalSlots(cluster, ids, timeout_ms=int(deadline_s * 1000))
        self._fetching = Fetching(cluster)
        self._turns: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()
        """Held while this gateway works at a subject."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def append(self, wanted: Wanted) -> Done:
        """Append, or find that it has happened. Goes on if the caller is cancelled.

        Raises: ApiError: nothing was appended; not definite: it may have been, and a repeat finds out.
        """
        work = background.start(self._tasks, self._append(wanted))
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may have left
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(work)
        except TimeoutError:
            cause = self._cluster.trouble or "an append before this one is under way"
            raise RequestTimedOut(
                f"Kafka did not answer in time: the records may have been appended ({cause})"
            ) from None

    async def _append(self, wanted: Wanted) -> Done:
        tries, alone = Tries(INTENT, self._deadline_s), False
        turn = self._turns.setdefault(wanted.subject, asyncio.Lock())
        while True:
            try:
                async with turn:
                    done = await self._try(wanted, alone)
            except KafkaError as fault:  # before anything has begun, or while an earlier intent is settled
                raise storage_error(fault) from fault
            if done is not None:
                return done
            alone = True
            if not await tries.pause():
                raise StorageError("an earlier try of this append is not settled yet: send it again", definite=True)

    async def _try(self, wanted: Wanted, alone: bool) -> Done | None:
        """Append once. Returns: None: try again, nothing was appended. Raises: as `append`; KafkaError: not begun."""
        slot = await self._slots.take()
        appends = {Place(append.topic_id, append.partition): append for append in wanted.appends}
        ends = sure(await self._cluster.list_offsets([*appends], "latest"))
        parts = [
            Part(place.partition, ends[place].offset, ends[place].leader_epoch, len(append.tails))
            for place, append in appends.items()
        ]
        topic_id = wanted.appends[0].topic_id
        intent = Intent(wanted.subject, str(uuid.uuid4()), *slot, topic_id, parts, wanted.kind, wanted.outcome)
        async with self._database.transaction(
            self._deadline_s, _UNWRITTEN.get(wanted.kind, "the append cannot begin")
        ) as connection:
            begun = await intent_store.begin(connection, intent)
            found = await wanted.check(connection) if begun else None
            if found is not None:
                await intent_store.remove(connection, intent)
        if found is not None:
            return Done((), found)
        if not begun:
            earlier = await self._database.query(intent_store.find, wanted.subject)
            if earlier is not None and earlier.age_ms >= GRACE_MS:
                await self.settle(earlier.intent, self._deadline_s / 2, wanted)
            return None
        try:
            offsets = await self._transact(slot, intent.intent_id, appends, alone=alone)
        except KafkaError as fault:
            return await self._failed(intent, fault, wanted)
        base_offsets = [offsets[place] for place in appends]
        return Done(base_offsets) if await self._end(intent, base_offsets) else None

    async def _transact(
        self, slot: Slot, intent_id: str, appends: Mapping[Place, PartitionAppend], *, alone: bool = False
    ) -> Mapping[Place, int]:
        """Append in one transaction, and wait until its end is in each log: a broker that dies after it has confirmed a
        commit may come back without that. Records of ours at the last stable offset have no end yet. If an open
        transaction of another producer lies before them, nobody sees theirs, and nothing waits.

        Raises: KafkaError: as `TransactionalSlots.append`; RequestTimedOut: the intent stays open.
        """
        records = {place: new_records(append, intent_id) for place, append in appends.items()}
        offsets = await self._slots.append(slot, records, alone=alone)
        ours = {place: range(offset, offset + len(records[place])) for place, offset in offsets.items()}
        try:
            if await self._stable([*ours], lambda place, stable: stable not in ours[place], self._deadline_s / 2):
                return offsets
        except KafkaError as fault:
            raise RequestTimedOut(
                f"Kafka has confirmed the append, and does not show it yet: repeat it ({fault})"
            ) from fault
        raise RequestTimedOut("Kafka has confirmed the append, and its end is not in the log yet: repeat it")

    async def _failed(self, intent: Intent, fault: KafkaError, wanted: Wanted) -> Done | None:
        """Find out what became of an append that failed. Returns and raises: as `_try`."""
        if fault.definite:
            await self._database.query(intent_store.remove, intent)
            if fault.retriable:
                return None
            raise append_error(fault) from fault
        try:
            base_offsets = await self.settle(intent, self._deadline_s / 2, wanted)
        except (KafkaError, ApiError):
            raise append_error(fault) from fault
        return None if base_offsets is None else Done(base_offsets)

    async def settle(self, intent: Intent, patience_s: float, wanted: Wanted | None = None) -> Sequence[int] | None:
        """Fence the producer of an intent, find out whether it has appended, and write the outcome.

        `wanted`: the same append again, whose records complete one that is there in part.

        Returns: the base offsets; none of them: as `_look`; None: nothing was appended. Raises: KafkaError;
        StorageError: not known within `patience_s`, or only `wanted` can complete it.
        """
        await fence(self._cluster, intent.transactional_id)
        found = await self._look(intent, patience_s)
        if found is None:
            await self._database.query(intent_store.remove, intent)
            return None
        base_offsets = [offset for offset in found if offset is not None]
        if len(base_offsets) < len(found):
            return await self._complete(intent, found, wanted)
        await self._end(intent, base_offsets)
        return base_offsets

    async def _complete(
        self, intent: Intent, found: Sequence[int | None], wanted: Wanted | None
    ) -> Sequence[int] | None:
        """Append the parts that were not found, under the same intent with another producer.

        Kafka 4.4 can lose the markers of a transaction in all its partitions; the producer's next transaction in each
        of them, by its own outcome, then commits or aborts the records there.
        """
        if wanted is None or wanted.outcome != intent.outcome:
            raise StorageError("Kafka has ended a transaction in some partitions only: the same request completes it")
        slot = await self._slots.take()
        moved = intent._replace(transactional_id=slot.transactional_id, producer_id=slot.producer_id, epoch=slot.epoch)
        if not await self._database.query(intent_store.move, intent, moved):
            return None
        lacking = {
            Place(append.topic_id, append.partition): append
            for append, offset in zip(wanted.appends, found, strict=True)
            if offset is None
        }
        try:
            appended = await self._transact(slot, intent.intent_id, lacking)
        except KafkaError as fault:
            raise append_error(fault) from fault
        base_offsets = [
            appended[Place(intent.topic_id, part.partition)] if offset is None else offset
            for part, offset in zip(intent.parts, found, strict=True)
        ]
        return base_offsets if await self._end(moved, base_offsets) else None

    async def _end(self, intent: Intent, base_offsets: Sequence[int]) -> bool:
        """The records of an intent are in Kafka: write the outcome. Returns: False: another one has done that."""
        async with self._database.transaction(
            self._deadline_s, _UNWRITTEN.get(intent.kind, "the outcome is not written yet")
        ) as connection:
            ended = await intent_store.remove(connection, intent)
            if ended:
                await self._finish[intent.kind](connection, intent, base_offsets)
        for base_offset, part in zip(base_offsets, intent.parts, strict=False):
            self._appended(intent.topic_id, part.partition, base_offset + part.records, part.records)
        return ended

    # Looks

    async def _stable(self, places: Sequence[Place], reached: Callable[[Place, int], bool], patience_s: float) -> bool:
        """Wait until each last stable offset is where `reached` wants it. Returns: False: not within `patience_s`."""
        tries = Tries(INTENT, patience_s)
        while True:
            stable = sure(await self._cluster.list_offsets(places, "latest", committed=True))
            if all(reached(place, stable[place].offset) for place in places):
                return True
            if not await tries.pause():
                return False

    async def _look(self, intent: Intent, patience_s: float) -> Sequence[int | None] | None:
        """Look for the records of an intent whose producer is fenced. A deleted topic has none.

        Returns: the base offset of each part, or None where it is not; none of them: retention has passed the noted
        ends, and nobody knows whether there were records; None: there are none.
        """
        places = [Place(intent.topic_id, part.partition) for part in intent.parts]
        try:
            ends = sure(await self._cluster.list_offsets(places, "latest"))
            if not await self._stable(places, lambda place, stable: stable >= ends[place].offset, patience_s):
                raise StorageError(
                    "a transaction of another producer is open in the topic: whether the records of an earlier try are"
                    " there is known when it has ended"
                )
            starts = sure(await self._cluster.list_offsets(places, "earliest"))
            found = [
                await self._find(place, part, starts[place].offset, ends[place].offset, intent.intent_id.encode())
                for place, part in zip(places, intent.parts, strict=True)
            ]
        except KafkaError as fault:
            if fault.name in MISSING:
                return None
            raise
        # the append is there in part: a part that retention may have removed was at its noted end or above
        removed = [starts[place].offset > part.end for place, part in zip(places, intent.parts, strict=True)]
        if all(offset is None for offset in found):
            return () if all(removed) and intent.kind is Kind.KEYED else None
        return [
            part.end if offset is None and gone else offset
            for offset, part, gone in zip(found, intent.parts, removed, strict=True)
        ]

    async def _find(self, place: Place, part: Part, start: int, end: int, intent_id: bytes) -> int | None:
        """The first committed record that names an intent, in a log from `start` to `end`. It may lie before the noted
        end if the log was cut after that, in a later leader epoch."""
        offset = part.end
        if part.leader_epoch >= 0:
            epoch, cut_at = await self._cluster.end_of_epoch(place, part.leader_epoch)
            offset = min(offset, cut_at) if epoch >= 0 else offset
        looked_at, offset = -1, max(offset, start)
        while looked_at < offset < end:
            looked_at = offset
            fetched = await self._fetching.fetch(place, offset, LOOK_BYTES, True)
            for batch in read_batches(fetched.batches, fetched.aborted):
                offset = batch.last_offset + 1
                for record in batch.records:
                    if (APPEND_HEADER, intent_id) in record.headers:
                        return record.offset
        return None

    # Loops

    async def sweep(self, mine: Callable[[], bool]) -> None:
        """Settle the intents that others have left open. Never returns. `mine`: whether this gateway sweeps."""
        async for _ in Every(SWEEP_PAUSE_S):
            if mine():
                with looking("intents", "cannot look for open appends to Kafka"):
                    for left in await self._database.query(intent_store.find_old, SWEPT_MS, SWEPT_AT_ONCE):
                        turn = self._turns.get(left.intent.subject)
                        if turn is None or not turn.locked():
                            await self._settle_left(left)

    async def _settle_left(self, left: intent_store.OpenIntent) -> None:
        named = {"topic_id": left.intent.topic_id, "kind": left.intent.kind.name.lower(), "age_ms": left.age_ms}
        with looking("intents", "an append to Kafka stays open", **named):
            try:
                base_offsets = await self.settle(left.intent, 0)
            except KafkaError as fault:
                raise storage_error(fault) from fault
            log.info("settled an append to Kafka", extra=fields(**named, appended=base_offsets is not None))

    async def close(self) -> None:
        """End all appends that run. Their intents stay for the sweep of another gateway."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._slots.close()

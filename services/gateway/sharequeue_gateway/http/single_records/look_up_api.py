"""Looks up single records: what a group has done with each, by its offset or by its key.

the leader of the share-partition   the window: held, delayed, pending, dying, or not fetched yet
the record log                      whether there is a record, and whether the group gets it; who has finished it
dead letters                        those of the record, and what became of them
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from sharequeue.protocol.errors import checked_group_id
from sharequeue.protocol.messages.fields import NonNegative, Offset
from sharequeue.protocol.messages.in_flight import (
    FindRecordsQuery,
    FoundRecords,
    InFlightBatch,
    InFlightPartition,
    InFlightQuery,
    RecordLife,
)
from sharequeue.protocol.types import MAX_INT64, SharePartitionKey
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.delivery.stored_records import batches_between, records_in
from sharequeue_gateway.http.named_partitions import number_in, partition_of
from sharequeue_gateway.http.single_records.dead_letters import LetterFinder
from sharequeue_gateway.http.single_records.dead_letters_api import DeadLettersApi
from sharequeue_gateway.http.single_records.in_flight_api import InFlightApi
from sharequeue_gateway.producing.partitioner import key_hash
from sharequeue_gateway.record_log import outcome_store
from sharequeue_gateway.record_log.log import OffsetOutOfRange, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.store import Query
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import CoordinatorNotAvailable

LOOKED_AT_ONCE: Final = 1000
BYTES_AT_ONCE: Final = 1 << 20
MOST_LOOKED: Final = 100_000
LONGEST_LOOK_S: Final = 1.0
WINDOW_STATES: Final = {"ACQUIRED": "held", "AVAILABLE": "ready", "ARCHIVING": "dying"}
"""What a record does whose range has this delivery state; in any other it is finished."""


_place: Final = msgspec.json.Decoder(tuple[NonNegative, Offset])


@dataclass(eq=False)
class LookUpApi:
    """The handlers of lookUpRecord and findRecords."""

    _metadata: Metadata
    _record_log: RecordLog
    _query: Query
    _in_flight: InFlightApi
    _finder: LetterFinder
    _dead_letters: DeadLettersApi

    async def look_up_record(self, call: Call) -> RecordLife:
        group_id = checked_group_id(call.path["group"])
        topic, partition = await partition_of(call, self._metadata)
        return await self._life(group_id, topic, partition, number_in(call, "offset", MAX_INT64))

    async def find_records(self, call: Call) -> FoundRecords:
        """Read the partition backwards, until the page is full or the call has looked for long enough."""
        query: FindRecordsQuery = call.request
        group_id = checked_group_id(call.path["group"])
        topic = await self._metadata.topic_with(call.path["topic"], query.partition or 0)
        partition = key_hash(query.key.encode()) % topic.partitions if query.partition is None else query.partition
        newest = (partition, MAX_INT64)
        partition, end = self._finder.tokens.place(query.page_token, _place, "findRecords", newest)
        topic = await self._metadata.topic_with(topic.name, partition)
        bounds = (await self._record_log.offsets(topic.topic_id, [partition]))[partition]
        begin = end = min(end, bounds.log_end_offset)
        found: list[int] = []
        give_up_s = asyncio.get_running_loop().time() + LONGEST_LOOK_S
        while end > bounds.log_start_offset and len(found) < query.page_size:
            if begin - end >= MOST_LOOKED or asyncio.get_running_loop().time() > give_up_s:
                break
            first = max(end - LOOKED_AT_ONCE, bounds.log_start_offset)
            found += reversed(
                await self._with_key(topic.topic_id, partition, first, end, msgspec.json.encode(query.key))
            )
            end = first
        if len(found) > query.page_size:
            found = found[: query.page_size]
            end = found[-1]
        return FoundRecords(
            records=[await self._life(group_id, topic, partition, offset) for offset in found],
            partition=partition,
            looked=begin - end,
            next_page_token=self._finder.tokens.token((partition, end)) if end > bounds.log_start_offset else None,
        )

    async def _with_key(self, topic_id: str, partition: int, first: int, end: int, key: bytes) -> list[int]:
        """The offsets from `first` up to `end` whose records have a key, which is as the log stores it."""
        found = []
        async for begin, batches in batches_between(
            self._record_log, (topic_id, partition), first, end - 1, BYTES_AT_ONCE, LOOKED_AT_ONCE
        ):
            for batch in batches:
                if key in batch.slice(max(begin, batch.base_offset), min(end - 1, batch.last_offset)):
                    some = records_in([batch], begin, end - 1)
                    found += [record.offset for record in some if bytes(record.key) == key]
        return found

    async def _life(self, group_id: str, topic: KnownTopic, partition: int, offset: int) -> RecordLife:
        bounds = (await self._record_log.offsets(topic.topic_id, [partition]))[partition]
        if offset >= bounds.log_end_offset:
            raise OffsetOutOfRange(
                f"{topic.name}-{partition} has no record at offset {offset} yet: its log ends at {bounds.log_end_offset}",
                bounds.log_start_offset,
            )
        window = await self._window(group_id, topic, partition, offset)
        letters = await self._finder.of_record(SharePartitionKey(group_id, topic.topic_id, partition), offset)
        await self._dead_letters.learn_topics(letters)
        life = RecordLife(
            topic=topic.name,
            partition=partition,
            offset=offset,
            state=_state(window, offset),
            log_start_offset=bounds.log_start_offset,
            in_flight=window.batches[0] if window is not None and window.batches else None,
            dead_letters=[self._dead_letters.described(*letter, records=False) for letter in letters],
        )
        if life.state in ("new", "ready", "held", "delayed", "pending"):
            before = offset - bounds.log_start_offset if window is None else window.unfinished_before
            life.unfinished_before = max(before or 0, 0)
        elif life.state == "finished" and letters:
            life.state = "dead"
        if life.state in ("finished", "dead"):
            outcome = await self._query(
                outcome_store.find, SharePartitionKey(group_id, topic.topic_id, partition), offset
            )
            life.finished_by, life.finished_at_ms = outcome or (None, None)
        await self._look_at_log(group_id, topic, life)
        return life

    async def _window(self, group_id: str, topic: KnownTopic, partition: int, offset: int) -> InFlightPartition | None:
        """Return what the leader knows; None: the group has never fetched from the partition."""
        listed = await self._in_flight.list_of(
            group_id, InFlightQuery(topic=topic.name, partition=partition, offset=offset)
        )
        if listed.errors:
            raise CoordinatorNotAvailable(f"the leader of {topic.name}-{partition} says: {listed.errors[0].detail}")
        return listed.partitions[0] if listed.partitions else None

    async def _look_at_log(self, group_id: str, topic: KnownTopic, life: RecordLife) -> None:
        """Set the time of the record. One that the group never gets, or that is gone before it got it, is skipped."""
        config = self._metadata.config(group_id) or await self._metadata.learn_config(group_id)
        if life.offset < life.log_start_offset:
            return
        where = (topic.topic_id, life.partition, life.offset, 1, 1)
        try:
            read = await self._record_log.read(*where)
            committed = await self._record_log.read(*where, config.read_committed)
        except OffsetOutOfRange:
            return
        batch = _holding(read.batches, life.offset)
        records = () if batch is None else records_in([batch], life.offset, life.offset)
        if records:
            life.timestamp_ms = records[0].timestamp_ms
        seen = _holding(committed.batches, life.offset)
        aborted = config.read_committed and seen is not None and seen.aborted
        never = aborted or (batch is not None and (batch.control or batch.for_group not in (None, group_id)))
        if (never or (not records and life.state in ("new", "ready"))) and not life.dead_letters:
            life.state, life.unfinished_before = "skipped", None


def _state(window: InFlightPartition | None, offset: int) -> str:
    """The state of a record in a group, as its leader knows."""
    if window is None:
        return "new"
    if window.batches:
        batch: InFlightBatch = window.batches[0]
        if batch.transaction_id is not None:
            return "pending"
        if batch.delivery_state == "AVAILABLE" and not batch.delivery_count:
            return "new"
        if batch.delivery_state == "AVAILABLE" and batch.available_at_ms is not None:
            return "delayed"
        return WINDOW_STATES.get(batch.delivery_state, "finished")
    if offset < window.start_offset:
        return "finished"
    return "new" if offset > window.end_offset or window.start_offset == window.end_offset else "ready"


def _holding(batches: Sequence[RecordBatch], offset: int) -> RecordBatch | None:
    return next((batch for batch in batches if batch.base_offset <= offset <= batch.last_offset), None)

"""Redriving: appends the dead letters of a group to the topics of their records, each once.

By default only the group receives a redriven record: other groups of the topic skip it (docs/decisions/0011). The
record is the source record with its headers if the log still has it, else the copy in the dead letter. If the topic was
deleted and made again, only the copy is the record.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sharequeue.protocol import apis
from sharequeue.protocol.errors import InvalidTopic, UnknownTopicOrPartition
from sharequeue.protocol.messages.dead_letters import RedriveDeadLettersRequest, RedriveResult
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.delivery.stored_records import StoredRecord, records_in
from sharequeue_gateway.http.single_records.dead_letters import FoundLetter, LetterFinder
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import CLOSED, DeadLetterRow, OffsetOutOfRange, RecordLog
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.errors import ApiError, in_parts

GROUP_HEADER: Final = "__redrive.group"
BATCHES_NEAR: Final = 8

Batches = dict[tuple[str, int], RecordBatch]
"""The last batch that was read, for each of a few partitions."""

NOT_COMMITTED: Final = StoredRecord()
"""A source record of a transaction that is open or was aborted: its group is read_committed now,
and does not receive it."""


@dataclass(eq=False)
class Redriving:
    """The handler of redriveDeadLetters."""

    _metadata: Metadata
    _record_log: RecordLog
    _dead_letters: DeadLetterLog
    _finder: LetterFinder

    async def redrive_dead_letters(self, call: Call) -> RedriveResult:
        request: RedriveDeadLettersRequest = call.request
        group_id = call.path["group"]
        done = RedriveResult(matched=0, redriven=0)
        with in_parts(lambda: done.redriven):
            async for some, done.next_page_token in self._finder.take(apis.REDRIVE_DEAD_LETTERS, group_id, request):
                done.matched += len(some)
                if not request.dry_run:
                    await self._send(group_id, some, request.to == "retry", done, call.refused)
        return done

    # Sending

    async def _send(
        self,
        group_id: str,
        letters: Sequence[FoundLetter],
        alone: bool,
        done: RedriveResult,
        refused: Mapping[str, ApiError],
    ) -> None:
        """Append to the topics that the records came from. `alone`: only this group receives them. `refused`: topics
        that the caller may not write."""
        rows: dict[tuple[str, int], list[DeadLetterRow]] = {}
        near: Batches = {}
        committed = (self._metadata.config(group_id) or await self._metadata.learn_config(group_id)).read_committed
        for found in letters:
            if found.header("topic") in refused:
                done.unauthorized_count += 1
                continue
            try:
                topic = await self._metadata.topic(found.header("topic"))
            except (UnknownTopicOrPartition, InvalidTopic):
                done.skipped_count += 1
                continue
            record = await self._record(topic, found, near, committed)
            if record is None:
                done.skipped_count += 1
                continue
            place = (topic.topic_id, max(found.number("partition"), 0) % topic.partitions)
            now_ms = time.time_ns() // 1_000_000
            tail = record.tail(now_ms, {**record.headers, GROUP_HEADER: group_id} if alone else record.headers)
            source, _, offset, delivery_count = found.key
            row = DeadLetterRow(source, CLOSED, offset, delivery_count, tail, now_ms, "")
            rows.setdefault(place, []).append(row)
        for (topic_id, partition), of_partition in rows.items():
            done.redriven += await self._dead_letters.append(
                topic_id, partition, of_partition, for_group=group_id if alone else None
            )

    async def _record(
        self, topic: KnownTopic, found: FoundLetter, near: Batches, committed: bool
    ) -> StoredRecord | None:
        """The record to append; None if neither the log nor the dead letter has it,
        or the group must not receive it."""
        letter = found.letter
        copy = StoredRecord(
            key=letter.key,
            key_base64=letter.key_base64,
            value=letter.value,
            value_base64=letter.value_base64,
            headers=letter.source_headers(),
        )
        source = None
        if found.header("topic.id") == topic.topic_id:  # the offset means another record in another topic of the name
            source = await self._source(topic, found.number("partition"), found.number("offset"), near, committed)
        if source is NOT_COMMITTED:
            return None
        if source is not None and (letter.empty or source.same_content(letter)):
            return source
        return None if letter.empty and not copy.headers else copy

    async def _source(
        self, topic: KnownTopic, partition: int, offset: int, near: Batches, committed: bool
    ) -> StoredRecord | None:
        """The source record, if the log still has it; NOT_COMMITTED for a read_committed group.

        `near`: batches that were read before and often hold the next record.
        """
        if not 0 <= partition < topic.partitions or offset < 0:
            return None
        place = (topic.topic_id, partition)
        batch = near.get(place)
        if batch is None or not batch.base_offset <= offset <= batch.last_offset:
            try:
                read = await self._record_log.read(topic.topic_id, partition, offset, 1, 1, committed)
            except OffsetOutOfRange:
                return None
            if not read.batches:
                return NOT_COMMITTED if offset < read.log_end_offset else None
            batch = read.batches[0]
            near.pop(place, None)
            near[place] = batch
            if len(near) > BATCHES_NEAR:
                del near[next(iter(near))]
        if committed and batch.aborted:
            return NOT_COMMITTED
        records = records_in([batch], offset, offset)
        return records[0] if records else None

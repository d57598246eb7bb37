"""The dead-letter queue: writes ranges that are ARCHIVING to their topic, then archives them. Source: KIP-1191.

Kafka drops a dead letter that it cannot write; this writer never does. While the write fails, the record stays
ARCHIVING and the write is retried. If the topic can never take the dead letter, it is parked in a table of the record
log.

A dead letter is written once: the log knows where each one of a delivery is, so a crash writes none twice. After a
leader has written a dead letter of a share-partition, the record log refuses those of earlier leaders: a paused gateway
may continue at any time.
"""

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sharequeue.clock import Clock
from sharequeue.protocol.configs import ERROR_HEADER, SOURCE_HEADER
from sharequeue.protocol.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from sharequeue.protocol.types import KEPT_REASONS
from sharequeue.repeats import DEAD_LETTER, heard
from sharequeue_gateway import metrics
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.delivery.stored_records import StoredRecord, records_in
from sharequeue_gateway.leader.dead_letter_queue import DeadLetterQueue, PendingLetters
from sharequeue_gateway.leader.leader import Leader
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import DeadLetterRow, OffsetOutOfRange, RecordLog
from sharequeue_gateway.share_partition.runs import DeadLetter
from sharequeue_http.forms import codec
from sharequeue_http.forms.errors import ApiError, InvalidRequest, TooLarge
from sharequeue_http.log import Tally, fields

log = logging.getLogger(__name__)

GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
RECORDS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 1 << 20

NO_SOURCE: Final = StoredRecord()


Destination = KnownTopic | str
"""The topic of dead letters; or the reason why none can take them with the present settings of the group."""


@dataclass(eq=False)
class DeadLetterWriter:
    """Writes the dead letters of all share-partitions this gateway leads."""

    _queue: DeadLetterQueue
    _leader: Leader
    _metadata: Metadata
    _record_log: RecordLog
    _dead_letter_log: DeadLetterLog
    _clock: Clock
    auto_create_topics: bool
    retry_max_ms: int
    copy_headers: bool
    _written: Tally = field(init=False, default_factory=lambda: Tally(log, logging.WARNING, "dead letters written"))

    async def run(self) -> None:
        """Write due dead letters. Runs until it is cancelled."""
        while True:
            self._queue.drop_fenced()
            now_ms = self._clock.now_ms()
            due = [pending for pending in self._queue if pending.next_attempt_at_ms <= now_ms]
            if due:
                await self._write(due)
                continue
            next_ms = min((pending.next_attempt_at_ms for pending in self._queue), default=None)
            self._queue.news.clear()
            await heard(self._queue.news, None if next_ms is None else max(next_ms - now_ms, 1) / 1000)

    async def _write(self, due: Sequence[PendingLetters]) -> None:
        by_led: dict[LedSharePartition, list[PendingLetters]] = {}
        for pending in due:
            by_led.setdefault(pending.led, []).append(pending)
        for ranges in by_led.values():
            await self._write_share_partition(ranges)

    async def _write_share_partition(self, ranges: Sequence[PendingLetters]) -> None:
        """Write the due ranges of one share-partition; by itself one that failed before, so that it stops no other."""
        led = ranges[0].led
        metrics.DEAD_LETTER_WRITES[led.key.group_id].inc(len(ranges))
        try:
            destination = await self._destination(led)
        except Exception as fault:
            self._try_again(ranges, fault)
            return
        if isinstance(destination, KnownTopic) and destination.topic_id == led.key.topic_id:
            for pending in ranges:  # they are in the dead-letter topic: a further letter would come back, and so on
                self._queue.remove(pending)
                if not led.fenced:
                    self._archive(led, pending.letter)
            return
        for together in _portions(ranges):
            try:
                await self._write_ranges(led, together, destination)
            except NotLeaderOrFollower as replaced:
                log.warning("dead letters left to another gateway", extra=_where(led, replaced.detail))
                self._leader.unload(led)
                return
            except Exception as fault:
                self._try_again(together, fault)

    def _try_again(self, ranges: Sequence[PendingLetters], fault: Exception) -> None:
        led = ranges[0].led
        unexpected = not isinstance(fault, ApiError)
        detail = fault.detail if isinstance(fault, ApiError) else repr(fault)
        log.log(
            logging.ERROR if unexpected else logging.WARNING,
            "dead letters not written yet",
            exc_info=unexpected,
            extra=_where(led, detail),
        )
        metrics.FAILED_DEAD_LETTER_WRITES[led.key.group_id].inc(len(ranges))
        now_ms = self._clock.now_ms()
        for pending in ranges:
            if pending in self._queue:
                pending.attempts += 1
                pending.last_error = detail
                pause_ms = min(DEAD_LETTER.pause_ms << min(pending.attempts - 1, 20), self.retry_max_ms)
                pending.next_attempt_at_ms = now_ms + pause_ms

    async def _destination(self, led: LedSharePartition) -> Destination:
        """The dead-letter topic of the group, created if it is missing."""
        name = led.machine.config.dead_letter_topic_name
        if not name:
            return "the group's dead-letter queue was turned off"
        try:
            topic = await self._metadata.topic(name)
        except UnknownTopicOrPartition:
            topic = None
        if topic is None:
            if not self.auto_create_topics:
                return f"there is no topic {name!r}: create it, or set auto_create_dead_letter_topics"
            topic = await self._metadata.create(name, {GROUP_ENABLE: "true"})
        if topic.config.get(GROUP_ENABLE) != "true":
            return f"topic {name!r} takes no dead letters: its {GROUP_ENABLE} is not true"
        return topic

    async def _write_ranges(
        self, led: LedSharePartition, ranges: Sequence[PendingLetters], destination: Destination
    ) -> None:
        parked: str | None = None
        async for rows in self._rows(led, [pending.letter for pending in ranges], destination):
            parked = await self._store(led, rows, destination) or parked
        if parked is not None:
            log.warning(
                "dead letters parked", extra=fields(group_id=led.key.group_id, topic=led.topic_name, cause=parked)
            )
        for pending in ranges:
            self._queue.remove(pending)
            cause = self._leader.activity.dead(led, pending.letter)
            named = {"group_id": led.key.group_id, "topic": led.topic_name, "cause": cause}
            reason = pending.letter.reason and str(pending.letter.reason.reason)
            self._written.note(tuple(named.values()), pending.records, **named, reason=reason)
            if not led.fenced:
                self._archive(led, pending.letter)

    def _archive(self, led: LedSharePartition, letter: DeadLetter) -> None:
        """The dead letters of a range are written: its records become ARCHIVED."""
        write = led.machine.complete_dead_letter(letter.first_offset, letter.last_offset, self._clock.now_ms())
        if write is not None:
            self._leader.persist(led, write)

    async def _store(
        self, led: LedSharePartition, rows: Sequence[DeadLetterRow], destination: Destination
    ) -> str | None:
        """Append dead letters, and park those that their topic cannot take. Returns: the reason, if any were parked."""
        group_id = led.key.group_id
        if isinstance(destination, str):
            refused = [row._replace(cause=destination) for row in rows]
        else:
            limit = destination.max_message_bytes
            reason = f"the headers alone exceed the {limit} bytes that topic {destination.name!r} takes"
            refused = [row._replace(cause=reason) for row in rows if len(row.tail) > limit]
            fitting = [row for row in rows if len(row.tail) <= limit]
            if fitting:
                refused += await self._append(led, fitting, destination)
        if not refused:
            return None
        await self._dead_letter_log.park(refused, led.machine.leader_epoch)
        metrics.PARKED_DEAD_LETTERS[group_id].inc(len(refused))
        return refused[-1].cause

    async def _append(
        self, led: LedSharePartition, rows: Sequence[DeadLetterRow], destination: KnownTopic
    ) -> list[DeadLetterRow]:
        """Append dead letters; in halves, if the topic refuses some. Returns: those it refuses, with the reason."""
        partition, leader_epoch = led.key.partition % destination.partitions, led.machine.leader_epoch
        try:
            await self._dead_letter_log.append(destination.topic_id, partition, rows, leader_epoch=leader_epoch)
        except (TooLarge, InvalidRequest) as fault:
            if len(rows) == 1:
                return [rows[0]._replace(cause=fault.detail)]
            middle = len(rows) // 2
            first = await self._append(led, rows[:middle], destination)
            return first + await self._append(led, rows[middle:], destination)
        metrics.DEAD_LETTERS[led.key.group_id].inc(len(rows))
        return []

    async def _rows(
        self, led: LedSharePartition, letters: Sequence[DeadLetter], destination: Destination
    ) -> AsyncIterator[list[DeadLetterRow]]:
        """The dead letters of ranges, in portions for one append each."""
        limit = None if isinstance(destination, str) else destination.max_message_bytes
        rows: list[DeadLetterRow] = []
        size = 0
        for letter in letters:
            async for offset, source in self._sources(led, letter.first_offset, letter.last_offset):
                row = self._row(led, letter, offset, source, limit)
                if rows and (len(rows) == RECORDS_AT_ONCE or size + len(row.tail) > BYTES_AT_ONCE):
                    yield rows
                    rows, size = [], 0
                rows.append(row)
                size += len(row.tail)
        yield rows

    async def _sources(
        self, led: LedSharePartition, first_offset: int, last_offset: int
    ) -> AsyncIterator[tuple[int, StoredRecord | None]]:
        """Yield each offset with its source record.

        None if it is purged, the group does not copy records, or the group is read_committed and does not know the
        transaction to be committed.
        """
        offset = first_offset
        while led.machine.config.dead_letter_copy_record and offset <= last_offset:
            committed, until = led.machine.config.read_committed, last_offset
            what = (led.key.topic_id, led.key.partition, offset, BYTES_AT_ONCE)
            try:
                limits = last_offset - offset + 1, committed
                read = self._record_log.read_cached(*what, *limits) or await self._record_log.read(*what, *limits)
                batches = read.batches
            except OffsetOutOfRange as out_of_range:
                until = min(out_of_range.log_start_offset - 1, last_offset)
                batches = [] if committed else await self._record_log.read_deleted(*what)
            end = min(batches[-1].last_offset, until) if batches else until
            known = [batch for batch in batches if not (committed and batch.aborted)]
            by_offset = {record.offset: record for record in records_in(known, offset, end)}
            for each in range(offset, end + 1):
                yield each, by_offset.get(each)
            offset = end + 1
        for each in range(offset, last_offset + 1):
            yield each, None

    def _row(
        self, led: LedSharePartition, letter: DeadLetter, offset: int, source: StoredRecord | None, limit: int | None
    ) -> DeadLetterRow:
        """Make one dead letter. If it exceeds `limit`, it leaves out what the source record holds."""
        headers = {
            f"{ERROR_HEADER}topic": led.topic_name,
            f"{ERROR_HEADER}topic.id": led.key.topic_id,
            f"{ERROR_HEADER}partition": str(led.key.partition),
            f"{ERROR_HEADER}offset": str(offset),
            f"{ERROR_HEADER}group": led.key.group_id,
            f"{ERROR_HEADER}delivery.count": str(letter.delivery_count),
            f"{ERROR_HEADER}message": letter.cause,
        }
        if letter.reason and str(letter.reason.reason):
            headers[f"{ERROR_HEADER}reason"] = str(letter.reason.reason)
        history = _history(letter)
        now_ms = self._clock.now_ms()
        tail = (source or NO_SOURCE).tail(now_ms, {**headers, **history, **self._source_headers(source)})
        copied = led.machine.config.dead_letter_copy_record
        if limit is not None and len(tail) > limit:
            for explained in ({**headers, **history}, headers):
                bare = NO_SOURCE.tail(now_ms, explained)
                if len(bare) <= limit:
                    tail, copied = bare, source is None
                    break
        state_epoch = led.machine.state_epoch
        return DeadLetterRow(led.key, state_epoch, offset, letter.delivery_count, tail, now_ms, letter.cause, copied)

    def _source_headers(self, source: StoredRecord | None) -> dict[str, str]:
        """The headers of the source record, under names of their own. Redriving restores them."""
        if source is None or not self.copy_headers:
            return {}
        return {f"{SOURCE_HEADER}{name}": value for name, value in source.headers.items()}


def _history(letter: DeadLetter) -> dict[str, str]:
    """The last reasons of clients as JSON, the oldest first. A single one has a header of its own."""
    reasons = (*letter.earlier, *(() if letter.reason is None else (letter.reason,)))[-KEPT_REASONS:]
    if not letter.earlier:
        return {}
    return {f"{ERROR_HEADER}reasons": codec.encode(reasons).decode()}


def _portions(ranges: Sequence[PendingLetters]) -> list[list[PendingLetters]]:
    """Cut ranges into portions for one append each. A range that failed before is a portion by itself."""
    portions: list[list[PendingLetters]] = []
    size = RECORDS_AT_ONCE
    for pending in ranges:
        if pending.attempts or size + pending.records > RECORDS_AT_ONCE:
            portions.append([])
            size = 0
        portions[-1].append(pending)
        size = RECORDS_AT_ONCE if pending.attempts else size + pending.records
    return portions


def _where(led: LedSharePartition, cause: str) -> Mapping[str, Any]:
    return fields(group_id=led.key.group_id, topic=led.topic_name, partition=led.key.partition, cause=cause)

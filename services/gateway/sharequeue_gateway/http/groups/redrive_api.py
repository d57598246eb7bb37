"""Redriving: appends the dead letters of a group to the topics of their records, each once.

By default only the group receives a redriven record: other groups of the topic skip it (docs/decisions/0011). The
record is the source record with its headers if the log still has it, else the copy in the dead letter. If the topic was
deleted and made again, only the copy is the record.
"""

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from sharequeue.protocol.configs import ERROR_HEADER, SOURCE_HEADER
from sharequeue.protocol.errors import InvalidTopic, UnknownTopicOrPartition, checked_group_id
from sharequeue.protocol.messages.fields import NonNegative, PartitionIndex
from sharequeue.protocol.messages.groups import RedriveDeadLettersRequest, RedriveResult
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, SharePartitionKey
from sharequeue_gateway.cluster.metadata import KnownTopic, Metadata
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import (
    DeadLetterKey,
    DeadLetterRow,
    OffsetOutOfRange,
    ParkedDeadLetter,
    RecordLog,
)
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms import nesting
from sharequeue_http.forms.errors import ApiError
from sharequeue_http.forms.texts import whole_number

GROUP_HEADER: Final = "__redrive.group"
REDRIVEN: Final = MAX_INT32
"""The state epoch in the keys of redriven dead letters. Such a key stays until its topic is deleted."""
LETTERS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 1 << 20
BATCHES_NEAR: Final = 8
NULL: Final = (b"", b"null")

Batches = dict[tuple[str, int], RecordBatch]
"""The last batch that was read, for each of a few partitions."""

LetterPlace = tuple[bool, uuid.UUID, PartitionIndex, Annotated[int, msgspec.Meta(ge=0, lt=MAX_INT64)], NonNegative]
"""The place of a dead letter, in the order of redriving: whether it is parked, then the fields of its key."""

_encode: Final = msgspec.json.Encoder().encode
_place: Final = msgspec.json.Decoder(LetterPlace)


class Letter(msgspec.Struct):
    """A record of the log, with the fields that redriving needs. Raw JSON; empty if absent."""

    offset: int = -1
    timestamp_ms: int = 0
    key: msgspec.Raw = msgspec.Raw()
    key_base64: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()
    value_base64: msgspec.Raw = msgspec.Raw()
    headers: dict[str, str] = {}

    def same_content(self, other: "Letter") -> bool:
        mine = (self.key, self.key_base64, self.value, self.value_base64)
        return [bytes(part) for part in mine] == [
            bytes(part) for part in (other.key, other.key_base64, other.value, other.value_base64)
        ]

    def source_headers(self) -> dict[str, str]:
        """The headers of the source record that a dead letter carries."""
        return {
            name.removeprefix(SOURCE_HEADER): value
            for name, value in self.headers.items()
            if name.startswith(SOURCE_HEADER)
        }

    @property
    def empty(self) -> bool:
        """Return whether it has neither key nor value: the dead letter has no copy of its record."""
        return not self.key_base64 and not self.value_base64 and bytes(self.key) in NULL and bytes(self.value) in NULL


_letters: Final = msgspec.json.Decoder(list[Letter])


NOT_COMMITTED: Final = Letter()
"""A source record of a transaction that is open or was aborted: its group is read_committed now,
and does not receive it."""


class FoundLetter(NamedTuple):
    """A dead letter, and the key under which it is redriven."""

    letter: Letter
    key: DeadLetterKey
    parked: bool

    @property
    def place(self) -> LetterPlace:
        source, _, offset, delivery_count = self.key
        return (self.parked, uuid.UUID(source.topic_id), source.partition, offset, delivery_count)

    def header(self, name: str) -> str:
        return self.letter.headers.get(f"{ERROR_HEADER}{name}", "")

    def number(self, name: str) -> int:
        number = whole_number(self.header(name), MAX_INT64)
        return -1 if number is None else number


class Redriving:
    """The handler of redriveDeadLetters."""

    def __init__(
        self, metadata: Metadata, record_log: RecordLog, dead_letters: DeadLetterLog, tokens: PageTokens
    ) -> None:
        self._metadata = metadata
        self._record_log = record_log
        self._dead_letters = dead_letters
        self._tokens = tokens

    async def redrive(self, call: Call) -> RedriveResult:
        request: RedriveDeadLettersRequest = call.request
        group_id = checked_group_id(call.path["group"])
        if request.topic is not None:
            await self._metadata.topic(request.topic)
        meant = _filter(group_id, request)
        token = request.page_token
        behind = None if token is None else self._tokens.place(token, _place, "redriveDeadLetters")
        done = RedriveResult(matched=0, redriven=0)
        async for chunk in self._chunks(group_id, behind):
            matching = [found for found in chunk if meant(found)]
            written = await self._dead_letters.written([found.key for found in matching])
            new = [found for found in matching if found.key not in written]
            if request.max_records is not None:
                new = new[: request.max_records - done.matched]
            done.matched += len(new)
            if not request.dry_run:
                await self._send(group_id, new, request.to == "retry", done, call.refused)
            if request.max_records is not None and done.matched >= request.max_records:
                done.next_page_token = self._tokens.token(new[-1].place)
                break
        return done

    # Finding

    async def _chunks(self, group_id: str, behind: LetterPlace | None) -> AsyncIterator[list[FoundLetter]]:
        """The group's dead letters behind a place: those in its dead-letter topic, then the parked ones."""
        after = None
        if behind is not None and behind[0]:
            _, topic_id, partition, offset, delivery_count = behind
            after = ParkedDeadLetter(SharePartitionKey(group_id, str(topic_id), partition), offset, delivery_count, b"")
        else:
            async for chunk in self._in_topic(group_id, behind):
                yield chunk
        while parked := await self._dead_letters.parked(group_id, LETTERS_AT_ONCE, after):
            chunk = []
            for source, offset, delivery_count, tail in parked:
                (letter,) = nesting.decode(_letters, b'[{"offset":%d%b]' % (offset, tail))
                chunk.append(FoundLetter(letter, DeadLetterKey(source, REDRIVEN, offset, delivery_count), parked=True))
            after = parked[-1]
            yield chunk

    async def _in_topic(self, group_id: str, behind: LetterPlace | None) -> AsyncIterator[list[FoundLetter]]:
        config = self._metadata.config(group_id) or await self._metadata.learn_config(group_id)
        if not config.dead_letter_topic_name:
            return
        try:
            topic = await self._metadata.topic(config.dead_letter_topic_name)
        except (UnknownTopicOrPartition, InvalidTopic):
            return
        first, offset = 0, 0
        if behind is not None and str(behind[1]) == topic.topic_id:  # or the group has another topic now
            first, offset = behind[2], behind[3] + 1
        for partition in range(first, topic.partitions):
            async for chunk in self._in_partition(group_id, topic, partition, offset):
                yield chunk
            offset = 0

    async def _in_partition(
        self, group_id: str, topic: KnownTopic, partition: int, offset: int
    ) -> AsyncIterator[list[FoundLetter]]:
        place = SharePartitionKey(group_id, topic.topic_id, partition)
        while True:
            try:
                read = await self._record_log.read(topic.topic_id, partition, offset, BYTES_AT_ONCE, LETTERS_AT_ONCE)
            except OffsetOutOfRange as out_of_range:
                offset = out_of_range.log_start_offset
                continue
            if not read.batches:
                return
            records = b",".join(
                part
                for batch in read.batches
                if (part := batch.slice(max(offset, batch.base_offset), batch.last_offset))
            )
            yield [
                FoundLetter(letter, DeadLetterKey(place, REDRIVEN, letter.offset, 0), parked=False)
                for letter in nesting.decode(_letters, b"[" + records + b"]")
            ]
            offset = read.batches[-1].last_offset + 1

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
            tail = _tail(record, now_ms, {**record.headers, GROUP_HEADER: group_id} if alone else record.headers)
            source, _, offset, delivery_count = found.key
            row = DeadLetterRow(source, REDRIVEN, offset, delivery_count, tail, now_ms, "")
            rows.setdefault(place, []).append(row)
        for (topic_id, partition), of_partition in rows.items():
            done.redriven += await self._dead_letters.append(
                topic_id, partition, of_partition, for_group=group_id if alone else None
            )

    async def _record(self, topic: KnownTopic, found: FoundLetter, near: Batches, committed: bool) -> Letter | None:
        """The record to append; None if neither the log nor the dead letter has it,
        or the group must not receive it."""
        letter = found.letter
        copy = Letter(
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
    ) -> Letter | None:
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
        records = nesting.decode(_letters, b"[" + batch.slice(offset, offset) + b"]")
        return records[0] if records else None


def _filter(group_id: str, request: RedriveDeadLettersRequest) -> Callable[[FoundLetter], bool]:
    """A predicate: whether a dead letter belongs to the group and passes the filter of the request."""
    wanted = request.filter

    def meant(found: FoundLetter) -> bool:
        if found.header("group") != group_id or request.topic not in (None, found.header("topic")):
            return False
        if wanted is None:
            return True
        said = (found.header("message"), found.header("reason"))
        return (
            (wanted.message is None or any(wanted.message in text for text in said))
            and (wanted.min_delivery_count is None or found.number("delivery.count") >= wanted.min_delivery_count)
            and (wanted.before_ms is None or found.letter.timestamp_ms < wanted.before_ms)
        )

    return meant


def _tail(record: Letter, now_ms: int, headers: dict[str, str]) -> bytes:
    """The record's JSON without its offset, as in PartitionAppend.tails."""
    if record.key_base64:
        key = b',"key_base64":' + bytes(record.key_base64)
    else:
        key = b',"key":' + (bytes(record.key) or b"null")
    if record.value_base64:
        value = b',"value_base64":' + bytes(record.value_base64)
    else:
        value = b',"value":' + (bytes(record.value) or b"null")
    header_part = b',"headers":' + _encode(headers) if headers else b""
    return b"".join((b',"timestamp_ms":%d' % now_ms, key, value, header_part, b"}"))

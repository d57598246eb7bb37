"""The dead letters of a group: found in its dead-letter topic, then among the parked ones, and filtered."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from sharequeue.protocol.configs import ERROR_HEADER, ShareGroupConfig
from sharequeue.protocol.errors import InvalidTopic, UnknownTopicOrPartition, checked_group_id
from sharequeue.protocol.messages.dead_letters import DropDeadLettersRequest, LetterFilter
from sharequeue.protocol.messages.fields import NonNegative, PartitionIndex
from sharequeue.protocol.types import MAX_INT64, SharePartitionKey
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.delivery.stored_records import StoredRecord, batches_between, parsed, records_in
from sharequeue_gateway.http.answers.page_tokens import PageTokens
from sharequeue_gateway.leader.reports.backlog import finish_letters
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import (
    CLOSED,
    DeadLetterKey,
    LetterOutcome,
    OffsetOutOfRange,
    ParkedDeadLetter,
    RecordLog,
)
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.share_partition.runs import LIMIT_EXCEEDED, REJECTED
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import InvalidRequest
from sharequeue_http.forms.texts import whole_number

LETTERS_AT_ONCE: Final = 500
BYTES_AT_ONCE: Final = 1 << 20
PORTIONS_OF_A_CALL: Final = 200
"""After as many portions a call that redrives or drops ends, and its page token continues."""
MOST_LETTERS: Final = 10
"""The most parked dead letters of a record that are looked at."""
CAUSES: Final = {REJECTED: "rejected", LIMIT_EXCEEDED: "delivery_limit"}

LetterPlace = tuple[bool, uuid.UUID, PartitionIndex, Annotated[int, msgspec.Meta(ge=0, lt=MAX_INT64)], NonNegative]
"""The place of a dead letter, in the order of redriving: whether it is parked, then the fields of its key."""

place_decoder: Final = msgspec.json.Decoder(LetterPlace)


_key: Final = msgspec.json.Decoder(str | None)


class FoundLetter(NamedTuple):
    """A dead letter, and the key under which it is closed."""

    letter: StoredRecord
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


class Portion(NamedTuple):
    """Some dead letters that fit a filter, in the order of their places.

    `outcomes`: of those that are closed; None: it is open. `end`: the place of the last one that was looked at.
    `number`: of the portion, from 1; a portion is made of up to 500 dead letters or about 1 MiB.
    """

    letters: list[FoundLetter]
    outcomes: Mapping[DeadLetterKey, LetterOutcome | None]
    end: LetterPlace
    number: int

    @property
    def open(self) -> list[FoundLetter]:
        return [found for found in self.letters if self.outcomes.get(found.key) is None]


@dataclass(eq=False)
class LetterFinder:
    """Finds the dead letters of groups that a request means."""

    _metadata: Metadata
    _record_log: RecordLog
    _dead_letters: DeadLetterLog
    tokens: PageTokens

    async def take(
        self, api: Api, group_id: str, request: DropDeadLettersRequest
    ) -> AsyncIterator[tuple[list[FoundLetter], str | UnsetType]]:
        """The open dead letters that a request means. Yields: some, and the page token behind them if the call ends."""
        taken = 0
        async for portion in self.find(api, group_id, request, request.page_token):
            some = portion.open
            token: str | UnsetType = UNSET
            if request.max_records is not None and taken + len(some) >= request.max_records:
                some = some[: request.max_records - taken]
                token = self.tokens.token(some[-1].place)
            elif portion.number >= PORTIONS_OF_A_CALL:
                token = self.tokens.token(portion.end)
            taken += len(some)
            yield some, token
            if token is not UNSET:
                return

    async def find(self, api: Api, group_id: str, wanted: LetterFilter, token: str | None) -> AsyncIterator[Portion]:
        """The dead letters that fit a filter, open or not, behind a page token of the call.

        Raises: InvalidRequest: the topic is that of the dead letters; an offset without a topic.
            UnknownTopicOrPartition.
        """
        checked_group_id(group_id)
        config = self._metadata.config(group_id) or await self._metadata.learn_config(group_id)
        if wanted.topic is not None and wanted.topic == config.dead_letter_topic_name:
            raise InvalidRequest(
                f"topic {wanted.topic!r} holds the dead letters of group {group_id!r}: `topic` names the topic that their "
                "records came from; leave it out to mean all"
            )
        topic = None if wanted.topic is None else await self._metadata.topic(wanted.topic)
        if wanted.offset is not None and topic is None:
            raise InvalidRequest("an offset needs the topic that the record came from: give `topic` too")
        behind = self.tokens.place(token, place_decoder, api.operation_id, None)
        await finish_letters(self._metadata, self._dead_letters, group_id)
        if topic is None or wanted.offset is None:
            chunks = self._chunks(group_id, behind, config)
        else:
            source = SharePartitionKey(group_id, topic.topic_id, wanted.partition or 0)
            chunks = self._at(source, wanted.offset, behind)
        number = 0
        async for chunk in chunks:
            number += 1
            letters = [found for found in chunk if _fits(found, group_id, wanted)]
            outcomes = await self._dead_letters.outcomes([found.key for found in letters]) if letters else {}
            letters = [found for found in letters if found.parked or found.key in outcomes]
            yield Portion(letters, outcomes, chunk[-1].place, number)

    async def of_record(self, source: SharePartitionKey, offset: int) -> list[tuple[FoundLetter, LetterOutcome | None]]:
        """The dead letters of one record, open or not, and how the closed ones ended."""
        found = [each async for some in self._at(source, offset, None) for each in some]
        outcomes = await self._dead_letters.outcomes([each.key for each in found]) if found else {}
        return [(each, outcomes.get(each.key)) for each in found]

    # Looking

    async def _at(
        self, source: SharePartitionKey, offset: int, behind: LetterPlace | None
    ) -> AsyncIterator[list[FoundLetter]]:
        """The dead letters of a single record, in the order of their places."""
        found = []
        for pointer in await self._dead_letters.pointers(source, [offset]):
            if pointer.letter_offset >= 0:
                place = pointer.letter_topic_id, pointer.letter_partition
                with contextlib.suppress(OffsetOutOfRange):  # it is not there any more
                    read = await self._record_log.read(*place, pointer.letter_offset, 1, 1)
                    key = SharePartitionKey(source.group_id, *place)
                    found += _letters_of(key, read.batches[:1], pointer.letter_offset, pointer.letter_offset)
        after = ParkedDeadLetter(source, offset, -1, b"")
        parked = await self._dead_letters.parked(source.group_id, MOST_LETTERS, after)
        found += [_parked(each) for each in parked if (each.source, each.offset) == (source, offset)]
        found = sorted((each for each in found if behind is None or each.place > behind), key=lambda each: each.place)
        if found:
            yield found

    async def _chunks(
        self, group_id: str, behind: LetterPlace | None, config: ShareGroupConfig
    ) -> AsyncIterator[list[FoundLetter]]:
        """The group's dead letters behind a place: those in its dead-letter topic, then the parked ones."""
        after = None
        if behind is not None and behind[0]:
            _, topic_id, partition, offset, delivery_count = behind
            after = ParkedDeadLetter(SharePartitionKey(group_id, str(topic_id), partition), offset, delivery_count, b"")
        else:
            async for chunk in self._in_topic(group_id, behind, config):
                yield chunk
        while parked := await self._dead_letters.parked(group_id, LETTERS_AT_ONCE, after):
            yield [*map(_parked, parked)]
            after = parked[-1]

    async def _in_topic(
        self, group_id: str, behind: LetterPlace | None, config: ShareGroupConfig
    ) -> AsyncIterator[list[FoundLetter]]:
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
            key = SharePartitionKey(group_id, topic.topic_id, partition)
            async for begin, batches in batches_between(
                self._record_log, key[1:], offset, MAX_INT64, BYTES_AT_ONCE, LETTERS_AT_ONCE
            ):
                if chunk := _letters_of(key, batches, begin, MAX_INT64):
                    yield chunk
            offset = 0


def _letters_of(
    place: SharePartitionKey, batches: Sequence[RecordBatch], first_offset: int, last_offset: int
) -> list[FoundLetter]:
    """The records of first..last in batches, as dead letters."""
    return [
        FoundLetter(letter, DeadLetterKey(place, CLOSED, letter.offset, 0), parked=False)
        for letter in records_in(batches, first_offset, last_offset)
    ]


def _parked(parked: ParkedDeadLetter) -> FoundLetter:
    source, offset, delivery_count, tail = parked
    (letter,) = parsed(b'{"offset":%d%b' % (offset, tail))
    return FoundLetter(letter, DeadLetterKey(source, CLOSED, offset, delivery_count), parked=True)


def _fits(found: FoundLetter, group_id: str, wanted: LetterFilter) -> bool:
    """Tell whether a dead letter belongs to the group and passes the filter."""
    cause, reason, at_ms = found.header("message"), found.header("reason"), found.letter.timestamp_ms
    partition = wanted.partition if wanted.offset is None else wanted.partition or 0
    return (
        found.header("group") == group_id
        and wanted.topic in (None, found.header("topic"))
        and partition in (None, found.number("partition"))
        and wanted.offset in (None, found.number("offset"))
        and (wanted.reason is None or wanted.reason in cause or wanted.reason in reason)
        and wanted.cause in (None, CAUSES.get(cause))
        and (wanted.after_ms is None or at_ms >= wanted.after_ms)
        and (wanted.before_ms is None or at_ms < wanted.before_ms)
        and (wanted.key is None or wanted.key == _key.decode(found.letter.key or b"null"))
    )

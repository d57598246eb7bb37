"""Lists dead letters with what became of them, and drops them: closes them without sending them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from sharequeue.protocol import apis
from sharequeue.protocol.messages.dead_letters import (
    DeadLetter,
    DeadLetterList,
    DropDeadLettersRequest,
    DropResult,
    ListDeadLettersQuery,
    RecordPlace,
)
from sharequeue.protocol.types import KEPT_REASONS, GivenReason
from sharequeue_gateway.cluster.metadata import Metadata
from sharequeue_gateway.http.single_records.dead_letters import FoundLetter, LetterFinder
from sharequeue_gateway.record_log.dead_letters.dead_letter_log import DeadLetterLog
from sharequeue_gateway.record_log.log import LetterOutcome
from sharequeue_http.application.endpoint import Call
from sharequeue_http.forms.codec import decoder_of
from sharequeue_http.forms.errors import in_parts

PORTIONS_OF_A_LIST: Final = 40
BYTES_OF_A_PAGE: Final = 8 << 20
_reasons: Final = decoder_of(list[GivenReason])


@dataclass(eq=False)
class DeadLettersApi:
    """The handlers of listDeadLetters and dropDeadLetters."""

    _metadata: Metadata
    _dead_letters: DeadLetterLog
    _finder: LetterFinder

    async def list_dead_letters(self, call: Call) -> DeadLetterList:
        query: ListDeadLettersQuery = call.request
        group_id = call.path["group"]
        listed = DeadLetterList(dead_letters=[])
        size = 0
        async for portion in self._finder.find(apis.LIST_DEAD_LETTERS, group_id, query, query.page_token):
            shown = [(found, portion.outcomes.get(found.key)) for found in portion.letters]
            if not query.closed:
                shown = [(found, outcome) for found, outcome in shown if outcome is None]
            await self.learn_topics(shown)
            for found, outcome in shown:
                if found.header("topic") in call.refused:
                    listed.unauthorized_count += 1
                    continue
                listed.dead_letters.append(self.described(found, outcome, records=query.records))
                size += found.letter.size
                if len(listed.dead_letters) == query.page_size or size > BYTES_OF_A_PAGE:
                    listed.next_page_token = self._finder.tokens.token(found.place)
                    return listed
            if portion.number >= PORTIONS_OF_A_LIST:
                listed.next_page_token = self._finder.tokens.token(portion.end)
                return listed
        return listed

    async def drop_dead_letters(self, call: Call) -> DropResult:
        request: DropDeadLettersRequest = call.request
        done = DropResult(matched=0, dropped=0)
        with in_parts(lambda: done.dropped):
            async for some, done.next_page_token in self._finder.take(
                apis.DROP_DEAD_LETTERS, call.path["group"], request
            ):
                allowed = [found.key for found in some if found.header("topic") not in call.refused]
                done.matched += len(some)
                done.unauthorized_count += len(some) - len(allowed)
                if allowed and not request.dry_run:
                    done.dropped += await self._dead_letters.close(allowed)
        return done

    async def learn_topics(self, shown: Iterable[tuple[FoundLetter, LetterOutcome | None]]) -> None:
        """Learn the names of the topics that `described` needs."""
        ids = set()
        for found, outcome in shown:
            ids.add(found.key.source.topic_id)
            if outcome is not None and outcome.redriven_to is not None:
                ids.add(outcome.redriven_to[0])
        await self._metadata.topics_by_id(list(ids))

    def described(self, found: FoundLetter, outcome: LetterOutcome | None, *, records: bool) -> DeadLetter:
        """A dead letter as answers show it. `records`: with the value and the headers of its record."""
        letter = found.letter
        described = DeadLetter(
            topic=found.header("topic"),
            partition=found.number("partition"),
            offset=found.number("offset"),
            died_at_ms=letter.timestamp_ms,
            delivery_count=found.number("delivery.count"),
            cause=found.header("message"),
            reason=found.header("reason") or None,
            reasons=_history(found.header("reasons")),
            letter=None if found.parked else self._place((*found.key.source[1:], found.key.offset)),
            state="open",
            key=msgspec.json.decode(letter.key) if letter.key else None,
            key_base64=msgspec.json.decode(letter.key_base64) if letter.key_base64 else None,
        )
        if outcome is not None:
            described.state = "finished" if outcome.consumer_group else "redriven"
            described.closed_at_ms, described.consumer_group = outcome.closed_at_ms, outcome.consumer_group
            if outcome.redriven_to is not None:
                described.redriven_to = self._place(outcome.redriven_to)
            elif outcome.consumer_group is None and outcome.closed_at_ms is not None:
                described.state = "dropped"
        if records and not letter.empty:
            described.value = letter.value or msgspec.UNSET
            described.value_base64 = msgspec.json.decode(letter.value_base64) if letter.value_base64 else None
        if records:
            described.headers = letter.source_headers()
        return described

    def _place(self, place: tuple[str, int, int]) -> RecordPlace | None:
        name = self._metadata.name_of(place[0])
        return None if name is None else RecordPlace(topic=name, partition=place[1], offset=place[2])


def _history(header: str) -> list[GivenReason]:
    """The reasons in a header, which anybody who may produce to the topic may have written."""
    try:
        return _reasons.decode(header)[-KEPT_REASONS:] if header else []
    except msgspec.DecodeError:
        return []

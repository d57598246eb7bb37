"""States as tests say them: plain batches, and what is noted about their records, with reasons as texts."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import structs
from sharequeue_share_coordinator.share_state import batch_list
from sharequeue_share_coordinator.share_state.notes import taken

from sharequeue.protocol.messages.share_state import PartitionStateResult
from sharequeue.protocol.state import NOTHING, Given, Note, StateBatch, StateBatches
from sharequeue.protocol.types import GivenReason, Reason


class StateAnnotation(NamedTuple):
    """What is noted about the records of a range, after `delivery_count` deliveries."""

    first_offset: int
    last_offset: int
    delivery_count: int
    available_at_ms: int | None = None
    reason: Reason | None = None
    forgiven: int = 0
    reason_at_ms: int | None = None
    earlier_reasons: tuple[GivenReason, ...] = ()
    transaction_id: str | None = None


class Stored:
    """The state of a share-partition, as the share coordinator keeps it."""

    def __init__(self, batches: Sequence[StateBatch] = (), texts: Sequence[str] = ()) -> None:
        self.batches = list(batches)
        self.texts = list(texts)

    def updated(self, write: StateBatches, start_offset: int = -1) -> "Stored":
        batches, texts = taken(write.batches, write.texts, self.texts)
        return Stored(batch_list.updated(self.batches, batches, start_offset), [*self.texts, *texts])

    def with_page(self, result: PartitionStateResult) -> "Stored":
        """These with the next page of a read."""
        assert result.error_code == 0, result.error_message
        texts = dict(enumerate(self.texts)) | result.texts
        return Stored([*self.batches, *result.batches], [texts.get(n, "") for n in range(max(texts, default=-1) + 1)])

    def state_batches(self) -> list[StateBatch]:
        """The batches without notes; neighbours of one state and count are one."""
        found: list[StateBatch] = []
        for batch in self.batches:
            plain = structs.replace(batch, note=None)
            if found and plain.continues(found[-1]):
                plain = plain.part(found.pop().first_offset, plain.last_offset)
            found.append(plain)
        return found

    def annotations(self) -> list[StateAnnotation]:
        """What is noted; neighbours of one count with the same note are one."""
        found: list[StateAnnotation] = []
        for batch in self.batches:
            first, last, count, note = batch.first_offset, batch.last_offset, batch.delivery_count, batch.note
            if note is None:
                continue
            noted = StateAnnotation(
                first,
                last,
                count,
                note.available_at_ms or None,
                None if note.reason is None else Reason(self.texts[note.reason.text]),
                note.forgiven,
                None if note.reason is None else note.reason.at_ms or None,
                tuple(GivenReason(Reason(self.texts[each.text]), each.at_ms) for each in note.earlier),
                note.transaction_id,
            )
            if found and found[-1].last_offset + 1 == first and found[-1][2:] == noted[2:]:
                noted = noted._replace(first_offset=found.pop().first_offset)
            found.append(noted)
        return found

    @property
    def state(self) -> StateBatches:
        return StateBatches(self.batches, self.texts)


def stated(batches: Iterable[StateBatch], annotations: Iterable[StateAnnotation] = ()) -> StateBatches:
    """The state of these batches and annotations. An annotation says nothing where no batch has its count or more."""
    kept = batch_list.updated([], list(batches), -1)
    texts: list[str] = []
    for annotation in annotations:
        note = _note(annotation, texts)
        for batch in list(batch_list.from_offset(kept, annotation.first_offset)):
            first = max(batch.first_offset, annotation.first_offset)
            last = min(batch.last_offset, annotation.last_offset)
            if first > last or batch.delivery_count < annotation.delivery_count:
                continue
            noted = StateBatch(first, last, 0, annotation.delivery_count, note)
            if batch.delivery_count == annotation.delivery_count:
                noted = structs.replace(noted, delivery_state=batch.delivery_state)
                parts = [batch.part(batch.first_offset, first - 1), batch.part(last + 1, batch.last_offset)]
                place = kept.index(batch)
                kept[place : place + 1] = [part for part in parts if part.first_offset <= part.last_offset]
            batch_list.updated(kept, [noted], -1, in_place=True)
    return StateBatches(kept, texts)


def written(batches: Iterable[StateBatch], annotations: Iterable[StateAnnotation] = ()) -> StateBatches:
    """A write: each annotation is a batch behind the others, AVAILABLE, of its delivery count."""
    texts: list[str] = []
    noted = [
        StateBatch(each.first_offset, each.last_offset, 0, each.delivery_count, _note(each, texts))
        for each in annotations
    ]
    return StateBatches([*batches, *noted], texts)


def stored_in(result: PartitionStateResult) -> Stored:
    """What a read answers: one page."""
    return Stored().with_page(result)


def plain(state: StateBatches) -> list[StateBatch]:
    """The batches of a write, without notes, as they stand there."""
    return [structs.replace(batch, note=None) for batch in state.batches]


def annotations(state: StateBatches) -> list[StateAnnotation]:
    """What a write notes."""
    return Stored(state.batches, state.texts).annotations()


def _note(annotation: StateAnnotation, texts: list[str]) -> Note | None:
    def given(reason: Reason, at_ms: int | None) -> Given:
        text = str(reason)
        if text not in texts:
            texts.append(text)
        return Given(texts.index(text), at_ms or 0)

    note = Note(
        annotation.available_at_ms or 0,
        None if annotation.reason is None else given(annotation.reason, annotation.reason_at_ms),
        annotation.forgiven,
        tuple(given(each.reason, each.at_ms) for each in annotation.earlier_reasons),
        annotation.transaction_id,
    )
    return None if note == NOTHING else note

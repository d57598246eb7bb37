"""What a state keeps about a range of records beside their delivery state and count. Pure.

A note has fields of two kinds, and the kind decides how long a field lives:

    of one delivery   `available_at_ms`, `reason`    until the delivery count rises; an incoming note replaces both
    lasting           `forgiven`                     until the record is finished; the larger value wins
                      `earlier`                      until the record is finished; a reason joins it when its delivery
                                                     count has risen
    pending           `transaction_id`               as one of one delivery, but it replaces no other field: the last
                                                     delivery has ended, and the transaction decides about the next one

To add a field: add it to `StateAnnotation` (`sharequeue/protocol/types.py`) with a default that means "nothing", then
here to `Rest`, `make_note`, `note_of` and `annotation_of`, and to `combined` beside the fields that live as long.
"""

import functools
import sys
from collections.abc import Set
from typing import Final

from msgspec import Struct

from sharequeue.protocol.state_columns import STEP_MS, steps
from sharequeue.protocol.types import (
    REASON_STEP_MS,
    DeliveryState,
    GivenReason,
    Reason,
    StateAnnotation,
    with_reason,
)

MOST_REASONS: Final = 256
"""Different texts in one share-partition, the last of them `TOO_MANY`."""
MOST_REASON_BYTES: Final = 64 * 1024
"""Of all these texts together, as UTF-8."""
SHORT_REASON: Final = 100
TOO_MANY: Final = "(too many reasons)"

FINISHED: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class Given(Struct, frozen=True, gc=False):
    """A reason, and when a client gave it; 0: that is not known. `given` makes them."""

    text: str
    at_ms: int = 0


@functools.lru_cache(maxsize=1024)
def given(text: str, at_ms: int = 0) -> Given:
    """A reason that is in memory once: many records get the same one at the same time, and a text many times."""
    return Given(sys.intern(text), at_ms)


class Rest(Struct, frozen=True, gc=False):
    """What few notes have. `forgiven`: the deliveries that were never begun. `earlier`: the reasons of earlier
    deliveries, the oldest first. `transaction_id`: the transaction on which the next delivery is pending."""

    forgiven: int
    earlier: tuple[Given, ...]
    transaction_id: str | None


class Note(Struct, frozen=True, gc=False):
    """`available_at_ms`: the end of a delay, 0 without one. `make_note` makes them."""

    available_at_ms: int = 0
    reason: Given | None = None
    rest: Rest | None = None

    @property
    def forgiven(self) -> int:
        return 0 if self.rest is None else self.rest.forgiven

    @property
    def earlier(self) -> tuple[Given, ...]:
        return () if self.rest is None else self.rest.earlier

    @property
    def transaction_id(self) -> str | None:
        return None if self.rest is None else self.rest.transaction_id


NOTHING: Final = Note()


def make_note(
    available_at_ms: int = 0,
    reason: Given | None = None,
    forgiven: int = 0,
    earlier: tuple[Given, ...] = (),
    transaction_id: str | None = None,
) -> Note:
    """A note. Those that say the same are equal."""
    if forgiven or earlier or transaction_id is not None:
        return Note(available_at_ms, reason, Rest(forgiven, earlier, transaction_id))
    return Note(available_at_ms, reason)


def note_of(annotation: StateAnnotation) -> Note:
    reason = annotation.reason
    return make_note(
        annotation.available_at_ms or 0,
        None if reason is None else given(str(reason), annotation.reason_at_ms or 0),
        annotation.forgiven,
        earlier_of(annotation),
        None if annotation.transaction_id is None else sys.intern(annotation.transaction_id),
    )


def earlier_of(annotation: StateAnnotation) -> tuple[Given, ...]:
    return tuple(given(str(each.reason), each.at_ms) for each in annotation.earlier_reasons)


def annotation_of(first_offset: int, last_offset: int, delivery_count: int, note: Note) -> StateAnnotation:
    reason = note.reason
    return StateAnnotation(
        first_offset,
        last_offset,
        delivery_count,
        note.available_at_ms or None,
        None if reason is None else Reason(reason.text),
        note.forgiven,
        None if reason is None else reason.at_ms or None,
        tuple(GivenReason(Reason(each.text), each.at_ms) for each in note.earlier),
        note.transaction_id,
    )


def combined(
    kept: Note | None, incoming: Note | None, *, kept_lives: bool, incoming_lives: bool, finished: bool
) -> Note | None:
    """The note of a range after a write.

    Args:
        kept_lives, incoming_lives: whether the delivery count of the range is the one that this note was written with.
        finished: whether the records are ACKNOWLEDGED or ARCHIVED now.
    """
    if incoming is None:
        if kept is None or (kept_lives and not (finished and (kept.forgiven or kept.earlier))):
            return kept
        source = kept if kept_lives else NOTHING
    else:
        source = incoming if incoming_lives else NOTHING
    before, after = kept or NOTHING, incoming or NOTHING
    forgiven, earlier = max(before.forgiven, after.forgiven), after.earlier or before.earlier
    if before.reason is not None and not kept_lives and not after.earlier:
        earlier = with_reason(earlier, before.reason)
    transaction_id = source.transaction_id
    if incoming_lives and kept_lives and (before.transaction_id is not None or transaction_id is not None):
        source = before  # what becomes pending, or is let go, is not delivered in between
    lasting = (0, ()) if finished else (forgiven, earlier)
    note = make_note(source.available_at_ms, source.reason, *lasting, transaction_id)
    if note == NOTHING:
        return None
    return kept if note == kept else note


def bounded(annotations: list[StateAnnotation], known: Set[str]) -> list[StateAnnotation]:
    """Annotations of a write as they are kept: times in whole steps,
    and reasons within the bounds of a share-partition.

    A write brings no earlier reasons: the state has kept them.

    Args:
        known: the reasons that are kept already. A further one that exceeds the bounds is cut to its first 100
            characters; if that exceeds them too, it becomes "(too many reasons)".
    """
    if not annotations:
        return annotations
    texts = set(known)
    size = -1
    kept = []
    for annotation in annotations:
        reason = None if annotation.reason is None else str(annotation.reason)
        if reason is not None and reason not in texts:
            size = sum(len(text.encode()) for text in texts) if size < 0 else size
            for text in (reason, reason[:SHORT_REASON], TOO_MANY):
                added = 0 if text in texts else len(text.encode())
                reason = text
                if not added or (len(texts) < MOST_REASONS - 1 and size + added <= MOST_REASON_BYTES - len(TOO_MANY)):
                    break
            if reason not in texts:
                texts.add(reason)
                size += len(reason.encode())
        kept.append(
            StateAnnotation(
                annotation.first_offset,
                annotation.last_offset,
                annotation.delivery_count,
                steps(annotation.available_at_ms) * STEP_MS or None,
                None if reason is None else Reason(reason),
                annotation.forgiven,
                None if reason is None else (annotation.reason_at_ms or 0) // REASON_STEP_MS * REASON_STEP_MS or None,
                transaction_id=annotation.transaction_id,
            )
        )
    return kept

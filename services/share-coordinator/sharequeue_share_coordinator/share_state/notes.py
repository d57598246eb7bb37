"""What a state keeps about a range of records beside their delivery state and count. Pure.

A note has fields of two kinds, and the kind decides how long a field lives:

    of one delivery   `available_at_ms`, `reason`    until the delivery count rises; an incoming note replaces both
    lasting           `forgiven`                     until the record is finished; the larger value wins

To add a field: add it to `StateAnnotation` (`sharequeue/protocol/types.py`) with a default that means "nothing", then here
to `Note`, `note_of` and `annotation_of`, and to `combined` beside the fields that live as long.
"""

import sys
from collections.abc import Set
from typing import Final

from msgspec import Struct

from sharequeue.protocol.types import DeliveryState, Reason, StateAnnotation

STEP_MS: Final = 100
"""Ends of delays are kept in steps of so many milliseconds, rounded up: never early."""
MOST_REASONS: Final = 256
"""Different texts in one share-partition, the last of them `TOO_MANY`."""
MOST_REASON_BYTES: Final = 64 * 1024
"""Of all these texts together, as UTF-8."""
SHORT_REASON: Final = 100
TOO_MANY: Final = "(too many reasons)"

FINISHED: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class Note(Struct, frozen=True, gc=False):
    """`available_at_ms`: the end of a delay, 0 without one. `forgiven`: the deliveries that were never begun."""

    available_at_ms: int = 0
    reason: str | None = None
    forgiven: int = 0


NOTHING: Final = Note()


def note_of(annotation: StateAnnotation) -> Note:
    reason = annotation.reason
    return Note(
        annotation.available_at_ms or 0, None if reason is None else sys.intern(str(reason)), annotation.forgiven
    )


def annotation_of(first_offset: int, last_offset: int, delivery_count: int, note: Note) -> StateAnnotation:
    reason = None if note.reason is None else Reason(note.reason)
    return StateAnnotation(
        first_offset, last_offset, delivery_count, note.available_at_ms or None, reason, note.forgiven
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
        if kept is None or (kept_lives and not (finished and kept.forgiven)):
            return kept
        source = kept if kept_lives else NOTHING
    else:
        source = incoming if incoming_lives else NOTHING
    forgiven = max(0 if kept is None else kept.forgiven, 0 if incoming is None else incoming.forgiven)
    forgiven = 0 if finished else forgiven
    note = Note(source.available_at_ms, source.reason, forgiven)
    if note == NOTHING:
        return None
    return kept if note == kept else note


def steps(available_at_ms: int | None) -> int:
    """The end of a delay in steps, 0 without one."""
    return -(-(available_at_ms or 0) // STEP_MS)


def bounded(annotations: list[StateAnnotation], known: Set[str]) -> list[StateAnnotation]:
    """Annotations as they are kept: ends of delays in whole steps, and reasons within the bounds of a share-partition.

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
            )
        )
    return kept

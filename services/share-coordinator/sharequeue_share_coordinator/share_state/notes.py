"""What a state keeps about a range of records beside their delivery state and count. Pure.

A note has fields of two kinds, and the kind decides how long a field lives:

    of one delivery   `available_at_ms`, `reason`    until the delivery count rises; an incoming note replaces both
    lasting           `forgiven`                     until the record is finished; the larger value wins

To add a field: add it to `StateAnnotation` (`sharequeue/protocol/types.py`) with a default that means "nothing", then here
to `Note`, `note_of` and `annotation_of`, and to `combined` beside the fields that live as long.
"""

from typing import Final

from msgspec import Struct

from sharequeue.protocol.types import DeliveryState, StateAnnotation

FINISHED: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


class Note(Struct, frozen=True, gc=False):
    """`available_at_ms`: the end of a delay, 0 without one. `forgiven`: the deliveries that were never begun."""

    available_at_ms: int = 0
    reason: str | None = None
    forgiven: int = 0


NOTHING: Final = Note()


def note_of(annotation: StateAnnotation) -> Note:
    return Note(annotation.available_at_ms or 0, annotation.reason, annotation.forgiven)


def annotation_of(first_offset: int, last_offset: int, delivery_count: int, note: Note) -> StateAnnotation:
    return StateAnnotation(
        first_offset, last_offset, delivery_count, note.available_at_ms or None, note.reason, note.forgiven
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

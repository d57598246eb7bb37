"""Decides what becomes of the notes of a state when a write comes, and which texts a state keeps. Pure.

The page of `sharequeue/protocol/state.py` has the fields, and says how long each of them lives.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import structs

from sharequeue.protocol.state import NOTHING, Given, Note, StateBatch, renumbered, texts_in
from sharequeue.protocol.types import REASON_STEP_MS, DeliveryState, with_reason

DELAY_STEP_MS: Final = 100
"""Ends of delays are kept in steps of so many milliseconds, rounded up: never early."""
MOST_REASONS: Final = 256
"""Different texts in one share-partition, the last of them `TOO_MANY`."""
MOST_REASON_BYTES: Final = 64 * 1024
"""Of all these texts together, as UTF-8."""
SHORT_REASON: Final = 100
TOO_MANY: Final = "(too many reasons)"

FINISHED: Final = frozenset({DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED})


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
    note = Note(source.available_at_ms, source.reason, *lasting, transaction_id)
    if note == NOTHING:
        return None
    return kept if note == kept else note


def taken(
    batches: Sequence[StateBatch], texts: Sequence[str], known: Sequence[str]
) -> tuple[list[StateBatch], list[str]]:
    """The batches of a write as a state keeps them: times in whole steps, texts within the bounds of a share-partition.

    Args:
        texts: those that the batches name. known: those of the state. A further one that exceeds the bounds is cut to
            its first 100 characters; if that exceeds them too, it becomes "(too many reasons)".
    Returns: the batches, which name the texts of the state, and the texts to add to these.
    """
    if all(batch.note is None for batch in batches):
        return list(batches), []
    places = {text: place for place, text in enumerate(known)}
    renamed = []
    left = MOST_REASON_BYTES - len(TOO_MANY) - sum(len(text.encode()) for text in known) if texts else 0
    for text in texts:
        kept = _kept(text, places, left)
        if kept not in places:
            places[kept] = len(places)
            left -= len(kept.encode())
        renamed.append(places[kept])
    return [_in_steps(renumbered(batch, renamed)) for batch in batches], list(places)[len(known) :]


def _kept(text: str, known: Mapping[str, int], left: int) -> str:
    """The text that stands for a reason among those that are known. `left`: the bytes that new ones may take."""
    for kept in (text, text[:SHORT_REASON]):
        if kept in known or (len(known) < MOST_REASONS - 1 and len(kept.encode()) <= left):
            return kept
    return TOO_MANY


def _in_steps(batch: StateBatch) -> StateBatch:
    note = batch.note
    if note is None or not (note.available_at_ms or note.reason):
        return batch
    until_ms = -(-note.available_at_ms // DELAY_STEP_MS) * DELAY_STEP_MS
    reason = note.reason and Given(note.reason.text, note.reason.at_ms // REASON_STEP_MS * REASON_STEP_MS)
    return structs.replace(batch, note=structs.replace(note, available_at_ms=until_ms, reason=reason))


def without_unused_texts(batches: list[StateBatch], texts: list[str]) -> tuple[list[StateBatch], list[str]]:
    """The batches with a table of the texts that one of them names."""
    notes = {id(batch.note): batch.note for batch in batches if batch.note is not None}
    used = sorted({place for note in notes.values() for place in texts_in(note)})
    if len(used) == len(texts):
        return batches, texts
    places = {place: number for number, place in enumerate(used)}
    return [renumbered(batch, places) for batch in batches], [texts[place] for place in used]

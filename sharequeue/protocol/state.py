"""The state of a share-partition: one shape for what a leader writes, what a row stores and what a read answers. Pure.

    gateway  ──── write: StateBatches ───▶  share coordinator  ── row: StateBatches ──▶  PostgreSQL
             ◀─── read: a page of it ────   combines them

Each batch is an array, in JSON between the services and in msgpack in a row. Each field is declared here:

| field | place in the array | lives until |
| --- | --- | --- |
| `first_offset`, `last_offset` | 0, 1 | the start offset passes them |
| `delivery_state`, `delivery_count` | 2, 3 | a higher count, or at the same count a higher state, replaces them |
| `note.available_at_ms` | 4.0 | the delivery count rises, or a later note replaces it |
| `note.reason` | 4.1 | the same; when the count rises it becomes the last of `note.earlier` |
| `note.forgiven` | 4.2 | the records are finished; of two numbers the larger one stays |
| `note.earlier` | 4.3 | the records are finished; the last five stay |
| `note.transaction_id` | 4.4 | the delivery count rises, or a note without it comes; it replaces no other field |

A further field comes last, with a default that means "nothing". Four files know it: this one, `share_partition/runs.py`
and `share_partition/restoring.py` of the gateway, which write and restore it, and `share_state/notes.py` of the share
coordinator, which says how long it lives.

Texts stand in a table, and a batch names them by their place: thousands of records have the same reason.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from msgspec import Meta, Struct, structs

from sharequeue.protocol.types import MAX_INT64

Number = Annotated[int, Meta(ge=0, le=MAX_INT64)]


class Given(Struct, array_like=True, frozen=True, gc=False):
    """A reason that a client gave. `text`: its place in the table. `at_ms`: when it was given; 0: that is not known."""

    text: Number
    at_ms: Number = 0


class Note(Struct, array_like=True, frozen=True, gc=False):
    """The part of a batch beside state and count; the page of this module says for how long.

    `available_at_ms`: the end of a delay, 0 without one. `reason`: why the last delivery ended. `forgiven`: how many
    deliveries were never begun. `earlier`: the reasons of earlier deliveries, the oldest first. `transaction_id`: the
    transaction on which the delivery after `delivery_count` is pending.
    """

    available_at_ms: Number = 0
    reason: Given | None = None
    forgiven: Number = 0
    earlier: tuple[Given, ...] = ()
    transaction_id: str | None = None


NOTHING: Final = Note()


class StateBatch(Struct, array_like=True, frozen=True, gc=False):
    """The state of a range of offsets, both included. Source: Kafka PersisterStateBatch."""

    first_offset: Number
    last_offset: Number
    delivery_state: Number
    delivery_count: Number
    note: Note | None = None

    def part(self, first_offset: int, last_offset: int) -> "StateBatch":
        """The same state of a part of the range."""
        return StateBatch(first_offset, last_offset, self.delivery_state, self.delivery_count, self.note)

    def continues(self, before: "StateBatch") -> bool:
        """Return whether this and the batch in front of it can be one: they touch, and say the same."""
        return (
            before.last_offset + 1 == self.first_offset
            and before.delivery_state == self.delivery_state
            and before.delivery_count == self.delivery_count
            and before.note == self.note
        )


class StateBatches(Struct, frozen=True):
    """Batches, and the table of the texts that they name."""

    batches: list[StateBatch] = []
    texts: list[str] = []


def unnamed_text(batches: Sequence[StateBatch], count: int) -> int | None:
    """The place of a text that a batch names and a table of `count` texts does not have; None if there is none."""
    for batch in batches:
        if batch.note is not None:
            for place in texts_in(batch.note):
                if not 0 <= place < count:
                    return place
    return None


def texts_in(note: Note) -> list[int]:
    """The places of the texts that a note names."""
    places = [given.text for given in note.earlier]
    if note.reason is not None:
        places.append(note.reason.text)
    return places


def renumbered(batch: StateBatch, places: Mapping[int, int] | Sequence[int]) -> StateBatch:
    """The batch for another table of texts. `places`: for each place in its own table the one in the other."""
    note = batch.note
    if note is None or not (note.reason or note.earlier):
        return batch
    reason = note.reason and Given(places[note.reason.text], note.reason.at_ms)
    earlier = tuple(Given(places[given.text], given.at_ms) for given in note.earlier)
    return structs.replace(batch, note=structs.replace(note, reason=reason, earlier=earlier))


def joined(several: Sequence[StateBatches]) -> StateBatches:
    """The batches of several writes in order, with one table of texts."""
    batches: list[StateBatch] = []
    texts: list[str] = []
    for each in several:
        places = range(len(texts), len(texts) + len(each.texts))
        batches += each.batches if not texts else [renumbered(batch, places) for batch in each.batches]
        texts += each.texts
    return StateBatches(batches, texts)

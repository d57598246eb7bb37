"""The rows of the state log, and the state that they make. Pure. Source: Kafka ShareCoordinatorShard."""

import itertools
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from sharequeue.protocol.state import StateBatch, unnamed_text
from sharequeue_share_coordinator.share_state.batch_list import updated
from sharequeue_share_coordinator.share_state.notes import without_unused_texts

SNAPSHOT: Final = 0
UPDATE: Final = 1
TOMBSTONE: Final = 2
PART: Final = 3
"""Further batches of the snapshot in front of it."""
SUPERSEDING: Final = frozenset({SNAPSHOT, TOMBSTONE})
"""The kinds of rows that make earlier rows superfluous."""

BATCHES_PER_ROW: Final = 1000
"""Of a snapshot: about 100 KiB, if each batch has five reasons."""
SMALL_BYTES: Final = 16 * 1024
"""A snapshot of at most so many bytes is due by the number of updates alone."""
MOST_UPDATES: Final = 8000
"""A load replays at most about so many updates: that takes 0.1 to 0.2 s."""


class Row(Struct, array_like=True, frozen=True, kw_only=True):
    """One row of the state log. An update holds what changed; a start offset or leader epoch of −1 is unchanged.

    `texts`: those that the batches name. Of an update: those that it adds to the table of the state. `parts`: how many
    rows of the kind PART follow a snapshot. `removed_unread`: how many offsets below the start offset left the log
    before the group got them. It never falls.
    """

    kind: int
    snapshot_epoch: int = 0
    state_epoch: int = 0
    leader_epoch: int = -1
    recorded_leader_epoch: int = -1
    start_offset: int = -1
    delivery_complete_count: int = -1
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    batches: list[StateBatch] = []
    texts: list[str] = []
    parts: int = 0
    removed_unread: int = 0


class KeyState(Struct, frozen=True):
    """The state of one share-partition.

    `recorded_leader_epoch` fences: requests below it are refused. Initialize does not lower it, Delete forgets it.
    """

    snapshot_epoch: int = -1
    state_epoch: int = -1
    leader_epoch: int = -1
    recorded_leader_epoch: int = -1
    start_offset: int = -1
    delivery_complete_count: int = -1
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0
    batches: list[StateBatch] = []
    texts: list[str] = []
    removed_unread: int = 0
    updates: int = 0
    """Updates since the last snapshot that was due."""
    rows: int = 0
    """Updates since the last snapshot."""
    update_bytes: int = 0
    """The bytes of these."""
    snapshot_bytes: int = 0
    """The bytes of the last snapshot."""
    damage: str = ""
    """Why the rows cannot be read. If it is set, the other fields mean nothing."""


_CARRIED: Final = [name for name in KeyState.__struct_fields__ if name in Row.__struct_fields__]


def carried(whole: Row | KeyState) -> dict[str, Any]:
    """The fields that a state and its snapshot share."""
    return {name: getattr(whole, name) for name in _CARRIED}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Row).decode


def encode_row(row: Row) -> tuple[Row, list[bytes]]:
    """Encode a row. A snapshot loses the texts that no batch names, and becomes several rows if it is large.

    Returns: the row as `replay` takes it, and the bytes of the rows to store, one behind the other.
    """
    if row.kind != SNAPSHOT:
        return row, [_encode(row)]
    batches, texts = without_unused_texts(row.batches, row.texts)
    chunks = [batches[start : start + BATCHES_PER_ROW] for start in range(0, len(batches), BATCHES_PER_ROW)] or [[]]
    row = structs.replace(row, batches=batches, texts=texts, parts=len(chunks) - 1)
    first = structs.replace(row, batches=chunks[0])
    return row, [_encode(first), *(_encode(Row(kind=PART, batches=chunk)) for chunk in chunks[1:])]


def decode_row(record: bytes) -> Row:
    """Raises: ValueError: the bytes are not a row."""
    return _decode(record)


def snapshot_due(state: KeyState, updates_per_snapshot: int) -> bool:
    """Return whether the next row of a state should be a snapshot.

    It is due after a number of updates, and not before these have the bytes of the last snapshot, so snapshots at most
    double what is written; but after MOST_UPDATES in any case.
    """
    if state.updates < updates_per_snapshot:
        return False
    if state.snapshot_bytes <= SMALL_BYTES or state.updates >= MOST_UPDATES:
        return True
    return state.update_bytes >= state.snapshot_bytes


def replay(
    state: KeyState | None, row: Row, updates_per_snapshot: int, size: int = 0, *, stored: bool = False
) -> KeyState | None:
    """The state after a row. None: there is no state.

    Args:
        row: a snapshot has the batches of its parts. size: the bytes of the row; 0: the number of updates decides alone
            when a snapshot is due.
        stored: the row comes from the database. It is checked, and nobody else has the list of the state.
    Raises: ValueError: a stored row contradicts itself.
    """
    if stored:
        _check(row, 0 if state is None or row.kind == SNAPSHOT else len(state.texts))
    if row.kind == TOMBSTONE:
        return None
    if row.kind == SNAPSHOT:
        return _snapshot(state, row, updates_per_snapshot, size)
    if state is None:
        return None
    start_offset = max(state.start_offset, row.start_offset)
    return structs.replace(
        state,
        leader_epoch=state.leader_epoch if row.leader_epoch == -1 else row.leader_epoch,
        recorded_leader_epoch=max(state.recorded_leader_epoch, row.leader_epoch),
        start_offset=state.start_offset if row.start_offset == -1 else row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        removed_unread=max(state.removed_unread, row.removed_unread),
        batches=updated(state.batches, row.batches, start_offset, in_place=stored),
        texts=[*state.texts, *row.texts] if row.texts else state.texts,
        updates=state.updates + 1,
        rows=state.rows + 1,
        update_bytes=state.update_bytes + size,
    )


def _check(row: Row, known: int) -> None:
    """Raises: ValueError: batches of a stored row are out of order, or name a text that is not there.
    `known`: the number of texts in front of those of the row."""
    place = unnamed_text(row.batches, known + len(row.texts))
    if place is not None:
        raise ValueError(f"a batch names the text {place} of {known + len(row.texts)}")
    for left, right in itertools.pairwise(row.batches) if row.kind == SNAPSHOT else ():
        if left.last_offset >= right.first_offset:
            raise ValueError(f"the batch {right.first_offset}-{right.last_offset} is out of place")


def _snapshot(state: KeyState | None, row: Row, updates_per_snapshot: int, size: int) -> KeyState:
    recorded = max(-1 if state is None else state.recorded_leader_epoch, row.leader_epoch, row.recorded_leader_epoch)
    due = state is not None and state.updates >= updates_per_snapshot
    return KeyState(
        **carried(row) | {"recorded_leader_epoch": recorded},
        updates=0 if state is None or due else state.updates,
        snapshot_bytes=size,
    )


def damaged_state(named: str, cause: str) -> KeyState:
    """The state of a share-partition whose rows cannot be read."""
    remedy = "repair the row, or delete the group's offsets of this topic"
    return KeyState(damage=f"the state of {named} is damaged: {cause}; {remedy}")

"""How rows and the parts of a large snapshot are written as bytes, and read. Pure.

A row is an array in msgpack, in which a range is a distance and a length, and a time counts steps of `STEP_MS`. The
parts of a large snapshot have one column for each field of a batch, compressed. Each part holds at most
`BATCHES_PER_PART` batches and earlier reasons, so it is at most 1 MiB.
"""

import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from sharequeue.protocol.state_columns import (
    STEP_MS,
    ReasonHistory,
    StateColumns,
    earlier_reasons_of,
    steps,
    time_distances,
    times_of,
)
from sharequeue.protocol.types import GivenReason, Reason, StateAnnotation, StateBatch
from sharequeue_share_coordinator.share_state.batch_list import BatchList, NotedBatch, in_blocks
from sharequeue_share_coordinator.share_state.changes import Changes, with_changes
from sharequeue_share_coordinator.share_state.columns import batches_of, columns_of, earlier_numbers
from sharequeue_share_coordinator.share_state.notes import Given, earlier_of, given
from sharequeue_share_coordinator.share_state.rows import Base, Row

BATCHES_PER_PART: Final = 10_000
COMPRESSION: Final = 1


class _Short(Struct, array_like=True, frozen=True):
    """A row that has nothing of what `_Full` adds, as most have."""

    kind: int
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    recorded_leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: list[int]
    annotations: list[int | str | None]
    times: tuple[int, ...]
    large: tuple[int, int, int, int]
    reasons: tuple[str, ...]


class _Full(_Short, array_like=True, frozen=True):
    """`pending`: for each annotation its transaction; empty if none has one. `changes`: of `encode_changes`."""

    history: ReasonHistory = ReasonHistory()
    pending: list[str | None] = []
    transactions: tuple[str, ...] = ()
    changes: bytes = b""


class _Changed(Struct, array_like=True, frozen=True):
    """`gone`: distances. `added`: None: nothing is added. `reasons`, `transactions`: first those of the parts."""

    written: int
    gone: list[int]
    added: StateColumns | None
    reasons: tuple[str, ...]
    transactions: tuple[str, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode_row = msgspec.msgpack.Decoder(_Full).decode
_decode_part = msgspec.msgpack.Decoder(StateColumns).decode
_decode_changed = msgspec.msgpack.Decoder(_Changed).decode


def encode_row(row: Row) -> bytes:
    """The bytes of a row."""
    pending = [annotation.transaction_id for annotation in row.annotations]
    if not any(pending):
        pending = []
    base = max(row.start_offset, 0)
    batches: list[int] = []
    for batch in row.state_batches:
        batches += (
            batch.first_offset - base,
            batch.last_offset - batch.first_offset,
            batch.delivery_state,
            batch.delivery_count,
        )
    annotations: list[int | str | None] = []
    for annotation in row.annotations:
        annotations += (
            annotation.first_offset - base,
            annotation.last_offset - annotation.first_offset,
            annotation.delivery_count,
            steps(annotation.available_at_ms),
            None if annotation.reason is None else str(annotation.reason),
            annotation.forgiven,
        )
    times = time_distances(
        annotation.reason_at_ms or 0 for annotation in row.annotations if annotation.reason is not None
    )
    texts: dict[str, int] = {}
    earlier = earlier_numbers([earlier_of(annotation) for annotation in row.annotations], texts)
    fields = (
        row.kind,
        row.snapshot_epoch,
        row.state_epoch,
        row.leader_epoch,
        row.recorded_leader_epoch,
        row.start_offset,
        row.delivery_complete_count,
        batches,
        annotations,
        (row.create_timestamp_ms, row.write_timestamp_ms) if row.create_timestamp_ms or row.write_timestamp_ms else (),
        (row.covers, row.snapshot_id, row.parts, row.size),
        tuple(row.reasons),
    )
    if times or earlier or pending or row.transactions or row.changes:
        history = ReasonHistory(times, earlier, list(texts))
        return _encode(_Full(*fields, history, pending, tuple(row.transactions), row.changes))
    return _encode(_Short(*fields))


def decode_row(record: bytes) -> Row:
    """Raises: ValueError: the bytes are not a row."""
    row = _decode_row(record)
    base = max(row.start_offset, 0)
    flat, noted = iter(row.batches), iter(row.annotations)
    times = iter(times_of(row.history.times, sum(text is not None for text in row.annotations[4::6])))
    texts = row.history.texts
    earlier = earlier_reasons_of(row.history.earlier, lambda number, at_ms: given(texts[number], at_ms))
    create_ms, write_ms = row.times or (0, 0)
    covers, snapshot_id, parts, size = row.large
    return Row(
        kind=row.kind,
        snapshot_epoch=row.snapshot_epoch,
        state_epoch=row.state_epoch,
        leader_epoch=row.leader_epoch,
        recorded_leader_epoch=row.recorded_leader_epoch,
        start_offset=row.start_offset,
        delivery_complete_count=row.delivery_complete_count,
        state_batches=[
            StateBatch(base + first, base + first + length, state, count)
            for first, length, state, count in zip(flat, flat, flat, flat, strict=True)
        ],
        annotations=[
            _annotation(base, fields, times, earlier.get(place, ()), row.pending[place] if row.pending else None)
            for place, fields in enumerate(zip(*[noted] * 6, strict=True))
        ],
        create_timestamp_ms=create_ms,
        write_timestamp_ms=write_ms,
        covers=covers,
        snapshot_id=snapshot_id,
        parts=parts,
        size=size,
        reasons=row.reasons,
        transactions=row.transactions,
        changes=row.changes,
    )


def _annotation(
    base: int,
    fields: Sequence[int | str | None],
    times: Iterator[int],
    earlier: tuple[Given, ...],
    transaction_id: str | None,
) -> StateAnnotation:
    first, length, count, delay, reason, forgiven = fields
    if not (
        isinstance(first, int)
        and isinstance(length, int)
        and isinstance(count, int)
        and isinstance(delay, int)
        and isinstance(forgiven, int)
        and not isinstance(reason, int)
    ):
        raise ValueError("an annotation has a field of another type")
    return StateAnnotation(
        base + first,
        base + first + length,
        count,
        delay * STEP_MS or None,
        None if reason is None else Reason(reason),
        forgiven,
        None if reason is None else next(times) * STEP_MS or None,
        tuple(GivenReason(Reason(each.text), each.at_ms) for each in earlier),
        transaction_id,
    )


def encode_parts(batches: BatchList) -> tuple[list[bytes], list[str], list[str]]:
    """The parts of a large snapshot, and the reasons and transactions that they refer to,
    in the order of the numbers."""
    reasons: dict[str, int] = {}
    transactions: dict[str, int] = {}
    parts: list[bytes] = []
    part: list[NotedBatch] = []
    room = BATCHES_PER_PART
    for batch in batches:
        weight = 1 if batch.note is None else 1 + len(batch.note.earlier)
        if weight > room:
            parts.append(_encoded_part(part, reasons, transactions))
            part, room = [], BATCHES_PER_PART
        part.append(batch)
        room -= weight
    if part:
        parts.append(_encoded_part(part, reasons, transactions))
    return parts, list(reasons), list(transactions)


def _encoded_part(batches: Sequence[NotedBatch], reasons: dict[str, int], transactions: dict[str, int]) -> bytes:
    return zlib.compress(_encode(columns_of(batches, reasons, transactions)), COMPRESSION)


def decode_parts(parts: Iterable[bytes], reasons: Sequence[str], transactions: Sequence[str] = ()) -> BatchList:
    """The batches of a large snapshot. Raises: ValueError: the bytes are no parts, or refer to no reason."""
    batches: list[NotedBatch] = []
    for data in parts:
        try:
            batches += batches_of(_decode_part(zlib.decompress(data)), reasons, transactions)
        except (zlib.error, IndexError, StopIteration) as fault:
            raise ValueError(f"a part of the snapshot cannot be read: {fault!r}") from fault
    return in_blocks(batches)


def encode_changes(changes: Changes, base: Base) -> tuple[bytes, list[str]]:
    """What has changed since the parts of `base` were stored, and the reasons that it and the parts refer to."""
    reasons = {text: number for number, text in enumerate(base.reasons)}
    transactions = {name: number for number, name in enumerate(base.transactions)}
    gone = [after - before for before, after in itertools.pairwise((0, *changes.gone))]
    added = columns_of(changes.added, reasons, transactions) if changes.added else None
    changed = _Changed(base.written, gone, added, tuple(reasons), tuple(transactions))
    return zlib.compress(_encode(changed), COMPRESSION), list(reasons)


def decode_large(row: Row, parts: Sequence[bytes]) -> tuple[BatchList, Base]:
    """Decode a large snapshot. Returns: its batches, and the content of its parts.

    Raises: ValueError: a part is missing, the bytes are no parts or no changes, or they refer to no reason.
    """
    if len(parts) != row.parts:
        raise ValueError(f"{row.parts} parts belong to it, but {len(parts)} are stored")
    if not row.changes:
        batches = decode_parts(parts, row.reasons, row.transactions)
        return batches, Base(batches, row.snapshot_id, row.parts, row.size, tuple(row.reasons), tuple(row.transactions))
    added: list[NotedBatch] = []
    try:
        changed = _decode_changed(zlib.decompress(row.changes))
        if changed.added is not None:
            added = batches_of(changed.added, changed.reasons, changed.transactions)
    except (zlib.error, IndexError, StopIteration) as fault:
        raise ValueError(f"the changes since the snapshot cannot be read: {fault!r}") from fault
    whole = decode_parts(parts, changed.reasons, changed.transactions)
    changes = Changes(list(itertools.accumulate(changed.gone)), added)
    base = Base(
        whole, row.snapshot_id, row.parts, row.size, changed.reasons, changed.transactions, written=changed.written
    )
    return with_changes(whole.from_start(row.start_offset), changes), base

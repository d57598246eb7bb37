"""How rows and the parts of a large snapshot are written as bytes, and read. Pure.

Two formats of a row are read:

    1   a map of Row's fields, as msgpack: rows of earlier releases, and new ones while an instance runs that reads no other
    2   MARK, then an array, as msgpack. MARK is no msgpack, so a reader of format 1 refuses the row

In format 2 a range is a distance and a length, and a time counts steps of `STEP_MS`. The parts of a large snapshot have one
column for each field of a batch, compressed. Each part holds at most `BATCHES_PER_PART` batches, so it is at most 1 MiB.
"""

import itertools
import sys
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from sharequeue.protocol.codec import from_builtin, to_builtin
from sharequeue.protocol.types import Reason, StateAnnotation, StateBatch
from sharequeue_share_coordinator.share_state.batch_list import BatchList, NotedBatch, in_blocks
from sharequeue_share_coordinator.share_state.notes import STEP_MS, Note, steps
from sharequeue_share_coordinator.share_state.rows import Row

ROW_FORMAT: Final = 2
MARK: Final = b"\xc1\x02"
BATCHES_PER_PART: Final = 10_000
COMPRESSION: Final = 1
STATES: Final = 8
"""A batch's count and state are one number: count × STATES + state."""


class _CompactRow(Struct, array_like=True, frozen=True):
    kind: int
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    recorded_leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: list[int]
    annotations: list[int | str | None]
    times: tuple[int, ...] = ()
    large: tuple[int, int, int, int] = (0, 0, 0, 0)
    reasons: tuple[str, ...] = ()


class _Part(Struct, array_like=True, frozen=True):
    """One entry a batch in each column. `noted`: 0 without a note; the other columns have an entry for each 1 alone."""

    base_offset: int
    base_step: int
    gaps: list[int]
    lengths: list[int]
    states: list[int]
    noted: list[int]
    delays: list[int]
    reasons: list[int]
    forgiven: list[int]


_encode = msgspec.msgpack.Encoder().encode
_decode_map = msgspec.msgpack.Decoder(Row, dec_hook=from_builtin).decode
_decode_compact = msgspec.msgpack.Decoder(_CompactRow).decode
_decode_part = msgspec.msgpack.Decoder(_Part).decode
_encode_map = msgspec.msgpack.Encoder(enc_hook=to_builtin).encode


def encode_row(row: Row, *, compact: bool = True) -> bytes:
    """The bytes of a row. `compact`: in format 2, which is the only one for a large snapshot."""
    if not compact:
        return _encode_map(row)
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
    return MARK + _encode(
        _CompactRow(
            row.kind,
            row.snapshot_epoch,
            row.state_epoch,
            row.leader_epoch,
            row.recorded_leader_epoch,
            row.start_offset,
            row.delivery_complete_count,
            batches,
            annotations,
            (row.create_timestamp_ms, row.write_timestamp_ms)
            if row.create_timestamp_ms or row.write_timestamp_ms
            else (),
            (row.covers, row.snapshot_id, row.parts, row.size),
            tuple(row.reasons),
        )
    )


def decode_row(record: bytes) -> Row:
    """Raises: ValueError: the bytes are no row of a known format."""
    if not record.startswith(MARK[:1]):
        return _decode_map(record)
    if not record.startswith(MARK):
        raise ValueError(f"the row has the format {record[1:2].hex()}, which a later release writes")
    row = _decode_compact(record[len(MARK) :])
    base = max(row.start_offset, 0)
    flat, noted = iter(row.batches), iter(row.annotations)
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
        annotations=[_annotation(base, *fields) for fields in zip(*[noted] * 6, strict=True)],
        create_timestamp_ms=create_ms,
        write_timestamp_ms=write_ms,
        covers=covers,
        snapshot_id=snapshot_id,
        parts=parts,
        size=size,
        reasons=row.reasons,
    )


def _annotation(
    base: int,
    first: int | str | None,
    length: int | str | None,
    count: int | str | None,
    delay: int | str | None,
    reason: int | str | None,
    forgiven: int | str | None,
) -> StateAnnotation:
    if not (
        isinstance(first, int)
        and isinstance(length, int)
        and isinstance(count, int)
        and isinstance(delay, int)
        and isinstance(forgiven, int)
        and not isinstance(reason, int)
    ):
        raise ValueError("an annotation has a field of another type")
    delayed_to_ms = delay * STEP_MS or None
    text = None if reason is None else Reason(reason)
    return StateAnnotation(base + first, base + first + length, count, delayed_to_ms, text, forgiven)


def encode_parts(batches: BatchList) -> tuple[list[bytes], list[str]]:
    """The parts of a large snapshot, and the reasons that they refer to, in the order of the numbers."""
    reasons: dict[str, int] = {}
    every = list(batches)
    starts = range(0, len(every), BATCHES_PER_PART)
    return [_encoded_part(every[start : start + BATCHES_PER_PART], reasons) for start in starts], list(reasons)


def _encoded_part(batches: Sequence[NotedBatch], reasons: dict[str, int]) -> bytes:
    notes = [batch.note for batch in batches if batch.note is not None]
    delayed = [steps(note.available_at_ms) for note in notes]
    base_step = min((delay for delay in delayed if delay), default=0) - 1
    base_offset = batches[0].first_offset
    gaps = [0, *(after.first_offset - before.last_offset for before, after in itertools.pairwise(batches))]
    part = _Part(
        base_offset,
        base_step,
        gaps,
        [batch.last_offset - batch.first_offset for batch in batches],
        [batch.delivery_count * STATES + batch.delivery_state for batch in batches],
        [int(batch.note is not None) for batch in batches],
        [delay and delay - base_step for delay in delayed],
        [0 if note.reason is None else reasons.setdefault(note.reason, len(reasons)) + 1 for note in notes],
        [note.forgiven for note in notes],
    )
    return zlib.compress(_encode(part), COMPRESSION)


def decode_parts(parts: Iterable[bytes], reasons: Sequence[str]) -> BatchList:
    """The batches of a large snapshot. Raises: ValueError: the bytes are no parts, or refer to no reason."""
    texts: list[str | None] = [None, *(sys.intern(reason) for reason in reasons)]
    batches: list[NotedBatch] = []
    for data in parts:
        try:
            part = _decode_part(zlib.decompress(data))
            notes = iter(
                Note((delay + part.base_step) * STEP_MS if delay else 0, texts[reason], forgiven)
                for delay, reason, forgiven in zip(part.delays, part.reasons, part.forgiven, strict=True)
            )
            last = part.base_offset
            for gap, length, state, noted in zip(part.gaps, part.lengths, part.states, part.noted, strict=True):
                first = last + gap
                last = first + length if length else first
                note = next(notes) if noted else None
                batches.append(NotedBatch(first, last, state % STATES, state // STATES, note))
        except (zlib.error, IndexError, StopIteration) as fault:
            raise ValueError(f"a part of the snapshot cannot be read: {fault!r}") from fault
    return in_blocks(batches)

"""Rows and the parts of large snapshots as bytes: what comes back is what went in, within the bounds of size."""

import random
import sys
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from sharequeue_share_coordinator.share_state import shard
from sharequeue_share_coordinator.share_state.batch_list import BatchList, NotedBatch, in_blocks
from sharequeue_share_coordinator.share_state.columns import page_from
from sharequeue_share_coordinator.share_state.notes import (
    MOST_REASON_BYTES,
    MOST_REASONS,
    SHORT_REASON,
    TOO_MANY,
    Given,
    bounded,
    make_note,
)
from sharequeue_share_coordinator.share_state.notes import given as given_reason
from sharequeue_share_coordinator.share_state.row_format import (
    decode_parts,
    decode_row,
    encode_parts,
    encode_row,
)
from sharequeue_share_coordinator.share_state.rows import (
    LARGE_SNAPSHOT,
    SMALL_BYTES,
    SNAPSHOT,
    UPDATE,
    Base,
    KeyState,
    Row,
    replay,
    restored,
    snapshot_due,
)

from sharequeue.protocol.state_columns import StateColumns, outcome_of
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, GivenReason, Reason, StateAnnotation, StateBatch

MIB = 1 << 20
NOW_MS = 1_790_000_000_000
offsets = st.integers(0, MAX_INT64 // 4)
counts = st.integers(0, MAX_INT32)
reason_times = st.just(0) | st.integers(1, NOW_MS // 100).map(lambda step: 100 * step)
given_reasons = st.builds(given_reason, st.sampled_from("abc"), reason_times)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    start = draw(st.sampled_from((-1, 0, 7, 1 << 40)))
    batches = draw(st.lists(st.tuples(offsets, offsets, st.integers(0, 4), counts), max_size=5))
    notes = draw(
        st.lists(
            st.tuples(
                offsets,
                offsets,
                counts,
                st.none() | st.integers(1, 1 << 50),
                st.none() | st.text().map(Reason),
                st.integers(0, 99),
                reason_times,
                st.lists(st.builds(GivenReason, st.text().map(Reason), reason_times), max_size=5).map(tuple),
                st.none() | st.sampled_from(("t-1", "t-2")),
            ),
            max_size=5,
        )
    )
    return Row(
        kind=draw(st.sampled_from((SNAPSHOT, UPDATE))),
        snapshot_epoch=draw(counts),
        state_epoch=draw(counts),
        leader_epoch=draw(st.integers(-1, MAX_INT32)),
        recorded_leader_epoch=draw(st.integers(-1, MAX_INT32)),
        start_offset=start,
        delivery_complete_count=draw(st.integers(-1, MAX_INT32)),
        state_batches=[StateBatch(first, first + length, *rest) for first, length, *rest in batches],
        annotations=[
            StateAnnotation(
                first,
                first + length,
                count,
                delay and 100 * delay,
                reason,
                forgiven,
                None if reason is None else at_ms or None,
                earlier,
                transaction_id,
            )
            for first, length, count, delay, reason, forgiven, at_ms, earlier, transaction_id in notes
        ],
        create_timestamp_ms=draw(st.integers(0, NOW_MS)),
        write_timestamp_ms=draw(st.integers(0, NOW_MS)),
    )


@given(rows())
def test_a_row_comes_back_as_it_went_in(row: Row) -> None:
    assert decode_row(encode_row(row)) == row


def test_an_update_of_one_record_takes_few_bytes() -> None:
    """With the names of all fields it would take 290."""
    update = Row(
        kind=UPDATE,
        snapshot_epoch=3,
        start_offset=1_000_000,
        delivery_complete_count=90,
        state_batches=[StateBatch(1_000_500, 1_000_500, 2, 1)],
    )
    assert len(encode_row(update)) < 40


def test_reasons_cost_nothing_where_there_are_none() -> None:
    batches, note = [StateBatch(7, 7, 0, 1)], StateAnnotation(7, 7, 1, NOW_MS, None, 1)
    plain = encode_row(Row(kind=UPDATE, state_batches=batches, annotations=[note]))
    assert len(plain) == 35
    times = [structs.replace(note, first_offset=n, last_offset=n, reason=Reason("no")) for n in range(1000)]
    without = len(encode_row(Row(kind=UPDATE, annotations=times)))
    times = [structs.replace(note, reason_at_ms=NOW_MS) for note in times]
    assert len(encode_row(Row(kind=UPDATE, annotations=times))) <= without + 1000 + 20


@pytest.mark.parametrize(
    "record", [b"", b"\x93\x01\x02", b"\xc1", b"\x81\xa4kind\x02", encode_row(Row(kind=UPDATE))[:-1]]
)
def test_bytes_that_are_no_row_are_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_row(record)


outcomes = st.builds(outcome_of, st.sampled_from((0, 2, 3, 4)), st.integers(0, 9))


@st.composite
def lists(draw: st.DrawFn) -> BatchList:
    found, offset = [], draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 40))):
        offset += draw(st.integers(2, 1 << 33))
        last = offset + draw(st.integers(0, 1 << 33))
        note = draw(
            st.none()
            | st.builds(
                make_note,
                st.just(0) | st.integers(1, 1 << 40).map(lambda step: 100 * step),
                st.none() | given_reasons,
                st.integers(0, 9),
                st.lists(given_reasons, max_size=5).map(tuple),
                st.none() | st.sampled_from(("t-1", "t-2")),
            )
        )
        found.append(NotedBatch(offset, last, draw(outcomes), note))
        offset = last
    return in_blocks(found)


@given(lists())
def test_parts_come_back_as_they_went_in(batches: BatchList) -> None:
    parts, reasons, transactions = encode_parts(batches)
    assert decode_parts(parts, reasons, transactions) == batches


FLAT = msgspec.msgpack.Decoder(StateColumns).decode


def with_fields(part: bytes, **fields: Any) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(structs.replace(FLAT(zlib.decompress(part)), **fields)))


HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "not compressed": (zlib.decompress, "a part of the snapshot cannot be read"),
    "cut off": (lambda part: part[:-9], "a part of the snapshot cannot be read"),
    "no columns": (lambda _: zlib.compress(msgspec.msgpack.encode(["a"])), "Expected `array`"),
    "a text for a number": (
        lambda _: zlib.compress(msgspec.msgpack.encode([0, -1, ["a"], *[[0]] * 6])),
        "Expected `int`",
    ),
    "batches overlap": (lambda part: with_fields(part, gaps=[0, 0, 2]), "begins before the one before it ends"),
    "a column is short": (lambda part: with_fields(part, lengths=[0]), "3 gaps, 1 lengths"),
    "a note is missing": (lambda part: with_fields(part, forgiven=[]), "3 batches have notes"),
    "a text that is not there": (lambda part: with_fields(part, reasons=[300, 1, 1]), "cannot be read"),
    "a text before the first": (lambda part: with_fields(part, reasons=[-1, 1, 1]), "is negative"),
    "offsets without end": (lambda part: with_fields(part, base_offset=MAX_INT64), "which is no offset"),
}


@pytest.mark.parametrize(("spoil", "cause"), HOSTILE.values(), ids=HOSTILE)
def test_a_part_that_contradicts_itself_is_refused(spoil: Callable[[bytes], bytes], cause: str) -> None:
    (part,), reasons, _ = encode_parts(delayed(3, random.Random(7)))
    assert len(decode_parts([part], reasons)) == 3
    with pytest.raises(ValueError, match=cause):
        decode_parts([spoil(part)], reasons)


def test_a_batch_is_decoded_without_a_call() -> None:
    """A load is bounded by the CPU of what it does for each of 200,000 batches."""
    parts, reasons, _ = encode_parts(delayed(10_000, random.Random(7)))
    calls = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        batches = decode_parts(parts, reasons)
        page_from(batches, 0, 1 << 40)
    finally:
        sys.setprofile(None)
    assert len(batches) == 10_000
    assert calls < 12_000, "a page takes a batch out of its block; some for each different reason"


def delayed(count: int, rng: random.Random) -> BatchList:
    reasons = [f"{number:03} the warehouse did not answer in time" for number in range(100)]
    return in_blocks(
        [
            NotedBatch(
                2 * n,
                2 * n,
                outcome_of(0, 1),
                make_note(
                    NOW_MS + 100 * rng.randrange(432_000), given_reason(rng.choice(reasons), NOW_MS + n // 2000 * 900)
                ),
            )
            for n in range(count)
        ]
    )


def test_a_snapshot_of_100_000_delayed_records_is_small() -> None:
    """It was 19.7 MB."""
    parts, reasons, _ = encode_parts(delayed(100_000, random.Random(7)))
    assert len(reasons) == 100
    assert sum(map(len, parts)) < MIB


@pytest.mark.parametrize(
    ("earlier", "number"),
    [(lambda _: (), 2), (lambda reason: tuple(reason() for _ in range(5)), 13)],
    ids=["no-history", "five-earlier-reasons"],
)
def test_no_part_is_larger_than_a_mebibyte(
    earlier: Callable[[Callable[[], Given]], tuple[Given, ...]], number: int
) -> None:
    """Values that do not compress, each as long as it can be."""
    rng = random.Random(7)
    found, offset = [], 0

    def reason() -> Given:
        return given_reason(str(rng.randrange(256)), 100 * rng.randrange(1 << 52))

    for _ in range(20_000):
        offset += rng.randrange(1 << 46)
        last = offset + rng.randrange(1 << 46)
        note = make_note(100 * rng.randrange(1 << 52), reason(), rng.randrange(MAX_INT32), earlier(reason))
        found.append(NotedBatch(offset, last, outcome_of(0, rng.randrange(MAX_INT32)), note))
        offset = last + 1
    parts, *_ = encode_parts(in_blocks(found))
    assert len(parts) == number
    assert all(len(part) < MIB for part in parts)


# Reasons


def noted(*reasons: str) -> list[StateAnnotation]:
    return [StateAnnotation(n, n, 1, reason=Reason(reason)) for n, reason in enumerate(reasons)]


def kept(known: frozenset[str], *reasons: str) -> list[str]:
    return [str(annotation.reason) for annotation in bounded(noted(*reasons), known)]


def test_reasons_of_a_share_partition_are_bounded_in_number() -> None:
    known = frozenset(map(str, range(MOST_REASONS - 2)))
    assert kept(known, "7", "one more", "too much", "one more", "8") == ["7", "one more", TOO_MANY, "one more", "8"]


def test_reasons_of_a_share_partition_are_bounded_in_bytes() -> None:
    long = ["é" * 500 + str(number) for number in range(200)]
    texts = kept(frozenset(), *long)
    short = "é" * SHORT_REASON
    assert texts[:60] == long[:60]
    assert set(texts[66:]) <= {short, TOO_MANY}
    assert short in texts
    assert sum(len(text.encode()) for text in set(texts) if text) <= MOST_REASON_BYTES


def test_the_end_of_a_delay_is_kept_in_steps_and_never_early() -> None:
    for given_ms, kept_ms in ((None, None), (1, 100), (100, 100), (101, 200), (NOW_MS + 1, NOW_MS + 100)):
        (annotation,) = bounded([StateAnnotation(0, 0, 1, given_ms)], frozenset())
        assert annotation.available_at_ms == kept_ms


# When a snapshot is due


def state_of(batches: BatchList) -> KeyState:
    row = Row(kind=LARGE_SNAPSHOT, snapshot_epoch=1, state_epoch=1, start_offset=0, delivery_complete_count=0)
    return restored(row, batches, Base(batches, 1, 1, 0, (), ()))


def test_with_kafkas_defaults_the_number_of_updates_decides_alone() -> None:
    row = Row(kind=SNAPSHOT, start_offset=0, delivery_complete_count=0)
    for size, due in ((0, True), (SMALL_BYTES, True), (SMALL_BYTES + 1, False)):
        state = replay(None, row, 2, size)
        for _ in range(2):
            state = replay(state, Row(kind=UPDATE, delivery_complete_count=0), 2, 0 if size == 0 else 30)
        assert state is not None
        assert snapshot_due(state, 2) is due


def test_a_large_snapshot_does_not_count_for_a_state_that_was_replaced() -> None:
    begun = state_of(delayed(2000, random.Random(7)))
    parts, reasons, transactions = encode_parts(begun.batches)
    row = shard.large_snapshot(begun, 9, 1, parts, reasons, transactions)
    later = replay(begun, Row(kind=UPDATE, delivery_complete_count=0), 500, 30)
    assert shard.publish(later, begun, row, NOW_MS).row is not None
    assert shard.publish(None, begun, row, NOW_MS).row is None
    for other in (
        Row(kind=SNAPSHOT, snapshot_epoch=2, state_epoch=1, start_offset=0, delivery_complete_count=0),
        Row(kind=SNAPSHOT, snapshot_epoch=1, state_epoch=2, start_offset=0, delivery_complete_count=0),
        Row(kind=SNAPSHOT, snapshot_epoch=1, state_epoch=1, start_offset=0, create_timestamp_ms=NOW_MS),
    ):
        assert shard.publish(replay(None, other, 500), begun, row, NOW_MS).row is None


def test_updates_made_while_a_large_snapshot_was_written_count_for_the_next_one() -> None:
    begun = structs.replace(state_of(delayed(2000, random.Random(7))), updates=700, update_bytes=9000, rows=700)
    parts, reasons, transactions = encode_parts(begun.batches)
    later = replay(begun, Row(kind=UPDATE, delivery_complete_count=0), 500, 30)
    row = shard.publish(later, begun, shard.large_snapshot(begun, 9, 1, parts, reasons, transactions), NOW_MS).row
    assert row is not None
    after = replay(later, row, 500, 1)
    assert after is not None
    assert (after.updates, after.update_bytes, after.rows) == (1, 30, 1)


def test_many_updates_make_a_snapshot_due_at_half_its_bytes() -> None:
    state = structs.replace(state_of(BatchList()), snapshot_bytes=MIB, update_bytes=MIB // 2)
    due = [snapshot_due(structs.replace(state, updates=updates), 500) for updates in (499, 19_999, 20_000)]
    assert due == [False, False, True]
    assert not snapshot_due(structs.replace(state, updates=20_000, update_bytes=MIB // 2 - 1), 500)
    assert snapshot_due(structs.replace(state, updates=500, update_bytes=2 * MIB), 500)

"""Rows as bytes: what comes back is what went in, in rows of bounded size; texts and times within their bounds."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from sharequeue_share_coordinator.share_state.notes import (
    MOST_REASON_BYTES,
    MOST_REASONS,
    SHORT_REASON,
    TOO_MANY,
    taken,
)
from sharequeue_share_coordinator.share_state.rows import (
    BATCHES_PER_ROW,
    MOST_UPDATES,
    PART,
    SMALL_BYTES,
    SNAPSHOT,
    UPDATE,
    KeyState,
    Row,
    decode_row,
    encode_row,
    snapshot_due,
)
from sharequeue_share_coordinator.store import LoadedKey, LoadedRow, UnreadableRow, state_of

from sharequeue.protocol.state import Given, Note, StateBatch
from sharequeue.protocol.types import MAX_INT32, MAX_INT64
from tests.core.states import StateAnnotation, written

MIB = 1 << 20
NOW_MS = 1_790_000_000_000
offsets = st.integers(0, MAX_INT64)
givens = st.builds(Given, st.integers(0, 2), st.integers(0, NOW_MS))
notes = st.builds(
    Note,
    st.integers(0, NOW_MS),
    st.none() | givens,
    st.integers(0, 9),
    st.tuples() | st.tuples(givens),
    st.none() | st.just("t"),
)
batches = st.builds(StateBatch, offsets, offsets, st.integers(0, 4), st.integers(0, MAX_INT32), st.none() | notes)


def stored(row: Row) -> list[LoadedRow]:
    kept, records = encode_row(row)
    return [LoadedRow(seq, PART if seq else kept.kind, record) for seq, record in enumerate(records)]


@given(st.lists(batches, max_size=5), st.lists(st.text(), max_size=3))
def test_an_update_comes_back_as_it_went_in(of: list[StateBatch], texts: list[str]) -> None:
    row = Row(kind=UPDATE, snapshot_epoch=3, leader_epoch=7, start_offset=9, batches=of, texts=texts)
    (record,) = encode_row(row)[1]
    assert decode_row(record) == row


def test_an_update_of_one_record_takes_few_bytes() -> None:
    row = Row(kind=UPDATE, snapshot_epoch=12, start_offset=1_000_000, batches=[StateBatch(1_000_500, 1_000_500, 2, 1)])
    (record,) = encode_row(row)[1]
    assert len(record) < 50


@pytest.mark.parametrize("record", [b"", b"\x90", b"\x91\xa1x", b"rubbish", msgspec.msgpack.encode([0] * 10 + ["x"])])
def test_bytes_that_are_no_row_are_refused(record: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_row(record)


def noted_batches(count: int) -> list[StateBatch]:
    """Every second record, each with five reasons of 1,024 characters and another time."""
    return [
        StateBatch(
            2 * n, 2 * n, 0, 6, Note(NOW_MS + n, Given(n % 60, n), 0, tuple(Given((n + k) % 60, n) for k in range(5)))
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, BATCHES_PER_ROW, BATCHES_PER_ROW + 1, 10 * BATCHES_PER_ROW])
def test_a_snapshot_is_rows_of_bounded_size_and_comes_back_whole(count: int) -> None:
    texts = [f"{number:<1024}" for number in range(60)]
    row = Row(
        kind=SNAPSHOT, state_epoch=1, start_offset=0, batches=noted_batches(count), texts=texts if count > 60 else ()
    )
    if count == 1:
        row = structs.replace(row, batches=[StateBatch(0, 0, 0, 1)])
    rows = stored(row)
    assert len(rows) == max(1, -(-count // BATCHES_PER_ROW))
    assert max(len(each.record) for each in rows) < 256 * 1024
    state = state_of(LoadedKey(1, rows), 500)
    assert state is not None
    assert (state.batches, list(state.texts)) == (row.batches, list(row.texts))
    assert state.snapshot_bytes == sum(len(each.record) for each in rows)


def test_a_snapshot_without_all_its_parts_is_damage_that_is_named() -> None:
    rows = stored(Row(kind=SNAPSHOT, batches=[StateBatch(2 * n, 2 * n, 2, 1) for n in range(3 * BATCHES_PER_ROW)]))
    for damaged in (rows[:-1], [rows[0], *rows[2:]]):
        with pytest.raises(UnreadableRow, match="row 0 cannot be read: 2 parts belong to it"):
            state_of(LoadedKey(1, damaged), 500)


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        (Row(kind=PART), "it has the kind 3 and 0 parts"),
        (Row(kind=UPDATE, parts=1), "it has the kind 1 and 1 parts"),
        (Row(kind=SNAPSHOT, parts=-1), "it has the kind 0 and -1 parts"),
        (Row(kind=UPDATE, batches=[StateBatch(0, 0, 0, 1, Note(reason=Given(1)))], texts=["a"]), "the text 1 of 1"),
        (
            Row(kind=SNAPSHOT, batches=[StateBatch(9, 9, 0, 1), StateBatch(0, 20, 0, 1)]),
            "the batch 0-20 is out of place",
        ),
    ],
)
def test_a_row_that_contradicts_itself_is_damage_that_is_named(row: Row, cause: str) -> None:
    rows = [*stored(Row(kind=SNAPSHOT)), LoadedRow(7, row.kind, msgspec.msgpack.encode(row))]
    with pytest.raises(UnreadableRow, match=f"row 7 cannot be read: .*{cause}"):
        state_of(LoadedKey(1, rows), 500)


def test_a_negative_number_in_a_row_is_no_row() -> None:
    record = msgspec.msgpack.encode(Row(kind=UPDATE, batches=[StateBatch(0, 0, 0, 1, Note(reason=Given(-1)))]))
    with pytest.raises(ValueError, match="Expected `int` >= 0"):
        decode_row(record)


def test_rows_in_front_of_a_snapshot_mean_nothing() -> None:
    rows = [LoadedRow(-1, UPDATE, b"rubbish"), *stored(Row(kind=SNAPSHOT, start_offset=7))]
    state = state_of(LoadedKey(1, rows), 500)
    assert state is not None
    assert state.start_offset == 7


def test_a_snapshot_forgets_the_texts_that_no_batch_names() -> None:
    given = Given(2, 100)
    batch = StateBatch(0, 0, 0, 1, Note(reason=given, earlier=(Given(0, 50), given)))
    kept, (record,) = encode_row(Row(kind=SNAPSHOT, batches=[batch], texts=["a", "gone", "b"]))
    renamed = Note(reason=Given(1, 100), earlier=(Given(0, 50), Given(1, 100)))
    assert (kept.batches, kept.texts) == ([StateBatch(0, 0, 0, 1, renamed)], ["a", "b"])
    assert decode_row(record) == kept


# Bounds


def kept(known: list[str], *reasons: str) -> list[str]:
    given = StateAnnotation(0, 0, 1)
    write = written(
        [], [given._replace(first_offset=n, last_offset=n, reason=reason) for n, reason in enumerate(reasons)]
    )  # type: ignore[arg-type]
    found, new = taken(write.batches, write.texts, known)
    table = [*known, *new]
    return [
        table[batch.note.reason.text] for batch in found if batch.note is not None and batch.note.reason is not None
    ]


def test_reasons_of_a_share_partition_are_bounded_in_number() -> None:
    known = [str(number) for number in range(MOST_REASONS - 2)]
    assert kept(known, "7", "one more", "too much", "one more", "8") == ["7", "one more", TOO_MANY, "one more", "8"]


def test_reasons_of_a_share_partition_are_bounded_in_bytes() -> None:
    long = ["é" * 500 + str(number) for number in range(200)]
    texts = kept([], *long)
    short = "é" * SHORT_REASON
    assert texts[:60] == long[:60]
    assert set(texts[66:]) <= {short, TOO_MANY}
    assert short in texts
    assert sum(len(text.encode()) for text in set(texts)) <= MOST_REASON_BYTES


def test_the_end_of_a_delay_is_kept_in_steps_and_never_early() -> None:
    for given_ms, kept_ms in ((0, 0), (1, 100), (100, 100), (101, 200), (NOW_MS + 1, NOW_MS + 100)):
        ((batch,), _) = taken([StateBatch(0, 0, 0, 1, Note(given_ms))], [], [])
        assert batch.note == Note(kept_ms)


# When a snapshot is due


def test_a_snapshot_is_due_by_updates_and_by_bytes() -> None:
    small = KeyState(snapshot_bytes=SMALL_BYTES)
    assert [snapshot_due(structs.replace(small, updates=updates), 500) for updates in (499, 500)] == [False, True]
    large = KeyState(snapshot_bytes=MIB, updates=600)
    assert [snapshot_due(structs.replace(large, update_bytes=size), 500) for size in (MIB - 1, MIB)] == [
        False,
        True,
    ]
    assert snapshot_due(structs.replace(large, updates=MOST_UPDATES), 500)


def test_with_kafkas_defaults_the_number_of_updates_decides_alone() -> None:
    batches = [StateBatch(2 * n, 2 * n, 2, 1) for n in range(5 * BATCHES_PER_ROW)]
    rows = stored(Row(kind=SNAPSHOT, start_offset=0, batches=batches))
    rows += [
        LoadedRow(100 + n, UPDATE, encode_row(Row(kind=UPDATE, delivery_complete_count=n))[1][0]) for n in range(3)
    ]
    found = {sized: state_of(LoadedKey(1, rows), 3, sized=sized) for sized in (True, False)}
    assert {sized: state is not None and snapshot_due(state, 3) for sized, state in found.items()} == {
        True: False,
        False: True,
    }

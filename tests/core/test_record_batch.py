"""Record batches: encoded records are decoded from slices that are JSON, dense or with gaps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.record_log.record_batch import CorruptBatch, RecordBatch

from tests.core.sparse_batches import sparse

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def tail(value: object) -> bytes:
    return b"," + json.dumps({"timestamp_ms": 7, "value": value}).encode()[1:]


def record(offset: int, value: object) -> dict[str, object]:
    return {"offset": offset, "timestamp_ms": 7, "value": value}


def decoded(batch: RecordBatch, first: int, last: int) -> list[object]:
    found: list[object] = json.loads(b"[" + batch.slice(first, last) + b"]")
    return found


def reread(batch: RecordBatch) -> RecordBatch:
    return RecordBatch.decode(
        batch.base_offset, batch.last_offset, batch.max_timestamp_ms, batch.stored, batch.transaction_id
    )


@given(st.integers(0, 2**62), st.lists(values, min_size=1, max_size=12), st.data())
def test_a_dense_batch_comes_back_in_any_slice(base: int, sent: list[object], data: st.DataObject) -> None:
    written = RecordBatch.encode(base, [tail(value) for value in sent], 7)
    expected = [record(base + index, value) for index, value in enumerate(sent)]
    first = data.draw(st.integers(base - 2, base + len(sent) + 1))
    last = data.draw(st.integers(first - 1, base + len(sent) + 1))
    for batch in (written, reread(written)):
        assert batch.tails() == [tail(value) for value in sent]
        assert (batch.base_offset, batch.last_offset) == (base, base + len(sent) - 1)
        assert (batch.record_count, batch.max_timestamp_ms) == (len(sent), 7)
        assert decoded(batch, base, batch.last_offset) == expected
        assert decoded(batch, first, last) == [r for r in expected if first <= r["offset"] <= last]  # type: ignore[operator]
        assert batch.absent(base, batch.last_offset) == []


@given(st.integers(0, 2**62), st.lists(values, min_size=1, max_size=12), st.data())
def test_a_batch_with_gaps_keeps_its_extent_and_names_the_gaps(
    base: int, sent: list[object], data: st.DataObject
) -> None:
    dense = RecordBatch.encode(base, [tail(value) for value in sent], 7)
    kept = sorted(data.draw(st.sets(st.integers(base, dense.last_offset))))
    first = data.draw(st.integers(base, dense.last_offset))
    last = data.draw(st.integers(first, dense.last_offset))
    written = sparse(dense, kept)
    for batch in (written, reread(written), sparse(reread(written), kept)):
        assert (batch.base_offset, batch.last_offset) == (base, dense.last_offset)
        assert batch.record_count == len(kept)
        wanted = [offset for offset in kept if first <= offset <= last]
        assert decoded(batch, first, last) == [record(offset, sent[offset - base]) for offset in wanted]
        gone = {offset for low, high in batch.absent(first, last) for offset in range(low, high + 1)}
        assert gone == set(range(first, last + 1)) - set(kept)
        assert all(low <= high for low, high in batch.absent(first, last))


@given(st.lists(values, min_size=1, max_size=12), st.data())
def test_the_size_of_a_slice_is_known_without_slicing(sent: list[object], data: st.DataObject) -> None:
    batch = RecordBatch.encode(40, [tail(value) for value in sent], 7)
    if data.draw(st.booleans()):
        batch = sparse(batch, sorted(data.draw(st.sets(st.integers(40, batch.last_offset)))))
    first = data.draw(st.integers(38, batch.last_offset + 2))
    last = data.draw(st.integers(first - 1, batch.last_offset + 2))
    piece = batch.slice(first, last)
    assert batch.view(first, last) == piece
    assert batch.size_of(first, last) == (len(piece) + 1 if piece else 0)
    assert batch.size == len(batch.slice(batch.base_offset, batch.last_offset))


def test_slices_of_neighbours_join_to_one_json_array() -> None:
    batches = [RecordBatch.encode(base, [tail(base), tail(base + 1)], 7) for base in (10, 12, 14)]
    joined = b",".join(batch.slice(11, 14) for batch in batches)
    assert [r["offset"] for r in json.loads(b"[" + joined + b"]")] == [11, 12, 13, 14]


def test_the_bytes_of_a_value_are_kept() -> None:
    sent = [b',"value":1.10}', b',"value":12345678901234567890123}', b',"value":1e400}', b',"value":"\\u00e9\xc3\xa9"}']
    batch = reread(RecordBatch.encode(5, sent, 0))
    for index, piece in enumerate(sent):
        assert batch.slice(5 + index, 5 + index) == b'{"offset":%d%b' % (5 + index, piece)


def test_the_stored_form_does_not_change() -> None:
    dense = RecordBatch.encode(7, [b',"value":1}', b',"value":22}'], 3)
    payload = b'{"offset":7,"value":1},{"offset":8,"value":22}'
    assert dense.stored == b"\x00\x02\x00\x00\x00" + b"\x17\x00\x00\x00" + b"\x2f\x00\x00\x00" + payload
    some = sparse(dense, [8])
    assert some.stored == (
        b"\x01\x01\x00\x00\x00" + b"\x18\x00\x00\x00" + b"\x08" + b"\x00" * 7 + b'{"offset":8,"value":22}'
    )


@pytest.mark.parametrize("offsets", [[], [3], [0, 4]])
def test_an_emptied_batch_keeps_only_its_extent(offsets: list[int]) -> None:
    batch = reread(sparse(RecordBatch.encode(0, [tail(n) for n in range(5)], 7), offsets))
    assert [r["offset"] for r in decoded(batch, 0, 4)] == offsets  # type: ignore[index]
    assert (batch.base_offset, batch.last_offset) == (0, 4)


@given(st.lists(values, min_size=1, max_size=12), st.data())
def test_records_can_be_removed_in_any_order(sent: list[object], data: st.DataObject) -> None:
    """Twice in a row, from a dense batch and then from one with gaps.
    Records for one group stay for that group alone."""
    for_group = data.draw(st.sampled_from([None, "g", "gruppe-ü"]))
    batch = RecordBatch.encode(40, [tail(value) for value in sent], 7, for_group)
    kept = set(range(40, 40 + len(sent)))
    for _ in range(2):
        edges = sorted(data.draw(st.sets(st.integers(40, 40 + len(sent)), max_size=6)))
        gone = [(first, last - 1) for first, last in zip(edges[::2], edges[1::2], strict=False)]
        batch = reread(batch.without(gone))
        kept -= {offset for first, last in gone for offset in range(first, last + 1)}
        assert (batch.base_offset, batch.last_offset, batch.max_timestamp_ms) == (40, 39 + len(sent), 7)
        assert (batch.record_count, batch.for_group) == (len(kept), for_group)
        for low, high in ((40, batch.last_offset), (41, batch.last_offset - 1)):
            wanted = [offset for offset in sorted(kept) if low <= offset <= high]
            assert decoded(batch, low, high) == [record(offset, sent[offset - 40]) for offset in wanted]
        assert batch.size == len(batch.slice(40, batch.last_offset))


def test_a_batch_may_have_no_records() -> None:
    batch = reread(RecordBatch.encode(3, [tail(1), tail(2)], 7).without([(3, 4)]))
    assert (batch.base_offset, batch.last_offset, batch.record_count, batch.size) == (3, 4, 0, 0)
    assert (batch.slice(3, 4), batch.absent(3, 4)) == (b"", [(3, 4)])


def test_a_marker_is_one_offset_without_a_record() -> None:
    for marker in (RecordBatch.marker(40, 9, "t"), reread(RecordBatch.marker(40, 9, "t"))):
        assert marker.stored == b"\x05\0\0\0\0"
        assert (marker.base_offset, marker.last_offset, marker.max_timestamp_ms) == (40, 40, 9)
        assert (marker.transaction_id, marker.control, marker.aborted) == ("t", True, None)
        assert (marker.record_count, marker.size, marker.tails()) == (0, 0, [])
        assert (marker.absent(40, 40), marker.slice(40, 40), marker.size_of(40, 40)) == ([(40, 40)], b"", 0)
        for again in (marker.without([(40, 40)]), sparse(marker, [])):
            assert (again.stored, again.control, again.transaction_id) == (marker.stored, True, "t")


@pytest.mark.parametrize("for_group", [None, "g"])
def test_what_is_left_of_a_batch_stays_in_its_transaction(for_group: str | None) -> None:
    written = RecordBatch.encode(5, [tail(number) for number in range(4)], 7, for_group, "t")
    plain = RecordBatch.encode(5, [tail(number) for number in range(4)], 7, for_group)
    assert written.stored == plain.stored, "the column says it, not the stored form"
    assert (plain.transaction_id, plain.control) == (None, False)
    for batch in (written, reread(written)):
        batch.aborted = True
        for less in (batch.without([(6, 7)]), sparse(batch, [5, 8])):
            assert (less.transaction_id, less.control, less.aborted, less.for_group) == ("t", False, True, for_group)
            assert reread(less).absent(5, 8) == [(6, 7)]
            assert not reread(less).control


@pytest.mark.parametrize("length", [0, 4, 8, 30, -1])
def test_malformed_batch_bytes_are_refused(length: int) -> None:
    stored = RecordBatch.encode(5, [tail(number) for number in range(3)], 7).stored
    assert RecordBatch.decode(5, 7, 7, stored).record_count == 3
    for broken in (stored[:length], stored[:length] + b"," * 200):
        with pytest.raises(CorruptBatch, match="batch 5"):
            RecordBatch.decode(5, 7, 7, broken)

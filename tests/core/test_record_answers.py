"""Answers of readRecords as columns, without Spark: stored records in bulk give what each one gives alone."""

import base64
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import lz4.block
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.http.answers.runs_answer import LARGE_BYTES, record_runs
from sharequeue_gateway.producing.record_tails import raw_record, raw_tails, record_tails
from sharequeue_gateway.record_log.compression import unpacked
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_gateway.record_log.stored_batch import PackedBatch
from sharequeue_pipeline import record_answers

from sharequeue.arrow_records import SCHEMA, columns_of
from sharequeue.protocol.messages.records import ProduceRequest
from sharequeue.protocol.record_runs import RUN, Bounds, PackedRun, Run, packed_parts, runs_of
from sharequeue_http.forms.codec import decoder_of

MIB = 1024 * 1024
NOW_MS = 1_700_000_000_123
BOUNDS = Bounds(7, 2, 99)
Cut = tuple[RecordBatch | PackedBatch, int, int]


def tails(*records: dict[str, Any]) -> list[bytes]:
    request = decoder_of(ProduceRequest).decode(json.dumps({"records": records}, separators=(",", ":")))
    return record_tails(request.records, NOW_MS)[0]


def whole(batch: RecordBatch | PackedBatch) -> Cut:
    return batch, batch.base_offset, batch.last_offset


def packed(batch: RecordBatch) -> PackedBatch:
    block = lz4.block.compress(batch.stored, store_size=False)
    return PackedBatch(batch.base_offset, batch.last_offset, NOW_MS, block, batch.transaction_id, len(batch.stored))


def readable(cut: Cut) -> tuple[RecordBatch, int, int]:
    """The same records as a batch that can be cut."""
    batch, first, last = cut
    if isinstance(batch, PackedBatch):
        batch = RecordBatch.decode(first, last, NOW_MS, batch.block, None, batch.size)
    return batch, first, last


def answer_of(cuts: Sequence[Cut], bounds: Bounds) -> bytes:
    answer = record_runs(cuts, bounds)
    return b"".join((answer.body, *answer.more))


def one_by_one(cuts: Sequence[Cut]) -> Any:
    """The columns of the same records as JSON."""
    parts = [batch.view(first, last) for batch, first, last in map(readable, cuts)]
    records = b",".join(part for part in parts if part)
    return pa.RecordBatch.from_arrays(columns_of(b"[%b]" % records), schema=SCHEMA)


def in_bulk(cuts: Sequence[Cut]) -> bool:
    """Whether the places of these records are computed together."""
    answer = answer_of([readable(cut) for cut in cuts], BOUNDS)
    return record_answers.together(answer, [run for run in runs_of(answer) if isinstance(run, Run)]) is not None


def check(cuts: Sequence[Cut]) -> None:
    answer = answer_of(cuts, BOUNDS)
    batches, next_offset = record_answers.of_runs(answer)
    found = list(batches)
    for batch in found:
        batch.validate(full=True)
        assert batch.num_rows
    assert pa.Table.from_batches(found, SCHEMA).combine_chunks().equals(pa.Table.from_batches([one_by_one(cuts)]))
    assert next_offset == BOUNDS.next_offset


def read(answer: bytes) -> list[Any]:
    return list(record_answers.of_runs(answer)[0])


texts = st.text(max_size=12) | st.sampled_from(
    [',"value":1', '"', "\\", '","value":"x', "null", '"}}', ',"headers":{"a":"b"}}', "ä\x00", '{"offset":']
)
plain_keys = st.none() | st.text("abcä,:{}09", max_size=6)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.sampled_from(["value", "headers", "key"]), inner, max_size=3)
    ),
    max_leaves=5,
)
plain = st.fixed_dictionaries({"value": values}, optional={"key": plain_keys})
odd = st.fixed_dictionaries(
    {},
    optional={
        "headers": st.dictionaries(texts | st.just("value"), texts, max_size=2),
        "timestamp_ms": st.sampled_from([0, 5, 999_999_999_999, 10**12, 10**13 - 1, 10**13, 2**60]),
    },
)


def with_odd(record: dict[str, Any], more: dict[str, Any], binary: bool) -> dict[str, Any]:
    if binary:
        encoded = base64.b64encode(json.dumps(record["value"]).encode()).decode()
        return {"value_base64": encoded, "key_base64": encoded, **more}
    return {**record, **more}


any_record = plain | st.builds(with_odd, plain, odd, st.booleans())


def cuts_of(records: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[Cut]]:
    @st.composite
    def drawn(draw: st.DrawFn) -> list[Cut]:
        offset = draw(st.sampled_from([0, 7, 95, 99_990, 2**50]))
        cuts: list[Cut] = []
        for _ in range(draw(st.integers(1, 4))):
            batch = RecordBatch.encode(offset, tails(*draw(st.lists(records, min_size=1, max_size=6))), NOW_MS)
            offset = batch.last_offset + 1 + draw(st.integers(0, 3))
            if draw(st.booleans()):  # as compaction leaves it
                gone = sorted(draw(st.sets(st.integers(batch.base_offset, batch.last_offset))))
                batch = batch.without([(each, each) for each in gone])
            if draw(st.booleans()):
                cuts.append(whole(packed(batch)))
                continue
            first = draw(st.integers(batch.base_offset, batch.last_offset))
            cuts.append((batch, first, draw(st.integers(first, batch.last_offset))))
        return cuts

    return drawn()


@given(cuts_of(plain))
def test_plain_records_in_bulk_are_those_of_json(cuts: list[Cut]) -> None:
    check(cuts)


@given(cuts_of(any_record))
def test_all_records_are_those_of_json(cuts: list[Cut]) -> None:
    check(cuts)


@pytest.mark.parametrize(
    ("record", "bulk"),
    [
        ({"value": 1}, True),
        ({"key": "k", "value": {"a": "b"}}, True),
        ({"key": "", "value": None}, True),
        ({"key": ",value", "tombstone": True}, True),
        ({"value": {"value": 1, "key": 2}}, True),
        ({"key": 'a"b', "value": 1}, False),
        ({"key": "a\\b", "value": 1}, False),
        ({"key": "a\tb", "value": 1}, False),
        ({"key": "k" * 60, "value": 1}, True),
        ({"key": "k", "value": 1, "headers": {"value": "x"}}, False),
        ({"value": {"a": 1}, "headers": {"h": "x"}}, False),
        ({"value": {"headers": {"h": "x"}}}, True),
        ({"value": {"a": 1, "headers": {"h": "x"}, "b": "y"}}, False),  # it could be a record with headers
        ({"value": 1, "timestamp_ms": 5}, False),
        ({"value": 1, "timestamp_ms": 10**13}, False),
        ({"value_base64": "AP8="}, False),
        ({"key_base64": "AP8=", "value": 1}, False),
    ],
)
def test_an_odd_record_is_decoded_alone(record: dict[str, Any], bulk: bool) -> None:
    common = RecordBatch.encode(0, tails({"key": "k", "value": "v"}, {"value": 7}), NOW_MS)
    cuts = [whole(common), whole(RecordBatch.encode(2, tails(record), NOW_MS))]
    check(cuts)
    assert in_bulk(cuts) == bulk


@pytest.mark.parametrize(
    ("text", "other"),
    [(b'{"offset":', b'{"Offset":'), (b"timestamp_ms", b"timestamp-ms"), (b"1700000000123", b"17000000:0123")],
)
def test_bytes_of_another_shape_are_not_decoded_in_bulk(text: bytes, other: bytes) -> None:
    answer = answer_of([whole(RecordBatch.encode(0, tails({"value": 1}, {"value": 2}), NOW_MS))], BOUNDS)
    place = answer.rindex(text)
    runs = [run for run in runs_of(answer) if isinstance(run, Run)]
    assert record_answers.together(answer[:place] + other + answer[place + len(text) :], runs) is None


def test_records_of_several_requests_have_their_own_times() -> None:
    times = [NOW_MS, NOW_MS + 1, NOW_MS + 1, NOW_MS + 1 + 10**7, NOW_MS + 1 + 10**7, NOW_MS]
    cuts = [whole(RecordBatch.encode(at, tails({"value": 1, "timestamp_ms": ms}), ms)) for at, ms in enumerate(times)]
    check(cuts)
    assert in_bulk(cuts)


def test_a_marker_and_an_answer_without_records() -> None:
    marker = RecordBatch.marker(3, NOW_MS, "t")
    check([])
    check([whole(marker)])
    check([whole(RecordBatch.encode(1, tails({"value": 1}), NOW_MS)), whole(marker)])


def test_raw_records_have_their_bytes() -> None:
    raw = RecordBatch.encode(0, raw_tails(raw_record("k", None, {"content-type": "x"}), b"\x00\xff", NOW_MS), NOW_MS)
    check([whole(raw)])
    assert read(answer_of([whole(raw)], BOUNDS))[0].column("value")[0].as_py() == b"\x00\xff"


def test_large_batches_are_parts_of_the_answer_without_a_copy() -> None:
    sizes = (10, LARGE_BYTES, 20, 30, 2 * LARGE_BYTES)
    batches = [RecordBatch.encode(at, tails({"value": "x" * size}), NOW_MS) for at, size in enumerate(sizes)]
    cuts = [whole(batch) for batch in batches]
    check(cuts)
    answer = record_runs(cuts, BOUNDS)
    views = [part for part in answer.more if isinstance(part, memoryview)]
    assert [part.obj for part in views] == [batches[1].stored, batches[4].stored]
    assert len(answer.more) == 4


@pytest.mark.parametrize("form", [lambda batch: batch, packed], ids=["plain", "packed"])
def test_a_cut_answer_is_refused(form: Callable[[RecordBatch], RecordBatch | PackedBatch]) -> None:
    answer = answer_of([whole(form(RecordBatch.encode(0, tails({"value": 1}, {"value": 2}), NOW_MS)))], BOUNDS)
    for size in set(range(len(answer))) - {24}:  # an answer without runs is whole
        with pytest.raises(ValueError, match=r"run|head"):
            read(answer[:size])


def test_a_packed_batch_is_its_block() -> None:
    batch = RecordBatch.encode(7, tails({"value": "x" * 5000}), NOW_MS, for_group="g")
    answer = answer_of([whole(packed(batch))], BOUNDS)
    (run,) = runs_of(answer)
    assert isinstance(run, PackedRun)
    assert unpacked(answer[run.block_at :], run.stored_bytes) == batch.stored
    assert len(answer) < 200


def test_a_run_of_an_unknown_form_is_refused() -> None:
    for form, count in ((3, 1), (2, 1), (0, 0), (1, 0)):
        with pytest.raises(ValueError, match=r"no run|the form 3"):
            read(record_runs([], BOUNDS).body + RUN.pack(7, count, 0, 0, form) + bytes(12 * count))


@pytest.mark.parametrize(
    ("block", "stored_bytes"),
    [(b"", 1), (b"\x10x", 5000), (b"\x10x", 1), (b"\x50\x00\x01\x00\x00\x00", 5)],
    ids=["empty", "another size", "no batch", "a batch that is cut behind its count of records"],
)
def test_a_block_of_something_else_is_refused(block: bytes, stored_bytes: int) -> None:
    answer = b"".join((record_runs([], BOUNDS).body, *packed_parts(7, stored_bytes, block)))
    with pytest.raises(ValueError, match="bytes"):
        read(answer)


def test_no_memory_is_taken_for_a_size_that_no_block_has() -> None:
    answer = b"".join((record_runs([], BOUNDS).body, *packed_parts(7, 2**32 - 1, bytes(1000))))
    with pytest.raises(ValueError, match="block of 1000 bytes is damaged, or is not of 4294967295 bytes"):
        read(answer)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_block_of_another_size_than_its_run_says_is_refused(more: int) -> None:
    """The batch behind such a block would begin at another place."""
    first = packed(RecordBatch.encode(0, tails({"value": 1}, {"value": 2}), NOW_MS))
    second = packed(RecordBatch.encode(2, tails({"value": 3}), NOW_MS))
    sizes = (first.size + more, second.size), (first.size, second.size + more)
    for of_first, of_second in sizes:
        runs = (*packed_parts(0, of_first, first.block), *packed_parts(2, of_second, second.block))
        with pytest.raises(ValueError, match=r"bytes|end at"):
            read(b"".join((record_runs([], BOUNDS).body, *runs)))


def test_a_block_that_becomes_fewer_bytes_is_refused() -> None:
    """The ends of its records are those of the whole batch."""
    batch = RecordBatch.encode(0, tails(*[{"value": "x" * 1000}] * 2), NOW_MS)
    block = lz4.block.compress(batch.stored[:-500], store_size=False)
    for _ in range(2):
        with pytest.raises(ValueError, match="is not of"):
            read(b"".join((record_runs([], BOUNDS).body, *packed_parts(0, len(batch.stored), block))))
        check([whole(packed(batch))])


def test_a_run_whose_last_record_ends_elsewhere_is_refused() -> None:
    batch = RecordBatch.encode(0, tails({"value": {"a": {"b": 1}}}), NOW_MS)
    answer = bytearray(answer_of([whole(batch)], BOUNDS))
    (run,) = runs_of(bytes(answer))
    assert isinstance(run, Run)
    answer[run.ends_at] -= 2
    with pytest.raises(ValueError, match="end at"):
        read(bytes(answer))


def test_a_block_may_be_larger_than_its_batch() -> None:
    """As LZ4 makes it of random bytes. A gateway keeps no such block, but the form allows it."""
    content = base64.b64encode(random.Random(7).randbytes(3 * MIB)).decode()
    batch = RecordBatch.encode(0, tails({"value": content[: 4 * MIB - 80]}), NOW_MS)
    block = packed(batch)
    assert len(block.block) > 4 * MIB > len(batch.stored)
    check([whole(block)])


def test_records_behind_an_offset_are_left_out() -> None:
    (batch,) = read(answer_of([whole(RecordBatch.encode(7, tails(*[{"value": 1}] * 3), NOW_MS))], BOUNDS))
    found = {
        last: [each.column("offset").to_pylist() for each in record_answers.up_to(last, batch)] for last in range(6, 11)
    }
    assert found == {6: [], 7: [[7]], 8: [[7, 8]], 9: [[7, 8, 9]], 10: [[7, 8, 9]]}


@pytest.mark.parametrize("mib", [1, 5])
def test_batches_of_any_size_are_read(mib: int) -> None:
    large = tails(*({"key": f"k{number}", "value": f"{number:08}" * 125} for number in range(mib * 1000)))
    small = tails({"key": "k", "value": "v"})
    batches = [RecordBatch.encode(0, small, NOW_MS), RecordBatch.encode(1, large, NOW_MS)]
    after = RecordBatch.encode(batches[1].last_offset + 1, small, NOW_MS)
    assert len(batches[1].stored) > mib * MIB
    check([whole(packed(batches[0])), whole(packed(batches[1])), whole(after)])
    check([whole(batches[0]), whole(packed(batches[1])), whole(packed(after))])
    check([whole(packed(batches[0])), whole(batches[1]), whole(packed(after))])


def test_a_large_answer_becomes_several_batches() -> None:
    """A batch begins with a run that has no room in the one before it."""
    offset, cuts = 0, []
    for _ in range(5):
        batch = RecordBatch.encode(offset, tails(*[{"value": "x" * 1000}] * 1500), NOW_MS)
        offset = batch.last_offset + 1
        cuts.append(whole(packed(batch)))
    check(cuts)
    assert [batch.num_rows for batch in read(answer_of(cuts, BOUNDS))] == [3000, 3000, 1500]

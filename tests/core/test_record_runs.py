"""The layout of a stored batch, and the runs of an answer of readRecords, byte by byte."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharequeue.protocol.batch_layout import CONTROL, FOR_GROUP, HEADER, SPARSE, Layout, layout_of
from sharequeue.protocol.record_runs import (
    BOUNDS,
    Bounds,
    PackedRun,
    Run,
    bounds_of,
    packed_parts,
    run_of,
    run_parts,
    runs_of,
)

ENDS = (3).to_bytes(4, "little") + (6).to_bytes(4, "little")
OFFSETS = (7).to_bytes(8, "little") + (9).to_bytes(8, "little")
RECORDS = b"{},{}"
HEAD = BOUNDS.pack(9, 2, 99)


def stored(flags: int, count: int, *parts: bytes) -> bytes:
    return b"".join((HEADER.pack(flags, count), *parts))


@pytest.mark.parametrize(
    ("batch", "layout"),
    [
        (stored(0, 2, ENDS, RECORDS), Layout(2, 5, -1, 13, None, False)),
        (stored(SPARSE, 2, ENDS, OFFSETS, RECORDS), Layout(2, 5, 13, 29, None, False)),
        (stored(FOR_GROUP, 2, ENDS, b"\x01\0g", RECORDS), Layout(2, 5, -1, 16, "g", False)),
        (
            stored(SPARSE | FOR_GROUP | CONTROL, 2, ENDS, OFFSETS, b"\x02\0\xc3\xbc", RECORDS),
            Layout(2, 5, 13, 33, "ü", True),
        ),
        (stored(CONTROL, 0), Layout(0, 5, -1, 5, None, True)),
        (stored(SPARSE, 0), Layout(0, 5, 5, 5, None, False)),
        (stored(FOR_GROUP, 0, b"\0\0"), Layout(0, 5, -1, 7, "", False)),
    ],
)
def test_the_parts_of_a_batch_are_found(batch: bytes, layout: Layout) -> None:
    assert layout_of(batch) == layout


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (b"", "0 bytes are not a record batch"),
        (stored(0, 2)[:-1], "4 bytes are not a record batch"),
        (stored(0, 2, ENDS)[:-1], "12 bytes cannot hold 2 records"),
        (stored(SPARSE, 2, ENDS, OFFSETS)[:-1], "28 bytes cannot hold 2 records"),
        (stored(FOR_GROUP, 2, ENDS, b"\x01"), "14 bytes cannot hold the name of a group"),
        (stored(FOR_GROUP, 0, b"\x64\x00ab"), "9 bytes cannot hold the name of a group, which has 100"),
    ],
)
def test_a_batch_that_is_cut_is_an_error(batch: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        layout_of(batch)


def test_the_runs_of_an_answer_are_found() -> None:
    answer = b"".join(
        (
            HEAD,
            *run_parts(40, 6, array("I", [end + 6 for end in array("I", ENDS)]), None, RECORDS),
            *packed_parts(50, 5000, b"block"),
            *run_parts(60, 0, memoryview(ENDS).cast("I"), memoryview(OFFSETS).cast("Q"), RECORDS),
        )
    )
    assert bounds_of(answer) == Bounds(9, 2, 99)
    for size in range(len(HEAD)):
        with pytest.raises(ValueError, match="its head alone 24"):
            bounds_of(answer[:size])
    assert list(runs_of(answer)) == [
        Run(40, 2, 6, 5, 48, -1, 56),
        PackedRun(50, 5000, 5, 85),
        Run(60, 2, 0, 5, 114, 122, 138),
    ]
    assert answer[85:90] == b"block"
    with pytest.raises(ValueError, match="end at 4, not at 5"):
        list(runs_of(HEAD + b"".join(run_parts(40, 7, array("I", [4 + 7, 5 + 7]), None, RECORDS))))
    for size in range(len(HEAD) + 1, len(answer)):
        if size not in (61, 90):  # where a run ends
            with pytest.raises(ValueError, match="run"):
                list(runs_of(answer[:size]))


@given(st.integers(0, 2**40), st.booleans())
def test_a_whole_batch_is_a_run(base_offset: int, sparse: bool) -> None:
    batch = stored(SPARSE, 2, ENDS, OFFSETS, RECORDS) if sparse else stored(0, 2, ENDS, RECORDS)
    run = run_of(base_offset, batch)
    assert run == Run(base_offset, 2, 0, 5, 5, 13 if sparse else -1, 29 if sparse else 13)
    assert run.moved(100) == Run(base_offset, 2, 0, 5, 105, 113 if sparse else -1, 129 if sparse else 113)
    assert run.moved(100).moved(-100) == run


@pytest.mark.parametrize("records", [RECORDS[:-1], RECORDS + b" "])
def test_a_batch_whose_records_end_elsewhere_is_no_run(records: bytes) -> None:
    """Arrow accepts a larger size than a block has, and gives bytes behind it that nothing has written."""
    with pytest.raises(ValueError, match=f"the batch at offset 40 end at 5, not at {len(records)}"):
        run_of(40, stored(0, 2, ENDS, records))

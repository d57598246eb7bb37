"""Combining state batches: scenarios CB, and any input against a model that keeps each offset."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_share_coordinator.share_state.batch_list import updated

from sharequeue.protocol.state import StateBatch


def combined(so_far: Sequence[StateBatch], new: Sequence[StateBatch], start: int) -> list[StateBatch]:
    """Two writes to an empty state."""
    return updated(updated([], so_far, start), new, start)


def batches(text: str) -> list[StateBatch]:
    """`"(100-130,0,1)(5,2,1)"` as state batches."""
    parsed = []
    for part in text.strip("()").split(")("):
        if part:
            place, state, count = part.split(",")
            first, _, last = place.partition("-")
            parsed.append(StateBatch(int(first), int(last or first), int(state), int(count)))
    return parsed


# id, so far, new, start, result
CASES = [
    ("CB-001", "(100-130,0,1)", "", 120, "(120-130,0,1)"),
    ("CB-003", "", "", 120, ""),
    ("CB-005", "(100-110,0,1)", "(100-110,0,1)(120-130,2,1)", -1, "(100-110,0,1)(120-130,2,1)"),
    ("CB-007", "(0-5,0,1)", "(0-5,0,1)(11-15,0,1)", -1, "(0-5,0,1)(11-15,0,1)"),
    ("CB-009", "(100-110,0,1)", "(100-105,0,1)", -1, "(100-110,0,1)"),
    ("CB-011", "(100-110,0,1)", "(105-108,0,1)", -1, "(100-110,0,1)"),
    ("CB-013", "(100-110,0,1)", "(105-115,0,1)", -1, "(100-115,0,1)"),
    (
        "CB-015",
        "(100-110,0,1)(121-130,0,1)",
        "(111-119,2,2)(116-123,2,2)",
        -1,
        "(100-110,0,1)(111-123,2,2)(124-130,0,1)",
    ),
    ("CB-017", "(100-110,0,1)(121-130,0,1)", "(111-119,2,2)(116-123,2,2)", 120, "(120-123,2,2)(124-130,0,1)"),
    ("CB-019", "(100-110,0,1)", "(100-110,0,2)", -1, "(100-110,0,2)"),
    ("CB-021", "(100-110,0,1)", "(100-105,0,2)", -1, "(100-105,0,2)(106-110,0,1)"),
    ("CB-023", "(100-110,0,1)", "(100-115,0,2)", -1, "(100-115,0,2)"),
    ("CB-025", "(100-115,0,1)", "(105-110,1,1)", -1, "(100-104,0,1)(105-110,1,1)(111-115,0,1)"),
    ("CB-027", "(100-110,0,1)", "(105-110,0,2)", -1, "(100-104,0,1)(105-110,0,2)"),
    ("CB-029", "(100-110,0,1)", "(105-115,0,2)", -1, "(100-104,0,1)(105-115,0,2)"),
    ("CB-031", "(0-9,0,1)", "(0-9,2,1)", -1, "(0-9,2,1)"),
    ("CB-033", "(0-9,2,1)", "(0-9,0,2)", -1, "(0-9,0,2)"),
    ("CB-035", "(0-9,2,1)", "(0-9,4,1)", -1, "(0-9,4,1)"),
    ("CB-037", "(0-9,4,2)", "(0-9,3,2)", -1, "(0-9,4,2)"),
    ("CB-039", "(0-9,0,5)", "(0-9,4,4)", -1, "(0-9,0,5)"),
    ("CB-041", "(0-2,0,1)(3-5,2,1)(6-9,0,1)", "(3-5,0,2)", -1, "(0-2,0,1)(3-5,0,2)(6-9,0,1)"),
    ("CB-043", "(0-4,2,1)(5-9,2,1)", "", -1, "(0-9,2,1)"),
    ("CB-045", "(0-4,2,1)(6-9,2,1)", "(5,2,1)", -1, "(0-9,2,1)"),
    ("CB-047", "(0-9,0,1)(20-29,0,1)", "(5-24,2,2)", -1, "(0-4,0,1)(5-24,2,2)(25-29,0,1)"),
    ("CB-049", "(0-9,0,1)(10-19,0,2)(20-29,0,3)", "(5-25,0,2)", -1, "(0-4,0,1)(5-19,0,2)(20-29,0,3)"),
    (
        "CB-051",
        "(0-99,0,1)",
        "(10,2,1)(20,2,1)(30,2,1)",
        -1,
        "(0-9,0,1)(10,2,1)(11-19,0,1)(20,2,1)(21-29,0,1)(30,2,1)(31-99,0,1)",
    ),
    ("CB-053", "(5,0,1)", "(5,2,2)", -1, "(5,2,2)"),
    ("CB-055", "(5,0,1)", "(7,0,1)", -1, "(5,0,1)(7,0,1)"),
    ("CB-057", "(0-9,0,1)", "", 9, "(9,0,1)"),
    ("CB-059", "(0-9,0,1)", "(10-19,0,1)", 10, "(10-19,0,1)"),
    ("CB-061", "(0-9,2,1)", "(5-14,0,1)", 12, "(12-14,0,1)"),
    ("CB-063", "(0-9,2,1)(20-29,2,1)", "(30-39,2,1)", 25, "(25-39,2,1)"),
    ("CB-065", "", "(0-4,0,1)", -1, "(0-4,0,1)"),
    (
        "CB-067",
        "(100-109,2,1)(110-119,1,2)(120-129,1,0)",
        "(120-129,2,1)",
        110,
        "(110-119,1,2)(120-129,2,1)",
    ),
    ("CB-069", "(0-10,0,1)", "(11-20,0,1)", -1, "(0-20,0,1)"),
    ("CB-071", "(0-9,0,2)", "(0-3,2,1)(4-6,4,2)(7-9,0,3)", -1, "(0-3,0,2)(4-6,4,2)(7-9,0,3)"),
    (
        "CB-073",
        "(10-12,2,1)(14-16,2,1)(18-20,2,1)",
        "(9-21,0,1)",
        -1,
        "(9,0,1)(10-12,2,1)(13,0,1)(14-16,2,1)(17,0,1)(18-20,2,1)(21,0,1)",
    ),
]


@pytest.mark.parametrize(("so_far", "new", "start", "result"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_combine_merges_two_lists_of_state_batches(so_far: str, new: str, start: int, result: str) -> None:
    assert combined(batches(so_far), batches(new), start) == batches(result)


def test_combine_does_not_change_its_inputs() -> None:
    so_far, new = batches("(5-9,0,1)(0-4,0,1)"), batches("(0-9,2,1)")
    combined(so_far, new, 3)
    assert (so_far, new) == (batches("(5-9,0,1)(0-4,0,1)"), batches("(0-9,2,1)"))


@st.composite
def state_batch(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 40))
    return StateBatch(
        first, first + draw(st.integers(0, 12)), draw(st.sampled_from((0, 1, 2, 3, 4))), draw(st.integers(0, 4))
    )


state_batches = st.lists(state_batch(), max_size=8)
start_offsets = st.integers(-1, 55)


def offsets(of: Sequence[StateBatch], start: int = -1) -> dict[int, tuple[int, int]]:
    """(count, state) of each offset: the highest of those that cover it."""
    kept: dict[int, tuple[int, int]] = {}
    for batch in of:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            if offset >= start:
                here = (batch.delivery_count, batch.delivery_state)
                kept[offset] = max(kept.get(offset, (-1, -1)), here)
    return kept


@given(state_batches, state_batches, start_offsets)
def test_each_offset_has_the_highest_batch_that_covered_it(
    so_far: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    both = combined(so_far, new, start)
    assert offsets(both) == offsets([*so_far, *new], start)


@given(state_batches, state_batches, start_offsets)
def test_the_result_is_ascending_disjoint_and_shortest(
    so_far: list[StateBatch], new: list[StateBatch], start: int
) -> None:
    """With the highest batch at each offset there is one such list: the order of the writes makes no other."""
    both = combined(so_far, new, start)
    assert all(batch.first_offset <= batch.last_offset for batch in both)
    assert len(both) <= max(2 * (len(so_far) + len(new)) - 1, 0)
    for left, right in itertools.pairwise(both):
        assert left.last_offset < right.first_offset
        same = (left.delivery_state, left.delivery_count) == (right.delivery_state, right.delivery_count)
        assert not (same and left.last_offset + 1 == right.first_offset)

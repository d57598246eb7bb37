"""Filters that narrow a batch read of the log: no record that passes is left out."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from sharequeue_pipeline.ranges import Range
from sharequeue_pipeline.source.pushed_filters import begin_ms, narrowed

from tests.core.test_ranges import disjoint, offsets

COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, wanted: value == wanted,
    GreaterThan: lambda value, wanted: value > wanted,
    GreaterThanOrEqual: lambda value, wanted: value >= wanted,
    LessThan: lambda value, wanted: value < wanted,
    LessThanOrEqual: lambda value, wanted: value <= wanted,
    In: lambda value, wanted: value in wanted,
}


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    kind: Any = draw(st.sampled_from(list(COMPARED)))
    column = draw(st.sampled_from(["topic", "partition", "offset"]))
    values = st.sampled_from(["a", "b.c"]) if column == "topic" else st.integers(-1, 60 if column == "offset" else 3)
    return kind((column,), draw(st.lists(values, max_size=3).map(tuple) if kind is In else values))  # type: ignore[no-any-return]


def passes(each: Any, place: tuple[str, int, int]) -> bool:
    value = dict(zip(("topic", "partition", "offset"), place, strict=True))[each.attribute[0]]
    return COMPARED[type(each)](value, each.value)


@given(disjoint(), st.lists(filters(), max_size=4))
def test_no_record_that_passes_is_left_out(ranges: list[Range], given_filters: list[Filter]) -> None:
    left = offsets(narrowed(ranges, given_filters)).keys()
    all_of = offsets(ranges).keys()
    assert left <= all_of
    passing = {place for place in all_of if all(passes(each, place) for each in given_filters)}
    assert passing <= left
    if not any(isinstance(each, In) and each.attribute == ("offset",) for each in given_filters):
        assert passing == left


def test_other_filters_narrow_nothing() -> None:
    whole = [Range("t", 0, 0, 9)]
    others = [
        Not(EqualTo(("offset",), 3)),
        IsNotNull(("offset",)),
        EqualTo(("value",), 3),
        In(("value",), (3,)),
        EqualTo(("offset",), None),
        LessThan(("partition",), None),
        GreaterThan(("topic",), 3),
    ]
    assert narrowed(whole, others) == whole
    assert begin_ms(others) is None


def test_a_read_begins_at_the_latest_of_its_times() -> None:
    time = datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert begin_ms([GreaterThan(("timestamp",), time), LessThan(("timestamp",), time.replace(hour=9))]) == (
        1000 * int(time.timestamp())
    )


TIMES = st.integers(0, 5_000).map(
    lambda half_ms: datetime.fromtimestamp(0, UTC) + half_ms * timedelta(microseconds=500)
)


@st.composite
def filters_of_times(draw: st.DrawFn) -> Filter:
    kind: Any = draw(st.sampled_from([each for each in COMPARED if each is not In]))
    return kind(("timestamp",), draw(TIMES))  # type: ignore[no-any-return]


@given(st.lists(filters_of_times(), max_size=3))
@example([EqualTo(("timestamp",), datetime(1970, 1, 1, 0, 0, 1, 9000, tzinfo=UTC))])
def test_no_record_that_passes_is_older_than_the_time_to_begin_at(given_filters: list[Any]) -> None:
    """Records have whole milliseconds. The time is a millisecond early at most."""
    lower = [each.value for each in given_filters if type(each) in (EqualTo, GreaterThan, GreaterThanOrEqual)]
    found = begin_ms(given_filters)
    assert (found is None) == (not lower)
    if found is not None:
        bound = (max(lower) - datetime.fromtimestamp(0, UTC)) / timedelta(milliseconds=1)
        assert bound - 1 < found <= bound


def test_a_time_is_a_moment_of_the_records() -> None:
    """A local time depends on the session, and other columns say nothing about the time of a record."""
    moment = datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert begin_ms([EqualTo(("timestamp",), moment.replace(tzinfo=None))]) is None
    assert begin_ms([GreaterThan(("value",), moment), GreaterThan(("timestamp", "x"), moment)]) is None


@pytest.mark.parametrize(
    ("given_filters", "left"),
    [
        ([EqualTo(("offset",), 3)], (3, 3)),
        ([GreaterThan(("offset",), 3)], (4, 9)),
        ([GreaterThanOrEqual(("offset",), 3)], (3, 9)),
        ([LessThan(("offset",), 3)], (0, 2)),
        ([LessThanOrEqual(("offset",), 3)], (0, 3)),
        ([In(("offset",), (7, 2, 5))], (2, 7)),
        ([GreaterThan(("offset",), 2), GreaterThan(("offset",), 1)], (3, 9)),
        ([LessThan(("offset",), 6), LessThan(("offset",), 7)], (0, 5)),
        ([GreaterThan(("offset",), 3), LessThan(("offset",), 5)], (4, 4)),
        ([GreaterThan(("offset",), 3), LessThan(("offset",), 4)], None),
        ([In(("partition",), (1, 2))], (0, 9)),
        ([In(("partition",), (0, 2))], None),
        ([In(("topic",), ("u", "t"))], (0, 9)),
        ([In(("topic",), ("u",))], None),
        ([EqualTo(("topic",), "t"), EqualTo(("partition",), 2)], None),
        ([EqualTo(("topic",), "u"), EqualTo(("partition",), 1)], None),
    ],
)
def test_a_filter_leaves_the_offsets_of_its_bounds(given_filters: list[Filter], left: tuple[int, int] | None) -> None:
    assert narrowed([Range("t", 1, 0, 9)], given_filters) == ([] if left is None else [Range("t", 1, *left)])

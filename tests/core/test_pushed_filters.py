"""Filters that narrow a batch read of the log: no record that passes is left out."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from hypothesis import given
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
    if not any(isinstance(each, In) for each in given_filters):
        assert passing == left


def test_other_filters_narrow_nothing() -> None:
    whole = [Range("t", 0, 0, 9)]
    others = [Not(EqualTo(("offset",), 3)), IsNotNull(("offset",)), EqualTo(("value",), 3), EqualTo(("offset",), None)]
    assert narrowed(whole, others) == whole
    assert begin_ms(others) is None


def test_a_read_begins_at_the_latest_of_its_times() -> None:
    time = datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert begin_ms([GreaterThan(("timestamp",), time), LessThan(("timestamp",), time.replace(hour=9))]) == (
        1000 * int(time.timestamp())
    )

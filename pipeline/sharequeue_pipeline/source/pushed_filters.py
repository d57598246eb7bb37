"""Which offsets a batch read of the log can leave out, because a filter of the query drops their records. Pure.

Filters on `topic`, `partition` and `offset` narrow the ranges to read, and a filter on `timestamp` gives a time to
begin at. Spark applies every filter again, so what is left may hold records too many, and never too few.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from sharequeue_pipeline.ranges import Range

_COMPARED: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def narrowed(ranges: Sequence[Range], filters: Sequence[Filter]) -> list[Range]:
    """The parts of ranges that may hold records which pass all filters."""
    found = []
    for entry in ranges:
        if not all(
            _passes(each, "topic", entry.topic) and _passes(each, "partition", entry.partition) for each in filters
        ):
            continue
        first, last = entry.first_offset, entry.last_offset
        for each in filters:
            least, most = _offsets(each)
            first = first if least is None else max(first, least)
            last = last if most is None else min(last, most)
        if first <= last:
            found.append(entry._replace(first_offset=first, last_offset=last))
    return found


def begin_ms(filters: Sequence[Filter]) -> int | None:
    """The time before which no record passes; None: there is none."""
    times = [
        round(each.value.timestamp() * 1_000_000) // 1000  # 1.009 s times 1000 is less than 1009
        for each in filters
        if isinstance(each, (EqualTo, GreaterThan, GreaterThanOrEqual))
        and each.attribute == ("timestamp",)
        and getattr(each.value, "tzinfo", None) is not None  # a moment, not a local time
    ]
    return max(times, default=None)


def _passes(each: Filter, column: str, value: str | int) -> bool:
    """Whether records with this value of the column may pass."""
    if isinstance(each, In):
        return each.attribute != (column,) or value in each.value
    compare = _COMPARED.get(type(each))
    if compare is None or each.attribute != (column,):  # type: ignore[attr-defined]  # each of these filters has both
        return True
    wanted = each.value  # type: ignore[attr-defined]
    return not isinstance(wanted, type(value)) or compare(value, wanted)


def _offsets(each: Filter) -> tuple[int | None, int | None]:
    """The least and the greatest offset that may pass."""
    if isinstance(each, In) and each.attribute == ("offset",):
        wanted = [value for value in each.value if isinstance(value, int)]
        return (min(wanted), max(wanted)) if wanted else (None, None)
    if type(each) not in _COMPARED or each.attribute != ("offset",):  # type: ignore[attr-defined]
        return None, None
    value = each.value  # type: ignore[attr-defined]
    if not isinstance(value, int):
        return None, None
    least = {EqualTo: value, GreaterThan: value + 1, GreaterThanOrEqual: value}.get(type(each))
    most = {EqualTo: value, LessThan: value - 1, LessThanOrEqual: value}.get(type(each))
    return least, most

"""Deep JSON: the depth of a value is counted without recursion."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharequeue.client import ValueTooDeep, ValueUndecodable
from sharequeue.protocol.messages.records import ConsumerRecord
from sharequeue_http.forms import nesting
from tests.core.cpu import times_as_much
from tests.fetched import delivery_of

DEEP = 100_000

texts = st.text(alphabet='[]{}"\\ax', max_size=6)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


def depth_of(value: Any) -> int:
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(depth_of, inner), default=0)
    return 0


def arrays(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@given(values, st.integers(0, 6))
def test_depth_counts_arrays_and_objects_outside_strings(value: Any, most: int) -> None:
    text = json.dumps(value).encode()
    assert nesting.deeper_than(text, most) == (depth_of(value) > most)
    assert nesting.suspects([b"", text], most) == [1] or depth_of(value) <= most


@pytest.mark.parametrize("before", range(-3, 4))
@pytest.mark.parametrize("inside", [b'"[[["', b'"\\"[["', b'"\\\\"', b'"x"'])
def test_depth_is_right_where_slices_meet(before: int, inside: bytes) -> None:
    """Strings, quotes and escapes lie across the border of two slices."""
    padding = b" " * (nesting.SLICE - 4 + before)
    value = b"[" + padding + inside + b",[[" + inside + b"]]]"
    assert nesting.deeper_than(value, 2)
    assert not nesting.deeper_than(value, 3)


SIZE, PART = 300_000, 16
MOST_GROWTH = 5 * PART
"""Five times as much as linear work; the growth of quadratic work is PART²."""
SHAPES: dict[str, Callable[[int], bytes]] = {
    "a string of brackets": lambda size: b'"' + b"[" * size + b'"',
    "many arrays": lambda size: b"[" + b"[]," * size + b"0]",
    "many towers": lambda size: b"[" + (arrays(60) + b",") * (size // 40) + b"0]",
    "escaped quotes": lambda size: b'["' + b'\\"[' * size + b'"]',
    "one tower": arrays,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_depth_of_a_megabyte_is_counted_in_linear_time(shape: str) -> None:
    value, part = SHAPES[shape](SIZE), SHAPES[shape](SIZE // PART)
    assert nesting.deeper_than(value, 64) == (shape == "one tower")
    assert times_as_much(lambda: nesting.deeper_than(value, 64), lambda: nesting.deeper_than(part, 64)) < MOST_GROWTH


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (arrays(DEEP), ValueTooDeep),
        (b"1e400", ValueUndecodable),
        (b"9" * 5000, ValueUndecodable),
        (b'"\\ud800"', ValueUndecodable),
    ],
    ids=["deep", "large", "long", "half a pair"],
)
def test_a_value_that_python_has_not_is_a_named_error_of_its_record(text: bytes, kind: type[ValueError]) -> None:
    message = ConsumerRecord(offset=7, timestamp_ms=0, value=msgspec.Raw(text))
    record = delivery_of(7, 7, [message], partition=3).records[7]
    with pytest.raises(kind, match=r"^the value of t-3 offset 7 cannot be decoded: .*; its bytes are in Record\.json$"):
        record.value  # noqa: B018 - reading it is what fails
    assert record.json == text

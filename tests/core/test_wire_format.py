"""What stands in front of a value of a schema registry: the schema id, and the message indexes of Protobuf."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.registry.wire_format import (
    HEADER_BYTES,
    Malformed,
    encoded_indexes,
    header,
    indexes_of,
    schema_id_of,
)


@given(st.integers(0, 2**32 - 1))
def test_a_header_has_the_schema_id(schema_id: int) -> None:
    assert len(header(schema_id)) == HEADER_BYTES == 5
    assert schema_id_of(header(schema_id) + b"x") == schema_id


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5))
def test_message_indexes_come_back(indexes: list[int]) -> None:
    value = header(1) + encoded_indexes(indexes) + b"message"
    found, begin = indexes_of(value)
    assert (list(found), value[begin:]) == (indexes, b"message")


def test_the_first_message_is_a_single_zero() -> None:
    assert encoded_indexes([0]) == b"\0"
    assert indexes_of(header(1) + b"\x02\x00x") == ((0,), 7)
    assert encoded_indexes([1, 0]) == b"\x04\x02\x00"


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_malformed(value: bytes) -> None:
    try:
        assert 0 <= schema_id_of(value) < 2**32
        indexes, begin = indexes_of(value)
    except Malformed:
        return
    assert 0 < len(indexes) <= 100
    assert begin <= len(value)


def test_a_schema_id_has_four_bytes_big_endian() -> None:
    assert header(1) == b"\0\0\0\0\x01"
    assert schema_id_of(b"\0\x01\x02\x03\x04") == 0x01020304  # a record without fields has no bytes behind it


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "it has no schema id"),
        (b"\0\0\0\0", "it has no schema id"),
        (b"\x01\0\0\0\x01x", "it begins with the byte 1, not"),
        (b"\xff\0\0\0\x01x", "it begins with the byte 255, not"),
    ],
)
def test_a_value_without_a_schema_id_is_malformed(value: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        schema_id_of(value)


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        (b"", "cut off or too long"),
        (b"\x80", "cut off or too long"),
        (b"\x04\x02", "cut off or too long"),
        (b"\x01", "it has -1 message indexes; 1 to 100"),
        (b"\xca\x01" + bytes(101), "it has 101 message indexes; 1 to 100"),
        (b"\x02" + b"\x80" * 10 + b"\0", "cut off or too long"),
    ],
)
def test_message_indexes_that_cannot_be_are_malformed(encoded: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        indexes_of(header(1) + encoded)


@pytest.mark.parametrize("indexes", [(63,), (64,), (127, 128), (8191, 8192), tuple(range(100)), (0, 0)])
def test_message_indexes_at_a_limit_come_back(indexes: tuple[int, ...]) -> None:
    assert indexes_of(header(1) + encoded_indexes(indexes)) == (indexes, HEADER_BYTES + len(encoded_indexes(indexes)))


def test_a_number_of_ten_bytes_is_read() -> None:
    assert indexes_of(header(1) + b"\x02" + b"\x84" + b"\x80" * 8 + b"\0")[0] == (2,)

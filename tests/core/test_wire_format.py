"""What stands in front of a value of a schema registry: the schema id, and the place of a Protobuf message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_pipeline.registry.wire_format import (
    HEADER_BYTES,
    MAX_PLACE,
    Malformed,
    header,
    message_of,
    schema_id_of,
)


@given(st.integers(0, 2**32 - 1))
def test_a_header_has_the_schema_id(schema_id: int) -> None:
    assert len(header(schema_id)) == HEADER_BYTES == 5
    assert schema_id_of(header(schema_id) + b"x") == schema_id


@pytest.mark.parametrize("place", range(MAX_PLACE + 1))
def test_the_place_of_a_message_comes_back(place: int) -> None:
    assert message_of(header(1, place) + b"message") == (place, b"message")


def test_the_first_message_is_a_single_zero_or_a_list_of_it() -> None:
    assert header(1, 0) == b"\0\0\0\0\x01\0"
    assert message_of(header(1) + b"\x02\x00x") == (0, b"x")
    assert header(1, 1) == b"\0\0\0\0\x01\x02\x02"


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_malformed(value: bytes) -> None:
    try:
        assert 0 <= schema_id_of(value) < 2**32
        place, message = message_of(value)
    except Malformed:
        return
    assert 0 <= place <= MAX_PLACE
    assert value.endswith(message)


def test_a_schema_id_has_four_bytes_big_endian() -> None:
    assert header(1) == b"\0\0\0\0\x01"
    assert schema_id_of(b"\0\x01\x02\x03\x04") == 0x01020304  # a record without fields has no bytes behind it


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\x01\0\0\0\x01x", b"\xff\0\0\0\x01x"])
def test_a_value_without_a_schema_id_is_malformed(value: bytes) -> None:
    with pytest.raises(Malformed, match="it has no schema id"):
        schema_id_of(value)


@pytest.mark.parametrize(
    "encoded", [b"", b"\x02", b"\x01\x00", b"\x02\x01", b"\x02\x80\x01", b"\x04\x02\x00", b"\x80\x00"]
)
def test_a_message_within_another_and_what_is_no_place_are_malformed(encoded: bytes) -> None:
    with pytest.raises(Malformed, match="its message is not one of the first 64 of a file"):
        message_of(header(1) + encoded)

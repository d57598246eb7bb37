"""What stands in front of a value of a schema registry: the schema id, and the message indexes of Protobuf."""

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

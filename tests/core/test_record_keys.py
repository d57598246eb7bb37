"""Keys of records: JSON in, JSON and bytes out, as if each key were decoded as a whole."""

import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sharequeue_gateway.producing.record_keys import is_null, key_bytes, key_json

from sharequeue_http.forms.errors import InvalidRequest

PIECES = [
    "a",
    "é",
    "ж",
    "😀",
    "\x7f",
    r"\"",
    r"\\",
    r"\/",
    r"\n",
    r"\u0000",
    r"\u00e9",
    r"\u0416",
    r"\ud83d\ude00",
    "x" * 300,
]

texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@given(texts, st.sampled_from([1, 1, 1, 400]))
def test_a_key_is_as_it_would_be_decoded(text: str, times: int) -> None:
    key = msgspec.Raw(f'"{text * times}"'.encode())
    decoded = msgspec.json.decode(key, type=str)
    assert key_json(key, "") == msgspec.json.encode(decoded)
    assert key_bytes(key) == decoded.encode()


class Keyed(msgspec.Struct):
    key: msgspec.Raw


@given(st.lists(st.sampled_from([*PIECES, r"\ud83d", r"\ude00", r"\u00", r"\x", "\n"]), max_size=5).map("".join))
def test_a_string_that_cannot_be_decoded_is_never_carried(text: str) -> None:
    try:
        carried = msgspec.json.decode(f'{{"key":"{text}"}}'.encode(), type=Keyed).key
    except msgspec.DecodeError:
        return
    assert msgspec.json.decode(carried, type=str).encode() == key_bytes(carried)


@pytest.mark.parametrize(
    ("key", "found"), [(b"1", "a number"), (b"{}", "an object"), (b"[1]", "an array"), (b"true", "a boolean")]
)
def test_a_key_that_is_not_a_string_is_refused(key: bytes, found: str) -> None:
    with pytest.raises(InvalidRequest, match=f"`/records/3/key` must be a string, not {found}") as refused:
        key_json(msgspec.Raw(key), "/records/3/key")
    assert refused.value.pointers == (("/records/3/key", f"must be a string, not {found}"),)


def test_a_large_key_that_is_not_a_string_is_not_decoded() -> None:
    key = msgspec.Raw(b"[%b1]" % (b"[]," * 1_000_000))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="must be a string, not an array"):
            key_json(key, "/records/0/key")
        assert tracemalloc.get_traced_memory()[1] < 2 * 3_000_000
    finally:
        tracemalloc.stop()


def test_null_is_no_key() -> None:
    assert is_null(msgspec.Raw(b"null"))
    assert not is_null(msgspec.Raw(b'"null"'))
    assert not is_null(msgspec.Raw(b'""'))

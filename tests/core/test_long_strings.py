"""Long strings of a body: found, cut and refused before they are decoded."""

import contextlib
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from sharequeue.http.application.decoding import RequestDecoder
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import InvalidRequest
from sharequeue.protocol.long_strings import BLOCK, LEAST, cut

SIZE = 2 << 20
MOST = 5
"""How many times its size decoding a body may take beside the body."""
TAILS = {"emoji": "😀".encode(), "escaped emoji": rb"\ud83d\ude00", "quotes": rb"\"" * 100_000 + "😀".encode()}


def texts_of(kind: inspect.Type, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all texts of a message: `[]` an entry, `{}` a member's value, `name` any free or unknown name."""
    if isinstance(kind, inspect.Metadata):
        yield from texts_of(kind.type, path)
    elif isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from texts_of(member, path)
    elif isinstance(kind, inspect.StrType | inspect.EnumType | inspect.LiteralType | inspect.RawType):
        yield path
    elif isinstance(kind, inspect.ListType):
        yield from texts_of(kind.item_type, (*path, "[]"))
    elif isinstance(kind, inspect.DictType):
        yield (*path, "name")
        yield from texts_of(kind.value_type, (*path, "{}"))
    elif isinstance(kind, inspect.StructType):
        yield (*path, "name")
        for field in kind.fields:
            yield from texts_of(field.type, (*path, field.encode_name))


def body_with(path: tuple[str, ...], text: bytes) -> bytes:
    if not path:
        return b'"%b"' % text
    step, *rest = path
    inner = body_with(tuple(rest), text)
    shapes = {"[]": b"[%b]" % inner, "{}": b'{"max.message.bytes":%b}' % inner, "name": b"{%b:1}" % (inner)}
    return shapes.get(step, b'{"%b":%b}' % (step.encode(), inner))


ROWS = [row for row in vars(apis).values() if isinstance(row, Api)]
CALLS = [api for api in ROWS if api.request is not None and not api.query_parameters and not api.internal]


@pytest.mark.parametrize("tail", TAILS.values(), ids=TAILS)
@pytest.mark.parametrize("api", CALLS, ids=lambda api: api.operation_id)
def test_no_text_of_a_request_costs_more_than_five_times_its_size(api: Api, tail: bytes) -> None:
    decoder = RequestDecoder(api)
    paths = list(dict.fromkeys(texts_of(inspect.type_info(api.request))))
    assert paths
    for path in paths:
        body = body_with(path, b"x" * SIZE + tail)
        tracemalloc.start()
        with contextlib.suppress(InvalidRequest):
            decoder.decode(b"", body)
        taken = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert taken < MOST * len(body), (path, taken / len(body))


class Named(msgspec.Struct):
    names: list[str] = []
    kept: msgspec.Raw = msgspec.Raw(b"null")


lengths = st.integers(BLOCK - 40, LEAST + 40)
strings = st.lists(st.tuples(lengths, st.sampled_from(["x", r"\"", r"\\", "ж", r"\ud83d\ude00", "😀"])), max_size=3)


@given(st.text('" \\nж', max_size=20), strings)
def test_every_long_string_beyond_ascii_is_found(before: str, parts: list[tuple[int, str]]) -> None:
    names = [msgspec.json.encode(before)]
    names += [b'"%b"' % (piece * (length // len(piece.encode()))).encode() for length, piece in parts]
    body = b'{"names":[%b]}' % b", ".join(names)
    found = cut(body)
    wide = [not name.isascii() or rb"\ud" in name for name in names]
    surely = [index for index, name in enumerate(names) if wide[index] and len(name) > LEAST]
    if found is None:
        assert not surely
        return
    whole, shortened = (msgspec.json.decode(text, type=Named).names for text in (body, found.body))
    changed = [index for index, name in enumerate(whole) if shortened[index] != name]
    assert set(surely) <= set(changed) <= {index for index, name in enumerate(names) if wide[index]}
    assert all(len(names[index]) >= BLOCK for index in changed)
    place = found.place(msgspec.json.decode(found.body, type=Named))
    assert place == f"/names/{changed[0]}"


@pytest.mark.parametrize("text", ["x" * LEAST, r"\u0041" * LEAST, r"\"" * LEAST])
def test_long_strings_of_ascii_stay(text: str) -> None:
    assert cut(f'{{"names":["{text}", "ж"]}}'.encode()) is None


def test_what_is_carried_as_json_may_be_long() -> None:
    text = "ж" * LEAST
    decoded = RequestDecoder(apis.PRODUCE_RECORDS).decode(
        b"", msgspec.json.encode({"records": [{"key": text, "value": text, "headers": {"h": text}}]})
    )
    record: Any = decoded.records[0]
    assert msgspec.json.decode(record.key) == msgspec.json.decode(record.value) == text


def test_a_text_that_is_too_long_is_refused_by_its_place() -> None:
    taken = {"topic": "t", "partition": 0, "first_offset": 0, "last_offset": 0}
    body = msgspec.json.encode({"member_id": "m", "acknowledgements": [taken, {**taken, "type": "ж" * LEAST}]})
    with pytest.raises(InvalidRequest, match=r"`/acknowledgements/1/type` is a text of more than 65536 bytes"):
        RequestDecoder(apis.ACKNOWLEDGE_RECORDS).decode(b"", body)


def test_a_reason_that_is_too_long_is_refused_by_its_place() -> None:
    taken = {"topic": "t", "partition": 0, "first_offset": 0, "last_offset": 0}
    body = msgspec.json.encode({"member_id": "m", "acknowledgements": [taken, {**taken, "reason": "ж" * LEAST}]})
    with pytest.raises(InvalidRequest, match=r"`/acknowledgements/1/reason` is a text of more than 65536 bytes"):
        RequestDecoder(apis.ACKNOWLEDGE_RECORDS).decode(b"", body)


def test_a_long_body_that_ends_too_early_names_no_place() -> None:
    with pytest.raises(InvalidRequest, match="the body is not JSON: it ends too early"):
        RequestDecoder(apis.PRODUCE_RECORDS).decode(b"", b'{"records":[{"value":"' + "ж".encode() * LEAST)

"""The columns of an Arrow stream as records: the same bytes as the same records in JSON (`record_tails`). Pure.

Where texts need no escapes, Arrow joins the columns of all records at once, so a record costs some copies of its bytes
and no work of its own. All other records are made one by one, from a few rows of each column at a time.
"""

import base64
import re
from collections.abc import Iterator
from itertools import pairwise, repeat
from typing import Any, Final, NamedTuple

import msgspec

from sharequeue.protocol.types import MAX_HEADERS, MAX_HEADERS_BYTES
from sharequeue_gateway.producing.arrow_columns import ArrowStream, Columns, read_columns
from sharequeue_gateway.producing.record_tails import unfit
from sharequeue_http.forms import mistakes, nesting
from sharequeue_http.forms.errors import InvalidRequest

AT_ONCE: Final = 512
"""Rows of a column that are Python values at the same time."""
HEADERS_AT_ONCE: Final = 16
"""The same for headers: a row may have a thousand."""
JOINED_BYTES: Final = 128 * 1024
"""Of a column that is searched or joined at the same time. The memory for it is used again and again: to get and give
back that of a whole column costs more than the work on it."""
SHORT_BYTES: Final = 64 * 1024
"""A longer text is escaped as bytes: as a str it could take four times its size."""

_encode: Final = msgspec.json.Encoder().encode
_value_json: Final = msgspec.json.Decoder(msgspec.Raw).decode
_ESCAPED: Final = re.compile(rb'["\\\x00-\x1f]')
_ESCAPES: Final = {bytes((code,)): _encode(chr(code))[1:-1] for code in (*range(32), ord('"'), ord("\\"))}
_SPACE: Final = 0x20


class ArrowRecords(NamedTuple):
    """`tails`: as `record_tails` makes them. The other lists are None if no record has such a field of its own."""

    tails: list[bytes]
    keys: list[bytes | None] | None
    partitions: list[int | None] | None
    timestamps: list[int | None] | None


def arrow_records(stream: ArrowStream, timestamp_ms: int, max_value_depth: int) -> ArrowRecords:
    """The records of an Arrow stream.

    Args:
        timestamp_ms: the present time, for records without a timestamp.
    Raises: InvalidRequest: as `read_columns`; 422: a value is not JSON or nested too deeply, headers are too large.
    """
    columns = read_columns(stream)
    tails = _joined(columns, timestamp_ms)
    if tails is None:
        tails = list(map(b"".join, _each(columns, timestamp_ms, max_value_depth)))
    return ArrowRecords(tails, _listed(columns.key), _listed(columns.partition), _listed(columns.timestamp_ms))


def text_json(text: bytes) -> bytes:
    """The JSON of a text in UTF-8, with no more escapes than it needs."""
    if len(text) <= SHORT_BYTES:
        return _encode(text.decode())
    return b'"%b"' % _ESCAPED.sub(lambda found: _ESCAPES[found[0]], text)


def _listed(column: Any) -> Any:
    return None if column is None or column.null_count == len(column) else column.to_pylist()


def _joined(columns: Columns, timestamp_ms: int) -> list[bytes] | None:
    """The tails, if all values are texts without escapes and without headers; None: they must be made one by one."""
    import pyarrow as pa  # noqa: PLC0415 - heavy: loaded with the first request in Arrow
    import pyarrow.compute as pc  # noqa: PLC0415

    key, value, times = columns.key, columns.value, columns.timestamp_ms
    if (
        columns.headers is not None
        or columns.value_is_json is not None
        or value.null_count
        or not _plain(pa, pc, value)
    ):
        return None
    if not columns.value_is_text or (key is not None and (not columns.key_is_text or key.null_count)):
        return None
    if key is not None and not _plain(pa, pc, key):
        return None
    head: tuple[Any, ...] = (b',"timestamp_ms":%d,"key":' % timestamp_ms,)
    if times is not None:
        own = pc.fill_null(times, timestamp_ms).cast(pa.string()).cast(pa.binary())
        head = (b',"timestamp_ms":', own, b',"key":')
    if key is None:
        parts = (*head[:-1], head[-1] + b'null,"value":"', value)
    else:
        parts = (*head[:-1], head[-1] + b'"', key, b'","value":"', value)
    given = [pa.scalar(part, pa.binary()) if isinstance(part, bytes) else part for part in (*parts, b'"}', b"")]
    pool = pa.system_memory_pool()  # Arrow's own keeps what is freed
    size = sum(part.nbytes for part in given if isinstance(part, pa.Array))
    rows = max(len(value) * JOINED_BYTES // max(size, 1), 1)
    tails: list[bytes] = []
    for first in range(0, len(value), rows):
        some = (part.slice(first, rows) if isinstance(part, pa.Array) else part for part in given)
        tails += pc.binary_join_element_wise(*some, memory_pool=pool).to_pylist()
    return tails


def _plain(pa: Any, pc: Any, column: Any) -> bool:
    """Return whether the texts of a column are their own JSON, without its quotes."""
    texts = column.buffers()[2]
    if texts is None or not texts.size:
        return True
    for start in range(0, texts.size, JOINED_BYTES):
        piece = texts[start : start + JOINED_BYTES].to_pybytes()
        if b'"' in piece or b"\\" in piece:
            return False
    return int(pc.min(pa.Array.from_buffers(pa.uint8(), texts.size, [None, texts])).as_py()) >= _SPACE


# One by one


def _each(columns: Columns, timestamp_ms: int, max_value_depth: int) -> Iterator[tuple[bytes, ...]]:
    """The parts of each tail."""
    return zip(
        _times(columns, timestamp_ms),
        _keys(columns),
        _values(columns, max_value_depth),
        _headers(columns),
        repeat(b"}"),
        strict=False,
    )


def _rows(column: Any, at_once: int = AT_ONCE) -> Iterator[Any]:
    for first in range(0, len(column), at_once):
        yield from column.slice(first, at_once).to_pylist()


def _times(columns: Columns, timestamp_ms: int) -> Iterator[bytes]:
    if columns.timestamp_ms is None:
        return repeat(b',"timestamp_ms":%d' % timestamp_ms)
    times = _rows(columns.timestamp_ms)
    return (b',"timestamp_ms":%d' % (timestamp_ms if time_ms is None else time_ms) for time_ms in times)


def _keys(columns: Columns) -> Iterator[bytes]:
    if columns.key is None:
        return repeat(b',"key":null')
    if columns.key_is_text:
        return (b',"key":' + (b"null" if key is None else text_json(key)) for key in _rows(columns.key))
    return (
        b',"key":null' if key is None else b',"key_base64":"%b"' % base64.b64encode(key) for key in _rows(columns.key)
    )


def _values(columns: Columns, max_value_depth: int) -> Iterator[bytes]:
    flags = repeat(False) if columns.value_is_json is None else _rows(columns.value_is_json)
    for index, (value, is_json) in enumerate(zip(_rows(columns.value), flags, strict=False)):
        if value is None:
            yield b',"value":null'
        elif is_json:
            yield b',"value":' + _checked(value, index, max_value_depth, known_text=columns.value_is_text)
        elif columns.value_is_text:
            yield b',"value":' + text_json(value)
        else:
            yield b',"value_base64":"%b"' % base64.b64encode(value)


def _checked(value: bytes, index: int, most: int, *, known_text: bool) -> bytes:
    """A value that is JSON, without the spaces around it. Raises: InvalidRequest (422): it is not, or is too deep."""
    pointer = f"/records/{index}/value"
    try:
        if not known_text and not value.isascii():
            value.decode()
        text = bytes(_value_json(value))
        deep = bool(nesting.suspects((text,), most)) and nesting.deeper_than(text, most)
    except RecursionError:
        deep = True
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise unfit(pointer, f"value_is_json is true, and the value is not JSON: {str(fault)[:200]}") from None
    if deep:
        detail = f"nested deeper than {most} levels (max_value_depth)"
        raise InvalidRequest(
            f"the value of record {index} is {detail}; make it flatter, or send it as bytes",
            limit=most,
            pointers=[(pointer, detail)],
        )
    return text


def _headers(columns: Columns) -> Iterator[bytes]:
    if columns.headers is None:
        yield from repeat(b"")
        return
    import pyarrow.compute as pc  # noqa: PLC0415 - as above

    if (pc.max(columns.headers.offsets[1:].cast("int64")).as_py() or 0) == 0:
        yield from repeat(b"")
        return
    lengths = [end - start for start, end in pairwise(columns.headers.offsets.to_pylist())]
    if max(lengths) > MAX_HEADERS:
        raise mistakes.too_many(f"/records/{lengths.index(max(lengths))}/headers", "entries", MAX_HEADERS)
    for index, given in enumerate(_rows(columns.headers, HEADERS_AT_ONCE)):
        if not given:
            yield b""
            continue
        headers = dict(given)
        if None in headers.values():
            raise unfit(f"/records/{index}/headers", "a header is null: it must be a text")
        encoded = _encode(headers)
        if len(encoded) > MAX_HEADERS_BYTES:
            raise mistakes.too_many(f"/records/{index}/headers", "bytes", MAX_HEADERS_BYTES)
        yield b',"headers":' + encoded

"""Records of Kafka as fetches send them: the *tails* that `record_batch` joins with their offsets. Pure.

The setting `value.format` of a topic says what a value is: `auto` and `json`: what is JSON within the bound of nesting
is `value`; `text`: what is UTF-8 is `value`, a string; `bytes`: none is. Every other value is `value_base64`, and so is
one with the header `sharequeue.value`, which a gateway gives to what it was sent as bytes. Of equal header names the
last is in `headers`; names that are repeated, and those with a value that is null or not UTF-8, have all of their
values in `headers_base64`.
"""

import base64
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue_gateway.kafka_log.new_records import APPEND_HEADER, VALUE_HEADER
from sharequeue_gateway.record_log.record_batch import RecordBatch
from sharequeue_http.forms import nesting
from sharequeue_kafka.batches import KafkaRecord, ReadBatch

JSON: Final = frozenset({"auto", "json"})
"""The formats of which JSON is a `value`."""
_OURS: Final = frozenset({VALUE_HEADER, APPEND_HEADER})
_NO_KEY: Final = b',"key":null'
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(msgspec.Raw).decode
_decode_all: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def batch_of(read: ReadBatch, value_format: str, max_depth: int) -> RecordBatch:
    """Make a batch of memory of one that was read. Offsets without a record (compacted, aborted, markers) are gaps."""
    first_offset, last_offset, _, records = read
    tails = tails_of(records, value_format, max_depth)
    newest = max([record.timestamp_ms for record in records], default=0)
    if len(records) == last_offset - first_offset + 1:
        return RecordBatch.encode(first_offset, tails, newest)
    offsets = array("Q", [record.offset for record in records])
    return RecordBatch.encode_sparse(first_offset, last_offset, offsets, tails, newest)


def tails_of(records: Sequence[KafkaRecord], value_format: str, max_depth: int) -> list[bytes]:
    """The tails of records of one topic."""
    values = [b"null" if record.value is None else record.value for record in records]
    json = value_format in JSON and _all_json(values, max_depth)
    return [
        b',"timestamp_ms":%d%b,"value":%b}'
        % (record.timestamp_ms, _NO_KEY if record.key is None else _key(record.key), value)
        if json and not record.headers and record.timestamp_ms >= 0
        else _tail(record, value_format, max_depth)
        for record, value in zip(records, values, strict=True)
    ]


def reads_as_sent(tails: Sequence[bytes]) -> bool:
    """Return whether records of these tails surely have the same tails when they are read, in a format of JSON."""
    text = b"".join(tails)
    return b'_base64":' not in text and b'"sharequeue.' not in text


def _tail(record: KafkaRecord, value_format: str, max_depth: int) -> bytes:
    key = _NO_KEY if record.key is None else _key(record.key)
    encoded = any(name == VALUE_HEADER for name, _ in record.headers)
    member = _value(record.value, "bytes" if encoded else value_format, max_depth)
    headers = _headers(record.headers) if record.headers else b""
    return b',"timestamp_ms":%d%b%b%b}' % (max(record.timestamp_ms, 0), key, member, headers)


def _all_json(values: Sequence[bytes], max_depth: int) -> bool:
    """Return whether each of these values is JSON. False: perhaps not each one."""
    text = b"[%b]" % b",".join(values)
    try:
        if not text.isascii():
            text.decode()
        if nesting.suspects(values, max_depth):
            return False
        return list(map(bytes, _decode_all(text))) == values
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False


def _value(value: bytes | None, value_format: str, max_depth: int) -> bytes:
    if value is None:
        return b',"value":null'
    try:
        if value_format == "text":
            return b',"value":' + _encode(value.decode())
        if value_format != "bytes" and not (
            nesting.suspects([value], max_depth) and nesting.deeper_than(value, max_depth)
        ):
            value.decode()
            _decode(value)
            return b',"value":' + value
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        pass
    return b',"value_base64":"%b"' % base64.b64encode(value)


def _key(key: bytes) -> bytes:
    text = _text(key)
    return b',"key_base64":"%b"' % base64.b64encode(key) if text is None else b',"key":' + _encode(text)


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The members `headers` and `headers_base64` of a record."""
    values: dict[str, list[bytes | None]] = {}
    for name, value in headers:
        if name not in _OURS:
            values.setdefault(name, []).append(value)
    texts = {name: text for name, of_name in values.items() if (text := _text(of_name[-1])) is not None}
    odd = {name: of_name for name, of_name in sorted(values.items()) if len(of_name) > 1 or name not in texts}
    members = b',"headers":' + _encode(texts) if texts else b""
    return members + b',"headers_base64":' + _encode(odd) if odd else members


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None

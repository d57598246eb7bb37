"""Records as fetches send them, without their offsets: `,"timestamp_ms":…,"key":…,"value":…}`. Pure.

Values and base64 stay byte for byte as the client sent them.
"""

import base64
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from sharequeue.protocol.messages.records import ProduceRecord
from sharequeue.protocol.types import MAX_HEADERS, MAX_HEADERS_BYTES
from sharequeue_gateway.producing.record_keys import base64_json, given, is_null, key_json
from sharequeue_http.forms import mistakes
from sharequeue_http.forms.errors import InvalidRequest

AROUND_VALUE: Final = len(b',"timestamp_ms":0,"key":null,"value":}')
"""The smallest size of a tail without its value, in bytes."""

_encode: Final = msgspec.json.Encoder().encode
_Headers = Annotated[dict[str, str], msgspec.Meta(max_length=MAX_HEADERS)]
_decode_headers: Final = msgspec.json.Decoder(_Headers).decode
_NO_KEY: Final = b',"key":null'
_VALUE: Final = b',"value":'


def record_tails(records: Sequence[ProduceRecord], timestamp_ms: int) -> tuple[list[bytes], bool]:
    """The tails of records.

    Args:
        timestamp_ms: the present time, for records without a timestamp.
    Returns: the tails, and whether every record has only a JSON value.
    Raises: InvalidRequest (422): not exactly one of value, value_base64 and tombstone; two keys; invalid base64.
    """
    timestamp = b',"timestamp_ms":%d' % timestamp_ms
    before_key = timestamp + b',"key":'
    before_value = timestamp + _NO_KEY + _VALUE
    tails: list[bytes] = []
    plain = True
    for index, record in enumerate(records):
        value, key = record.value, record.key
        if (
            not value
            or record.key_base64
            or record.value_base64
            or record.tombstone
            or record.headers
            or record.timestamp_ms is not None
        ):
            plain = False
            tails.append(_tail(record, timestamp, index))
        elif not key:
            plain = plain and record.partition is None
            tails.append(before_value + value + b"}")
        else:
            plain = False
            text = bytes(key)
            if text.startswith(b'"') and b"\\" not in text:  # as `key_json` leaves it
                tails.append(b"".join((before_key, text, _VALUE, value, b"}")))
            else:
                text = b""  # it may have megabytes
                tails.append(_tail(record, timestamp, index))
    return tails, plain


def raw_tails(record: ProduceRecord, value: bytes, timestamp_ms: int) -> list[bytes]:
    """The tail of one record whose value is bytes."""
    key = b',"key":' + record.key if record.key else _NO_KEY
    headers = _headers(record, 0)
    behind = b'","headers":%b}' % _encode(headers) if headers else b'"}'
    before = b',"timestamp_ms":%d%b,"value_base64":"' % (timestamp_ms, key)
    return [b"".join((before, base64.b64encode(value), behind))]


def raw_record(key: str | None, partition: int | None, headers: dict[str, str]) -> ProduceRecord:
    """A record without its value: the value is a request's body and is passed beside it, because copies are
    expensive."""
    encoded = msgspec.Raw(_encode(headers)) if headers else msgspec.UNSET
    raw_key = msgspec.UNSET if key is None else msgspec.Raw(_encode(key))
    return ProduceRecord(key=raw_key, partition=partition, headers=encoded)


def unfit(pointer: str, detail: str) -> InvalidRequest:
    return InvalidRequest(f"{pointer}: {detail}", pointers=[(pointer, detail)])


def _tail(record: ProduceRecord, timestamp: bytes, index: int) -> bytes:
    """The tail of any record. `index`: its place in the request, for errors."""
    if record.timestamp_ms is not None:
        timestamp = b',"timestamp_ms":%d' % record.timestamp_ms
    key = _key(record, index)
    member = _value(record, index)
    headers = _headers(record, index)
    if headers:
        return b"".join((timestamp, key, member, b',"headers":', _encode(headers), b"}"))
    return b"".join((timestamp, key, member, b"}"))


def _key(record: ProduceRecord, index: int) -> bytes:
    encoded = given(record.key_base64) if record.key_base64 else b""
    if record.key and not is_null(record.key):
        if encoded:
            raise unfit(f"/records/{index}/key", "give key or key_base64, not both")
        return b',"key":' + key_json(record.key, f"/records/{index}/key")
    if encoded:
        return b',"key_base64":' + base64_json(encoded, f"/records/{index}/key_base64")
    return _NO_KEY


def _value(record: ProduceRecord, index: int) -> bytes:
    value = record.value
    encoded = given(record.value_base64) if record.value_base64 else b""
    if value and (encoded or record.tombstone) and bytes(memoryview(value)[:5]) == b"null":
        value = msgspec.UNSET  # generated clients send `null` for what they leave out
    if value and not encoded and not record.tombstone:
        return _VALUE + value
    if not value and encoded and not record.tombstone:
        return b',"value_base64":' + base64_json(encoded, f"/records/{index}/value_base64")
    if not value and not encoded and record.tombstone:
        return b',"value":null'
    raise unfit(f"/records/{index}/value", "give exactly one of value, value_base64 and tombstone")


def _headers(record: ProduceRecord, index: int) -> dict[str, str]:
    if not record.headers:
        return {}
    pointer = f"/records/{index}/headers"
    if len(memoryview(record.headers)) > MAX_HEADERS_BYTES:
        raise mistakes.too_many(pointer, "bytes", MAX_HEADERS_BYTES)
    try:
        headers: dict[str, str] = _decode_headers(record.headers)
    except msgspec.ValidationError as fault:
        raise mistakes.unfit_body(fault, _Headers, pointer) from None
    return headers

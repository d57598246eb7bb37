"""A record to produce, and its JSON. No IO."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypedDict

import msgspec
from msgspec import UNSET

from sharequeue.protocol.messages.records import ProduceRecord

_encode: Final = msgspec.json.Encoder().encode


class NewRecord(NamedTuple):
    """A record to produce that has more than a value. `value`: any JSON, bytes, or None for a tombstone."""

    value: Any
    key: str | bytes | None = None
    headers: Mapping[str, str] | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class RecordOptions(TypedDict, total=False):
    """The arguments of `send` that any record may have, as `NewRecord` has them."""

    key: str | bytes | None
    headers: Mapping[str, str] | None
    partition: int | None


def encode_record(record: NewRecord) -> bytes:
    """The record as JSON. It is encoded before it joins a batch, so its faults fail no other record.

    Raises: TypeError: JSON has no form for the value. ValueError: it is NaN or infinite, or a text is not Unicode.
    """
    value, key = record.value, record.key
    message = ProduceRecord(
        headers=msgspec.Raw(_encode(dict(record.headers))) if record.headers else UNSET,
        partition=record.partition,
        timestamp_ms=record.timestamp_ms,
    )
    if isinstance(key, str):
        message.key = msgspec.Raw(_encode(key))
    elif key is not None:
        message.key_base64 = msgspec.Raw(_encode(key))
    if isinstance(value, bytes | bytearray | memoryview):
        message.value_base64 = msgspec.Raw(_encode(value))
    elif value is None:
        message.tombstone = True
    elif isinstance(value, msgspec.Raw):
        message.value = value
    else:
        message.value = msgspec.Raw(_json_of(value))
    return _encode(message)


def _json_of(value: Any) -> bytes:
    """Raises: TypeError, ValueError: as `encode_record`."""
    encoded = _encode(value)
    if b"null" in encoded:  # msgspec writes null for NaN and infinity, too
        for number in _floats(msgspec.to_builtins(value, enc_hook=lambda raw: None)):
            if not math.isfinite(number):
                raise ValueError(f"JSON has no {number}")
    return encoded


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _floats(inner)

"""Records as Kafka stores them, made from the JSON that a fetch would send (a *tail*). Pure.

The value, the key and the headers are byte for byte those of the request. A value that was sent as bytes gets the
header `sharequeue.value`, so that reading gives `value_base64` again.
"""

import base64
from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue_gateway.record_log.log import PartitionAppend
from sharequeue_kafka.producing import NewRecord

VALUE_HEADER: Final = "sharequeue.value"
BASE64: Final = b"base64"
APPEND_HEADER: Final = "sharequeue.append"
"""The intent that a record was appended for."""
_NULL: Final = b"null"
_BEFORE_VALUE: Final = b',"timestamp_ms":%d,"key":null,"value":'


class _Tail(msgspec.Struct, gc=False):
    timestamp_ms: int
    key: str | None = None
    key_base64: str | None = None
    value: msgspec.Raw = msgspec.Raw(_NULL)
    value_base64: str | None = None
    headers: dict[str, str] = {}


_decoder: Final = msgspec.json.Decoder(list[_Tail])
_AT_ONCE: Final = 100


def new_records(append: PartitionAppend, intent_id: str | None = None) -> list[NewRecord]:
    """The records of an append. `intent_id`: each record names it in a header."""
    named: list[tuple[str, bytes | None]] = [] if intent_id is None else [(APPEND_HEADER, intent_id.encode())]
    tails, time_ms = append.tails, append.max_timestamp_ms
    if append.plain:
        at = len(_BEFORE_VALUE % time_ms)
        return [(None, None if (value := tail[at:-1]) == _NULL else value, named, time_ms) for tail in tails]
    return [
        _new_record(found, named)
        for first in range(0, len(tails), _AT_ONCE)
        for found in _decoder.decode(b'[{"":0%b]' % b',{"":0'.join(tails[first : first + _AT_ONCE]))
    ]


def _new_record(found: _Tail, named: Sequence[tuple[str, bytes | None]]) -> NewRecord:
    value: bytes | None = bytes(found.value)
    key = None if found.key is None else found.key.encode()
    if found.key_base64 is not None:
        key = base64.b64decode(found.key_base64)
    headers: list[tuple[str, bytes | None]] = [(name, text.encode()) for name, text in found.headers.items()]
    headers += named
    if found.value_base64 is not None:
        value = base64.b64decode(found.value_base64)
        headers.append((VALUE_HEADER, BASE64))
    elif value == _NULL:
        value = None
    return key, value, headers, found.timestamp_ms

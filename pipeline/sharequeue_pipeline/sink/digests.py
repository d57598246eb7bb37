"""Digests of records: equal for a row that a task would write and for the record that another attempt wrote of it."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import repeat
from typing import Any, Final

import msgspec

DIGEST_BYTES: Final = 15
"""A task may keep millions of them. Python adds 33 bytes to each: these fill 48 bytes, and one more would take 64."""
_string: Final = msgspec.json.Decoder(str).decode


def digest_of(
    key: str | bytes | None,
    value: str | bytes | msgspec.Raw | None,
    headers: Mapping[str, str],
    partition: int | None,
    timestamp_ms: int | None,
) -> bytes:
    """`DIGEST_BYTES` for one record.

    Args:
        value: a text, bytes, JSON, or None for a tombstone. A text and the JSON string of it are the same.
        partition: None if the task's rows do not name partitions; so with `timestamp_ms`.
    """
    key = key.encode() if isinstance(key, str) else key
    if isinstance(value, msgspec.Raw):
        json = bytes(value)
        kind, content = "json", json
        if json.startswith(b'"'):
            with suppress(msgspec.DecodeError, UnicodeError):  # an escape that is no character stays JSON
                kind, content = "text", _string(json).encode()
    elif isinstance(value, str):
        kind, content = "text", value.encode()
    else:
        kind, content = ("none", b"") if value is None else ("bytes", value)
    whole = msgspec.msgpack.encode((key, kind, content, sorted(headers.items()), partition, timestamp_ms))
    return hashlib.blake2b(whole, digest_size=DIGEST_BYTES).digest()


def digests_of_read(records: Any, partition: int | None, *, timed: bool) -> Iterator[bytes]:
    """The digests of records that were read back. `records`: a record batch of `sharequeue.arrow_records`.

    `partition`: where they are, if the task's rows name partitions; `timed`: whether these rows have timestamps.
    """
    values = zip(records.column("value").to_pylist(), records.column("value_is_json").to_pylist(), strict=True)
    headers = records.column("headers").to_pylist(maps_as_pydicts="lossy")
    times = records.column("timestamp_ms").to_pylist() if timed else repeat(None)
    for key, (value, is_json), named, time_ms in zip(
        records.column("key").to_pylist(), values, headers, times, strict=False
    ):
        json = is_json and value is not None
        yield digest_of(key, msgspec.Raw(value) if json else value, named or {}, partition, time_ms)

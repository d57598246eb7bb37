"""The archive of a topic as readers of its table see it, and the log as JSON answers have it, in one form."""

import base64
from pathlib import Path
from typing import Any

import httpx
import msgspec
from deltalake import DeltaTable

Rows = list[tuple[Any, ...]]


def archived(root: Path, partition: int) -> Rows:
    """(offset, timestamp in ms, key, value, whether JSON, headers) of the records of a partition, by offset."""
    found = DeltaTable(root).to_pyarrow_table(filters=[("partition", "=", partition)]).sort_by("offset")
    assert found["timestamp"].cast("date32").equals(found["date"])
    columns = [found[name].to_pylist() for name in ("offset", "key", "value", "value_is_json", "headers")]
    times = [each // 1000 for each in found["timestamp"].cast("int64").to_pylist()]
    return [
        (offset, at, key, value, is_json, tuple(headers))
        for at, offset, key, value, is_json, headers in zip(times, *columns, strict=True)
    ]


def logged(http: httpx.Client, topic: str, partition: int, offset: int = 0) -> Rows:
    """The same columns of the log."""
    rows: Rows = []
    while True:
        query = {"offset": offset, "max_records": 20_000}
        answer = http.get(f"/v1/topics/{topic}/partitions/{partition}/records", params=query)
        assert answer.status_code == 200, answer.text
        decoded = msgspec.json.decode(answer.content, type=Answer)
        rows += [each.row() for each in decoded.records]
        if decoded.next_offset == offset:
            return rows
        offset = decoded.next_offset


class Read(msgspec.Struct):
    offset: int
    timestamp_ms: int
    key: str | None = None
    key_base64: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"null")
    value_base64: str | None = None
    headers: dict[str, str] = {}

    def row(self) -> tuple[Any, ...]:
        key = base64.b64decode(self.key_base64) if self.key_base64 is not None else self.key and self.key.encode()
        if self.key == "":
            key = b""
        if self.value_base64 is not None:
            value, is_json = base64.b64decode(self.value_base64), False
        else:
            value, is_json = None if bytes(self.value) == b"null" else bytes(self.value), True
        return (self.offset, self.timestamp_ms, key, value, is_json, tuple(self.headers.items()))


class Answer(msgspec.Struct):
    records: list[Read]
    next_offset: int

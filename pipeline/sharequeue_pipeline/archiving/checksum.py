"""A checksum of records that does not depend on how they are cut into record batches, row groups or answers."""

import hashlib
import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

COLUMNS: Final = ("offset", "timestamp", "key", "value", "value_is_json", "headers")
_BINARY: Final = ("key", "value")


class Checksum:
    """SHA-256 over the SHA-256 of each column. Callers add record batches in the order of offsets."""

    def __init__(self) -> None:
        self._hashes = {name: hashlib.sha256() for name in (*COLUMNS, *(f"{name} lengths" for name in _BINARY))}
        self.rows = 0

    def add(self, batch: Any) -> None:
        """Add a record batch with the archive's columns."""
        self.rows += batch.num_rows
        for name in ("offset", "timestamp", "value_is_json"):
            self._hashes[name].update(_fixed(batch.column(name)))
        for name in _BINARY:
            self._binary(name, batch.column(name))
        self._headers(batch.column("headers"))

    def _binary(self, name: str, column: Any) -> None:
        column = column.cast(pa.binary())
        missing = column.is_null()
        filled = pc.fill_null(column, b"")
        self._hashes[f"{name} lengths"].update(_lengths(missing, pc.binary_length(filled)))
        _, ends, data = filled.buffers()
        if data is not None and len(filled):
            positions = memoryview(ends).cast("i")
            self._hashes[name].update(
                memoryview(data)[positions[filled.offset] : positions[filled.offset + len(filled)]]
            )

    def _headers(self, column: Any) -> None:
        """Hash headers with the number of their record. Most records have none, and cost nothing here."""
        digest = self._hashes["headers"]
        for number, headers in enumerate(column.to_pylist(), self.rows - len(column)):
            if headers:
                digest.update(json.dumps([number, [list(header) for header in headers]]).encode())

    def hexdigest(self) -> str:
        """The checksum of all records so far."""
        whole = hashlib.sha256(str(self.rows).encode())
        for digest in self._hashes.values():
            whole.update(digest.digest())
        return whole.hexdigest()


def _fixed(column: Any) -> bytes:
    """The bytes of a column of numbers or booleans without nulls."""
    if column.type == pa.bool_():
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    data = column.buffers()[1]
    return (
        b"" if data is None else bytes(memoryview(data)[column.offset * width : (column.offset + len(column)) * width])
    )


def _lengths(missing: Any, lengths: Any) -> bytes:
    """The bytes of the lengths of values; −1 stands for a null."""
    return _fixed(pc.if_else(missing, pa.scalar(-1, pa.int32()), lengths))

"""The input of `sharequeue produce`: the lines of a file or of stdin become records."""

import codecs
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

import click
import msgspec

from sharequeue.cli.output import outside
from sharequeue.client import NewRecord

READ_BYTES: Final = 256 * 1024
LONGEST_LINE_BYTES: Final = 52_428_800
"""The largest value of max.message.bytes."""
Blocks = AsyncIterator[list[bytes]]
"""Lines, as many at a time as have arrived."""


class BadLine(Exception):
    """A line of the input cannot become a record."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


@dataclass(eq=False)
class Lines:
    """Makes records of lines, as the options say."""

    as_json: bool
    key: str | None
    key_separator: bytes | None
    headers: dict[str, str]
    partition: int | None

    @property
    def bytes_beside(self) -> int:
        """The size of what each record has beside its line."""
        return sum(map(len, (self.key or "", *self.headers, *self.headers.values())))

    def record(self, line: bytes, number: int) -> NewRecord | None:
        """The record of one line without its end; None for an empty line with --json-lines. Raises: BadLine."""
        key: str | bytes | None = self.key
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)  # Windows writes it; nobody means it
        if self.key_separator is not None:
            found, separator, value = line.partition(self.key_separator)
            if not separator:
                raise BadLine(number, f"no {self.key_separator.decode()!r} after a key")
            key, line = _text(found), value
        if self.as_json and not line.strip():
            return None
        return NewRecord(self._value(line, number), key, self.headers, self.partition)

    def _value(self, line: bytes, number: int) -> Any:
        if not self.as_json:
            return _text(line)
        try:
            line.decode()
            msgspec.json.decode(line, type=msgspec.Raw)  # no number is too large to be stored
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise BadLine(number, f"not JSON: {fault}") from None
        except RecursionError:
            raise BadLine(number, "the JSON nests too deeply") from None
        return msgspec.Raw(line.strip())


def _text(data: bytes) -> str | bytes:
    """The text, or the bytes if they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def open_input(file: str) -> int:
    """The input's descriptor. Raises: click.UsageError: it cannot be opened."""
    if file == "-":
        if sys.stdin is None:
            raise click.UsageError("stdin is closed; name a FILE")
        return sys.stdin.fileno()
    try:
        return os.open(file, os.O_RDONLY | getattr(os, "O_BINARY", 0))  # Windows changes line ends otherwise
    except OSError as fault:
        raise click.UsageError(f"{file}: {fault.strerror}") from None


async def read_lines(file: int) -> Blocks:
    """The lines of a file without their ends. Raises: BadLine."""
    number = 1
    begun: list[bytes] = []  # parts of the line whose end has not arrived
    while data := await outside(os.read, file, READ_BYTES):
        *ends, rest = data.split(b"\n")
        if ends:
            lines = [b"".join((*begun, ends[0])), *ends[1:]]
            yield [line.removesuffix(b"\r") for line in lines]
            number, begun = number + len(lines), []
        begun.append(rest)
        if sum(map(len, begun)) > LONGEST_LINE_BYTES:
            raise BadLine(number, f"it has more than {LONGEST_LINE_BYTES} bytes, the most that any topic allows")
    if any(begun):
        yield [b"".join(begun)]


async def one_line(value: str) -> Blocks:
    yield [os.fsencode(value)]

"""`sharequeue produce`: lines become records, in order, many to a request."""

import asyncio
import contextlib
import os
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from sharequeue.cli.commands import INTERRUPTED, complain
from sharequeue.cli.completion import complete_topic
from sharequeue.cli.output import (
    REFUSED,
    WRONG_USAGE,
    check_reachable,
    explain,
    json_option,
    key_values,
    outside,
    run,
    say,
    url_option,
)
from sharequeue.cli.printing import stopping
from sharequeue.client import ApiError, NewRecord, Pending, Producer

READ_BYTES: Final = 256 * 1024
LONG_INPUT_BYTES: Final = 1024 * 1024
LONGEST_LINE_BYTES: Final = 52_428_800
"""The most that max.message.bytes can be."""
IN_FLIGHT_RECORDS: Final = 5000
"""Records whose place is not known yet; more are not read before some are durable."""
SETTLE_S: Final = 3.0
"""How long after Ctrl-C requests under way may take."""


class BadLine(Exception):
    """A line of the input that cannot become a record."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(f"line {number}: {why}")


class Lines:
    """What the lines of the input become."""

    def __init__(
        self,
        *,
        as_json: bool,
        key: str | None,
        key_separator: str | None,
        headers: dict[str, str],
        partition: int | None,
    ) -> None:
        self._as_json = as_json
        self._key = key
        self._key_separator = None if key_separator is None else key_separator.encode()
        self._headers = headers
        self._partition = partition

    def record(self, line: bytes, number: int) -> NewRecord | None:
        """The record of one line without its end; None for an empty line of JSON lines. Raises: BadLine."""
        key: str | bytes | None = self._key
        if self._key_separator is not None:
            found, separator, value = line.partition(self._key_separator)
            if not separator:
                raise BadLine(number, f"there is no {self._key_separator.decode()!r} behind a key")
            key, line = _text(found), value
        if self._as_json and not line.strip():
            return None
        return NewRecord(self._value(line, number), key, self._headers, self._partition)

    def _value(self, line: bytes, number: int) -> Any:
        if not self._as_json:
            return _text(line)
        try:
            line.decode()
            msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise BadLine(number, f"not JSON: {fault}") from None
        except RecursionError:
            raise BadLine(number, "nested too deeply") from None
        return msgspec.Raw(line.strip())


def _text(data: bytes) -> str | bytes:
    """Text, or the bytes as they are where they are none."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


class Where:
    """Where the records went, by partition."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.counts: Counter[int] = Counter()
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self.last_line = 0
        """Of those that are appended."""
        self.doubtful: list[int] = []
        """Lines of which nobody knows whether they are appended."""

    def add(self, line: int, partition: int, offset: int) -> None:
        self.last_line = line
        self.counts[partition] += 1
        self._first.setdefault(partition, offset)
        self._last[partition] = offset

    def so_far(self) -> str:
        """What is certain when the command ends early."""
        total = self.counts.total()
        parts = [f"{total} record{'' if total == 1 else 's'} appended, up to line {self.last_line}"]
        if not total:
            parts = ["no record appended"]
        if self.doubtful:
            first, last = self.doubtful[0], self.doubtful[-1]
            parts.append(f"not known of line {first}" + (f" to {last}" if last > first else ""))
        return "; ".join(parts)

    def as_json(self) -> bytes:
        return msgspec.json.encode(
            {
                "topic": self.topic,
                "record_count": self.counts.total(),
                "partitions": [
                    {
                        "partition": partition,
                        "record_count": count,
                        "first_offset": self._first[partition],
                        "last_offset": self._last[partition],
                    }
                    for partition, count in sorted(self.counts.items())
                ],
            }
        )

    def __str__(self) -> str:
        total = self.counts.total()
        places = "; ".join(
            f"partition {partition}: {count}, offsets {self._first[partition]} to {self._last[partition]}"
            for partition, count in sorted(self.counts.items())
        )
        return f"{total} record{'' if total == 1 else 's'} to {self.topic}" + (f" ({places})" if places else "")


async def _read_lines(file: int) -> AsyncIterator[tuple[bytes, int]]:
    """The lines of a file descriptor as they come, without their ends, and how many bytes each took. Raises: BadLine."""
    number, size = 1, 0
    begun: list[bytes] = []  # of the line whose end has not come yet
    while data := await outside(os.read, file, READ_BYTES):
        *ends, rest = data.split(b"\n")
        for end in ends:
            line = b"".join((*begun, end))
            yield line.removesuffix(b"\r"), len(line) + 1
            number, begun, size = number + 1, [], 0
        begun.append(rest)
        size += len(rest)
        if size > LONGEST_LINE_BYTES:
            raise BadLine(number, f"it has more than {LONGEST_LINE_BYTES} bytes, which no topic takes")
    if size:
        yield b"".join(begun), size


@contextmanager
def _progress(size: int | None) -> Iterator[Progress | None]:
    """A bar on stderr while long input is read on a terminal. `size`: bytes, None if nobody knows."""
    console = Console(stderr=True)
    if not console.is_terminal or (size is not None and size < LONG_INPUT_BYTES):
        yield None
        return
    columns = (TextColumn("producing"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        progress.add_task("producing", total=size)
        yield progress


def _open(file: str) -> tuple[int, int | None]:
    """The input's descriptor and its size in bytes, None if nobody knows. Exits with 2 if there is none."""
    if file == "-":
        if sys.stdin is None:
            say("sharequeue produce: stdin is closed: name a FILE")
            raise click.exceptions.Exit(WRONG_USAGE)
        return sys.stdin.fileno(), None
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        return descriptor, os.fstat(descriptor).st_size
    except OSError as fault:
        say(f"sharequeue produce: {file}: {fault.strerror}")
        raise click.exceptions.Exit(WRONG_USAGE) from None


@click.command()
@click.argument("topic", shell_complete=complete_topic)
@click.argument("file", default="-")
@click.option("--json-lines", is_flag=True, help="each line is a JSON value; else each line is a string")
@click.option("--key", help="the key of every record")
@click.option("--key-separator", help="what stands between key and value in each line")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="of every record; repeatable")
@click.option("--partition", type=click.IntRange(min=0), help="the partition of every record")
@json_option
@url_option
@run
async def produce(
    topic: str,
    file: str,
    json_lines: bool,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    as_json: bool,
    url: str,
) -> None:
    """Produce each line of FILE, or of stdin, as a record of TOPIC.

    Lines that are not UTF-8 go as bytes. Records keep the order of the lines. A line that is refused ends the command;
    its neighbours may have been sent by then, and the count says how many were. After Ctrl-C it sends what it has read,
    for 3 seconds at most, says which lines are records now, and exits with 130.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("give --key or --key-separator, not both")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    lines = Lines(
        as_json=json_lines,
        key=key,
        key_separator=key_separator,
        headers=key_values(headers, "--header"),
        partition=partition,
    )
    descriptor, size = _open(file)
    await check_reachable(url)
    where = Where(topic)
    fault: Exception | None = None
    interrupted = False
    with _progress(size) as progress:
        sending = Sending(url, topic, lines, where, progress)
        try:
            interrupted = await sending.run(descriptor)
        except (BadLine, ApiError, OSError) as error:
            fault = error
    if as_json:
        click.echo(where.as_json())
    elif where.counts or (fault is None and not interrupted):
        click.echo(str(where))
    if interrupted:
        if sending.failed is not None and sending.failed.problem is not None:
            explain(sending.failed, as_json=as_json)
        detail = f"interrupted: {where.so_far()}; nothing was sent of the lines behind"
        complain(detail, as_json=as_json, code="INTERRUPTED", by="sharequeue produce")
        raise click.exceptions.Exit(INTERRUPTED)
    if fault is None:
        return
    say(f"sharequeue produce: stopped: {where.so_far()}")
    if isinstance(fault, ApiError):
        raise fault
    complain(str(fault), as_json=as_json, by="sharequeue produce")
    raise click.exceptions.Exit(REFUSED)


class Sending:
    """Sends the lines of the input, and notes in `where` what became of each."""

    def __init__(self, url: str, topic: str, lines: Lines, where: Where, progress: Progress | None) -> None:
        self._producer = Producer(url)
        self._topic = topic
        self._lines = lines
        self._where = where
        self._progress = progress
        self._waiting: deque[tuple[int, Pending]] = deque()
        """Lines that were handed over, in order, whose outcome was not noted yet."""
        self._all_read = False
        self.failed: ApiError | None = None
        """Why a line that was under way at a Ctrl-C is not appended."""

    async def run(self, descriptor: int) -> bool:
        """Send all lines. After the first Ctrl-C nothing more is read, and what was read is sent for `SETTLE_S` at most.

        Returns: whether it was interrupted before all was sent. Raises: BadLine: nothing behind that line was sent.
            ApiError: a record was refused. OSError: the input cannot be read. In each case `where` has all that was sent.
        """
        sending = asyncio.ensure_future(self._send(descriptor))
        with stopping(sending.cancel):
            await asyncio.wait([sending])
            with contextlib.suppress(ApiError):  # of what is given up now; `_settle` counts it
                await self._producer.close(timeout_ms=SETTLE_S * 1000)
            try:
                await self._settle()
            except ApiError as error:
                self.failed = error
        if not sending.cancelled():
            sending.result()
        return sending.cancelled() and (self.failed is not None or not self._all_read)

    async def _send(self, descriptor: int) -> None:
        number = 0
        try:
            async for line, size in _read_lines(descriptor):
                number += 1
                record = self._lines.record(line, number)
                if record is not None:
                    pending = await self._producer.send_soon(
                        self._topic, record.value, key=record.key, headers=record.headers, partition=record.partition
                    )
                    self._waiting.append((number, pending))
                if self._progress is not None:
                    self._progress.advance(self._progress.task_ids[0], size)
                if len(self._waiting) >= IN_FLIGHT_RECORDS:
                    await self._settle()
        except (BadLine, OSError):
            await self._settle()
            raise
        self._all_read = True
        await self._settle()

    async def _settle(self) -> None:
        """Note what became of the lines that wait. Raises: ApiError: of the first that is not appended."""
        failed: ApiError | None = None
        while self._waiting:
            line, pending = self._waiting[0]
            try:
                place = await pending
            except ApiError as error:
                if not error.definite:
                    self._where.doubtful.append(line)
                failed = failed or error
            else:
                self._where.add(line, place.partition, place.offset)
            self._waiting.popleft()
        if failed is not None:
            raise failed

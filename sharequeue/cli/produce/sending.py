"""Sends the lines of `sharequeue produce` in order, one request after another. Each is appended whole or not at all, so
what is appended ends at one line."""

import asyncio
import contextlib
import re
from typing import Any, Final

from sharequeue.cli.login import variables
from sharequeue.cli.printing import stopping
from sharequeue.cli.produce.lines import BadLine, Blocks, Lines
from sharequeue.client import ApiError, NewRecord, Producer

MOST_LINES: Final = 1000
MOST_BYTES: Final = 256 * 1024
"""Of the lines of a request, with the key and the headers of the options; a longer line ends it."""
RECORD: Final = re.compile(r"^record (\d+)\b")
"""The first words about a record of a request."""
SETTLE_S: Final = 3.0
"""How long the request under way may take after Ctrl-C."""


class Sending:
    """Sends the lines of the input, and knows which are appended."""

    def __init__(self, url: str, topic: str, lines: Lines) -> None:
        self._producer = Producer(
            url, max_batch_records=MOST_LINES, max_batch_bytes=32 * MOST_BYTES, **variables().options
        )
        self.topic = topic
        self._lines = lines
        self._stopped = False
        self._places: dict[int, list[int]] = {}
        """Of each partition: how many records, the first offset, the last."""
        self.last_line = 0
        """All lines up to this one are appended."""
        self._unknown: tuple[int, int] | None = None
        """The first and the last line of a request without an answer."""

    async def run(self, blocks: Blocks) -> bool:
        """Send all lines. Ctrl-C ends it after the request under way, which gets `SETTLE_S`.

        Returns: whether Ctrl-C came before all lines were sent. Raises: BadLine, ApiError: this line, or a line of this
            request, is refused, and no later one was sent. OSError: the input cannot be read.
        """
        sending = asyncio.ensure_future(self._send(blocks))
        stop = asyncio.Event()
        with stopping(stop.set):
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait({sending, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self._stopped = stop.is_set()
            stopped.cancel()
            if self._unknown is not None:
                await asyncio.wait({sending}, timeout=SETTLE_S)
            sending.cancel()
            await asyncio.wait({sending})
            with contextlib.suppress(ApiError):  # `_append` raises those that count
                await self._producer.close(timeout_ms=0)
        if not sending.cancelled():
            sending.result()
        return sending.cancelled()

    async def _send(self, blocks: Blocks) -> None:
        number, beside = 0, self._lines.bytes_beside
        part: list[tuple[int, NewRecord]] = []
        async for block in blocks:
            size = 0
            try:
                for line in block:
                    number += 1
                    record = self._lines.record(line, number)
                    if record is not None:
                        part.append((number, record))
                    size += len(line) + beside
                    if len(part) == MOST_LINES or size >= MOST_BYTES:
                        await self._append(part)
                        size = 0
            except BadLine:
                await self._append(part)
                raise
            await self._append(part)

    async def _append(self, part: list[tuple[int, NewRecord]]) -> None:
        """Append the records of lines, and empty the list. Raises: ApiError: none is appended, or that is not known."""
        if not part:
            return
        if self._stopped:
            raise asyncio.CancelledError
        self._unknown = part[0][0], part[-1][0]
        try:
            produced = await self._producer.send_many(self.topic, [record for _, record in part])
        except ApiError as error:
            if found := RECORD.match(error.detail):
                error.detail = f"line {part[int(found[1])][0]}: the record{error.detail[found.end() :]}"
            if error.definite:
                self._unknown = None
            raise
        for place in produced:
            known = self._places.setdefault(place.partition, [0, place.offset, place.offset])
            known[0], known[2] = known[0] + 1, place.offset
        self.last_line, self._unknown = part[-1][0], None
        part.clear()

    @property
    def record_count(self) -> int:
        return sum(count for count, *_ in self._places.values())

    def so_far(self) -> str:
        """The results in words, if the command ends early."""
        said = f"{_counted(self.record_count)} appended, up to line {self.last_line}"
        said = said if self.record_count else "no record appended"
        return said if self._unknown is None else f"{said}; unknown for lines {self._unknown[0]} to {self._unknown[1]}"

    def as_json(self) -> dict[str, Any]:
        names = "partition", "record_count", "first_offset", "last_offset"
        rows = [dict(zip(names, (number, *place), strict=True)) for number, place in sorted(self._places.items())]
        unknown = [] if self._unknown is None else [self._unknown]
        return {"topic": self.topic, "record_count": self.record_count, "unknown_lines": unknown, "partitions": rows}

    def __str__(self) -> str:
        places = "; ".join(
            f"partition {number}: {count}, offsets {first} to {last}"
            for number, (count, first, last) in sorted(self._places.items())
        )
        return f"{_counted(self.record_count)} to {self.topic}" + (f" ({places})" if places else "")


def _counted(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"

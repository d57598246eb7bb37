"""Sends the lines of `sharequeue produce`, many at a time, and keeps the result of each."""

import asyncio
import contextlib
import re
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

import msgspec

from sharequeue.cli.login import variables
from sharequeue.cli.printing import stopping
from sharequeue.cli.produce.lines import BadLine, Lines, read_lines
from sharequeue.client import ApiError, Pending, Producer
from sharequeue.client.consuming.deliveries import runs

IN_FLIGHT_RECORDS: Final = 5000
"""Reading waits while this many records have no result."""
RECORD_0: Final = re.compile(r"^record 0\b")
"""The first words about a record that is alone in its request."""
SETTLE_S: Final = 3.0
"""How long requests may take after Ctrl-C."""


class Where:
    """The places of the appended records, by partition."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.counts: Counter[int] = Counter()
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self.last_line = 0
        """The last line that has a result."""
        self.refused: list[int] = []
        """Lines that are surely not appended."""
        self.doubtful: list[int] = []
        """Lines that may be appended or not: their answer was lost."""

    def add(self, line: int, partition: int, offset: int) -> None:
        self.counts[partition] += 1
        self._first.setdefault(partition, offset)
        self._last[partition] = offset

    def so_far(self) -> str:
        """The results in words, if the command ends early."""
        total = self.counts.total()
        missing = sorted(self.refused + self.doubtful)
        parts = [f"{total} record{'' if total == 1 else 's'} appended" if total else "no record appended"]
        if total and not missing:
            parts[0] += f", up to line {self.last_line}"
        if self.refused:
            parts.append(f"not taken: {_lines(self.refused)}")
        if self.doubtful:
            parts.append(f"unknown for {_lines(self.doubtful)}")
        if missing:
            wanted = ";".join(",".join(map(str, dict.fromkeys(span))) + "p" for span in runs(missing))
            parts.append(f"`sed -n '{wanted};{self.last_line + 1},$p'` picks these lines and those that were not sent")
        return "; ".join(parts)

    def as_json(self) -> bytes:
        return msgspec.json.encode(
            {
                "topic": self.topic,
                "record_count": self.counts.total(),
                "refused_lines": list(runs(self.refused)),
                "unknown_lines": list(runs(self.doubtful)),
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


def _lines(lines: Sequence[int]) -> str:
    spans = [f"{first} to {last}" if last > first else f"{first}" for first, last in runs(lines)]
    return f"line{'' if len(lines) == 1 else 's'} {', '.join(spans)}"


class Sending:
    """Sends the lines of the input, and notes the result of each in `where`."""

    def __init__(self, url: str, topic: str, lines: Lines, where: Where) -> None:
        self._producer = Producer(url, **variables().options)
        self._topic = topic
        self._lines = lines
        self._where = where
        self._waiting: deque[tuple[int, Pending]] = deque()
        """Lines that were handed to the producer and have no result yet, in order."""
        self._all_read = False
        self.failed: ApiError | None = None
        """The error of a line that was under way at Ctrl-C."""

    async def run(self, descriptor: int) -> bool:
        """Send all lines. After the first Ctrl-C it reads no more, and sends the lines that it has read for at most
        `SETTLE_S`.

        Returns: whether Ctrl-C came before all lines were sent. Raises: BadLine: no line after that one was sent.
            ApiError: a record was refused. OSError: the input cannot be read. In each case `where` has the results.
        """
        sending = asyncio.ensure_future(self._send(descriptor))
        with stopping(sending.cancel):
            await asyncio.wait([sending])
            with contextlib.suppress(ApiError):  # of requests that are given up now; `_settle` notes them
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
            async for line in read_lines(descriptor):
                number += 1
                record = self._lines.record(line, number)
                if record is not None:
                    pending = await self._producer.send_soon(
                        self._topic, record.value, key=record.key, headers=record.headers, partition=record.partition
                    )
                    self._waiting.append((number, pending))
                if len(self._waiting) >= IN_FLIGHT_RECORDS:
                    await self._settle()
        except (BadLine, OSError):
            await self._settle()
            raise
        self._all_read = True
        await self._settle()

    async def _settle(self) -> None:
        """Note the results of the lines that wait. Raises: ApiError: the error of the first that is not appended."""
        failed: ApiError | None = None
        while self._waiting:
            line, pending = self._waiting[0]
            try:
                place = await pending
            except ApiError as error:
                (self._where.refused if error.definite else self._where.doubtful).append(line)
                if failed is None:
                    failed = error
                    failed.detail = f"line {line}: {RECORD_0.sub('the record', error.detail)}"
            else:
                self._where.add(line, place.partition, place.offset)
            self._where.last_line = line
            self._waiting.popleft()
        if failed is not None:
            raise failed

"""One run of `sharequeue consume`: polls, prints, and settles the records that were printed."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from sharequeue.cli.output import outside
from sharequeue.cli.printing import Printer
from sharequeue.client import Record, ShareConsumer

Word = Literal["accept", "release", "reject"]
POLL_S: Final = 30.0


@dataclass(eq=False)
class Consumption:
    """Polls a consumer and prints, until it is stopped."""

    _consumer: ShareConsumer
    _printer: Printer
    word: Word
    """The outcome of every record."""
    reason: str | None
    max_records: int | None
    _stopped: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _to_release: list[Record] = field(init=False, default_factory=list)
    count: int = field(init=False, default=0)

    def stop(self) -> None:
        self._printer.stop.set()
        self._stopped.set()

    @property
    def _over(self) -> bool:
        enough = self.max_records is not None and self.count >= self.max_records
        return enough or self._printer.broken or self._stopped.is_set()

    async def run(self, patience_s: float | None) -> None:
        """Run until `max_records` are printed, it is stopped, stdout is closed or no record came for `patience_s`."""
        idle_since = time.monotonic()
        while not self._over:
            wait_s = POLL_S
            if patience_s is not None:
                wait_s = min(POLL_S, max(0.0, idle_since + patience_s - time.monotonic()))
            records = await self._poll(wait_s)
            if records:
                await self._settle(records)
                idle_since = time.monotonic()
            elif patience_s is not None and time.monotonic() >= idle_since + patience_s:
                return

    async def _poll(self, wait_s: float) -> list[Record]:
        polling = asyncio.ensure_future(self._consumer.poll(wait_s * 1000))
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait((polling, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not polling.done():
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                return await polling
            return []
        return polling.result()

    async def _settle(self, records: list[Record]) -> None:
        if self.max_records is not None:
            most = self.max_records - self.count
            self._give_back(records[most:])
            records = records[:most]
        printed = await outside(self._printer.print, records)
        self.count += printed
        self._give_back(records[printed:])
        for record in records[:printed]:
            if self.word == "release":
                self._to_release.append(record)
            else:
                self._consumer.acknowledge(record, self.word, reason=self.reason if self.word == "reject" else None)
        (await self._consumer.commit()).raise_failures()

    def _give_back(self, records: Sequence[Record]) -> None:
        """Release records that were not printed: nobody has begun with them."""
        for record in records:
            self._consumer.acknowledge(record, "release", begun=False)

    async def release(self) -> None:
        """Release the records of --release. It is done at the end, or they would be fetched and printed again."""
        for record in self._to_release:
            self._consumer.acknowledge(record, "release", reason=self.reason)
        (await self._consumer.commit()).raise_failures()

"""One run of `sharequeue consume`: polls, prints, and settles the records that were printed."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Final, Literal

import click

from sharequeue.cli.output import outside
from sharequeue.cli.printing import Printer
from sharequeue.client import Record, ShareConsumer

Word = Literal["accept", "release", "reject"]
ANSWERS: Final[dict[str, Word]] = {"a": "accept", "r": "release", "x": "reject"}
QUIT: Final = "q"
POLL_S: Final = 30.0


def _ask(record: Record) -> Word | None:
    """Ask on stderr for the outcome of the record just printed, and read it from stdin. None: the user quits."""
    while True:
        place = f"{record.topic}-{record.partition} offset {record.offset}"
        click.echo(f"{place}: [a]ccept, [r]elease, [x] reject, [q]uit? ", nl=False, err=True)
        answer = sys.stdin.readline()
        if not answer or answer.strip() == QUIT:
            return None
        if answer.strip() in ANSWERS:
            return ANSWERS[answer.strip()]


class Consumption:
    """Polls a consumer and prints, until it is stopped."""

    def __init__(
        self,
        consumer: ShareConsumer,
        printer: Printer,
        *,
        word: Word | None,
        reason: str | None,
        max_records: int | None,
    ) -> None:
        """`word`: the outcome of every record; None: the user is asked for each."""
        self._consumer = consumer
        self._printer = printer
        self._word = word
        self._reason = reason
        self._max_records = max_records
        self._stopped = asyncio.Event()
        self._to_release: list[Record] = []
        self.count = 0

    def stop(self) -> None:
        self._printer.stop.set()
        self._stopped.set()

    @property
    def _over(self) -> bool:
        enough = self._max_records is not None and self.count >= self._max_records
        return enough or self._printer.broken or self._stopped.is_set()

    async def run(self, patience_s: float | None) -> bool:
        """Run until `max_records` are printed, stdout is closed, `stop` is called, or no record came for `patience_s`.

        Returns: whether it ended because no record came.
        """
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
                return True
        return False

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
        """Print records and choose their outcomes."""
        if self._max_records is not None:
            most = self._max_records - self.count
            self._give_back(records[most:])
            records = records[:most]
        if self._word is None:
            await self._settle_one_by_one(records)
            return
        printed = await outside(self._printer.print, records)
        self.count += printed
        self._give_back(records[printed:])
        for record in records[:printed]:
            self._choose(record, self._word)
        await self._consumer.commit()

    async def _settle_one_by_one(self, records: list[Record]) -> None:
        for place, record in enumerate(records):
            word = None
            shown = not self._over and await outside(self._printer.print, [record]) == 1
            if shown:
                word = await self._ask(record)
            if word is None:
                self._give_back(records[place + shown :])
                self.stop()
                return
            self.count += 1
            self._choose(record, word)
            await self._consumer.commit()

    def _give_back(self, records: Sequence[Record]) -> None:
        """Release records that were not printed: nobody has begun with them."""
        for record in records:
            self._consumer.acknowledge(record, "release", begun=False)

    async def _ask(self, record: Record) -> Word | None:
        """The outcome of a record; None: the user quits, or `stop` was called."""
        asking = asyncio.ensure_future(outside(_ask, record))
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait((asking, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return asking.result() if asking.done() else None

    def _choose(self, record: Record, word: Word) -> None:
        if word == "release":
            self._to_release.append(record)
        else:
            self._consumer.acknowledge(record, word, reason=self._reason if word == "reject" else None)

    async def release(self) -> None:
        """Release the records of --release. It is done at the end, or they would be fetched and printed again."""
        for record in self._to_release:
            self._consumer.acknowledge(record, "release", reason=self._reason)
        await self._consumer.commit()

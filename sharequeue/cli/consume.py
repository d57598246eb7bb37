"""`sharequeue consume`: print records and settle what was printed."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Sequence
from typing import Any, Final, Literal

import click

from sharequeue.cli.commands import complain
from sharequeue.cli.completion import complete_group, complete_topic
from sharequeue.cli.output import REFUSED, WRONG_USAGE, ask, json_option, outside, run, say, url_option, without_http
from sharequeue.cli.printing import Printer, stopping
from sharequeue.client import ApiError, Record, ShareConsumer
from sharequeue.protocol import apis
from sharequeue.protocol.errors import UnknownTopicOrPartition

Word = Literal["accept", "release", "reject"]
ANSWERS: Final[dict[str, Word]] = {"a": "accept", "r": "release", "x": "reject"}
QUIT: Final = "q"
POLL_S: Final = 30.0
SAID: Final[dict[Word | None, str]] = {
    None: "settled",
    "accept": "accepted",
    "release": "released",
    "reject": "rejected",
}


def _ask(record: Record) -> Word | None:
    """What to do with a record that was just printed; None: leave. Asks on stderr, reads stdin."""
    while True:
        place = f"{record.topic}-{record.partition} offset {record.offset}"
        click.echo(f"{place}: [a]ccept, [r]elease, [x] reject, [q]uit? ", nl=False, err=True)
        answer = sys.stdin.readline()
        if not answer or answer.strip() == QUIT:
            return None
        if answer.strip() in ANSWERS:
            return ANSWERS[answer.strip()]


class Consumption:
    """One run of the command."""

    def __init__(
        self,
        consumer: ShareConsumer,
        printer: Printer,
        *,
        word: Word | None,
        reason: str | None,
        max_records: int | None,
    ) -> None:
        """`word`: what is said of every record; None asks for each."""
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
        """Go on until enough is printed, nobody reads, `stop` is called, or nothing came for `patience_s`.

        Returns: whether the last was the cause.
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
        """Print records and say what becomes of them; those not printed are released when the consumer is closed."""
        if self._max_records is not None:
            records = records[: self._max_records - self.count]
        if self._word is None:
            await self._settle_one_by_one(records)
            return
        printed = await outside(self._printer.print, records)
        self.count += printed
        for record in records[:printed]:
            self._say_of(record, self._word)
        await self._consumer.commit()

    async def _settle_one_by_one(self, records: list[Record]) -> None:
        for record in records:
            word = None
            if not self._over and await outside(self._printer.print, [record]) == 1:
                word = await self._ask(record)
            if word is None:
                self.stop()
                return
            self.count += 1
            self._say_of(record, word)
            await self._consumer.commit()

    async def _ask(self, record: Record) -> Word | None:
        """What is to become of a record; None: leave."""
        asking = asyncio.ensure_future(outside(_ask, record))
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait((asking, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        return asking.result() if asking.done() else None

    def _say_of(self, record: Record, word: Word) -> None:
        if word == "release":
            self._to_release.append(record)
        else:
            self._consumer.acknowledge(record, word, reason=self._reason if word == "reject" else None)

    async def release(self) -> None:
        """Give back what was kept for that: not before the end, or it would be fetched and printed again."""
        for record in self._to_release:
            self._consumer.acknowledge(record, "release", reason=self._reason)
        await self._consumer.commit()


class Warnings(logging.Handler):
    """Says what the client warns of, but for topics of which it was said before that they do not exist."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(logging.WARNING)
        self._missing = frozenset(missing)

    def emit(self, record: logging.LogRecord) -> None:
        if not (isinstance(record.args, tuple) and record.args and record.args[0] in self._missing):
            say(f"sharequeue consume: {without_http(record.getMessage())}")


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic)
@click.option("--group", "-g", required=True, shell_complete=complete_group, help="the share group")
@click.option("--explicit", is_flag=True, help="ask about each record, on a terminal")
@click.option("--release", is_flag=True, help="give the records back when all are printed")
@click.option("--reject", is_flag=True, help="send each record to the dead-letter queue after it is printed")
@click.option("--reason", help="why, with --release, --reject or --explicit")
@click.option("--max-records", type=click.IntRange(min=1), help="stop after so many")
@click.option("--follow", "-f", is_flag=True, help="go on waiting for records")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=3.0,
    show_default=True,
    help="seconds without a record after which to stop",
)
@click.option("--member-id", help="who this is: 1 to 36 characters")
@json_option
@url_option
@run
async def consume(
    topics: tuple[str, ...],
    group: str,
    explicit: bool,
    release: bool,
    reject: bool,
    reason: str | None,
    max_records: int | None,
    follow: bool,
    timeout: float,
    member_id: str | None,
    as_json: bool,
    url: str,
) -> None:
    """Print the records of TOPIC a group has not settled yet, and accept what was printed.

    One value a line; --json prints whole records. What was fetched and not printed is released: nobody reads stdout
    any more, --max-records is reached, Ctrl-C. --release keeps its records locked until the command ends; so a group
    hands it no more than share.partition.max.record.locks of each partition.

    A TOPIC that does not exist is waited for. If it still does not exist after --timeout, the command exits with 1.
    """
    if explicit + release + reject > 1:
        raise click.UsageError("--explicit, --release and --reject exclude each other")
    if reason is not None and not (explicit or release or reject):
        raise click.UsageError("--reason goes with --release, --reject or --explicit")
    if sys.stdout is None:
        say("sharequeue consume: stdout is closed: there is nowhere to print to")
        raise click.exceptions.Exit(WRONG_USAGE)
    if explicit and (sys.stdin is None or not sys.stdin.isatty()):
        raise click.UsageError("--explicit asks on a terminal; stdin is none")
    missing = await _missing(url, topics)
    warnings = Warnings(missing)
    if missing:
        how_long = "" if follow else f" for {timeout:g} s"
        say(f"sharequeue consume: there is no {_named(missing)}; waiting for it{how_long}")
    word: Word | None = None if explicit else "release" if release else "reject" if reject else "accept"
    printer = Printer(as_json=as_json)
    options: dict[str, Any] = {"member_id": member_id, "acknowledgement": "deferred"}
    if max_records is not None:
        options["max_records"] = min(max_records, 500)
    logging.getLogger("sharequeue").addHandler(warnings)
    try:
        consumer = ShareConsumer(url, group, topics, **options)
        consumption = Consumption(consumer, printer, word=word, reason=reason, max_records=max_records)
        with stopping(consumption.stop):  # until all is released: the first Ctrl-C never cuts that off
            async with consumer:
                in_vain = await consumption.run(None if follow else timeout)
                await consumption.release()
    finally:
        printer.close()
        logging.getLogger("sharequeue").removeHandler(warnings)
    say(f"{consumption.count} record{'' if consumption.count == 1 else 's'} {SAID[word]}")
    if missing and in_vain:
        missing = await _missing(url, missing)
        if missing:
            complain(f"there is no {_named(missing)}", as_json=as_json, code=UnknownTopicOrPartition.error.code)
            raise click.exceptions.Exit(REFUSED)


async def _missing(url: str, topics: Sequence[str]) -> list[str]:
    """The topics that do not exist. Raises: ApiError: the service is out of reach, or such a name cannot be."""
    missing = []
    for topic in dict.fromkeys(topics):
        try:
            await ask(url, apis.DESCRIBE_TOPIC, topic=topic)
        except ApiError as error:
            if error.error is not UnknownTopicOrPartition.error:
                raise
            missing.append(topic)
    return missing


def _named(topics: Sequence[str]) -> str:
    return f"topic{'' if len(topics) == 1 else 's'} {', '.join(map(repr, topics))}"

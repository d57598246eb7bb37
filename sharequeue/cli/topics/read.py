"""`sharequeue topics read`: records by offset, without a group."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

import click

from sharequeue.cli.commands import INTERRUPTED
from sharequeue.cli.login import client_of
from sharequeue.cli.output import Gateway, asks_gateway, outside
from sharequeue.cli.printing import Printer, stopping
from sharequeue.cli.topics.administration import name_argument
from sharequeue.client.consuming.deliveries import Delivery
from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import FetchedBatch, ReadRecordsQuery, RecordPage
from sharequeue.protocol.messages.topics import TopicDescription
from sharequeue.protocol.types import MAX_INT64
from sharequeue.repeats import heard
from sharequeue_http.calling.caller import Client

READ_AT_ONCE: Final = 1000
LOOK_EVERY_S: Final = 0.5
"""How often `--follow` asks for the end of the log."""


@dataclass(eq=False)
class Reading:
    """Reads one partition of a topic, or all, and prints the records. Each `read` begins where the last one ended."""

    _client: Client
    _topic: str
    _printer: Printer
    partition: int | None
    """None: all of them."""
    offset: int | None
    """The first to read in `partition`; None: the log start."""
    left: int | None
    """How many records may still be printed; None: any number."""
    _topic_id: str | None = field(init=False, default=None)
    """That of the first look: a later topic of this name is another one."""
    _next: dict[int, int] = field(init=False, default_factory=dict)
    """The next offset to read, by partition."""

    @property
    def over(self) -> bool:
        return self.left == 0 or self._printer.broken or self._printer.stop.is_set()

    async def read(self) -> None:
        """Print the records up to the log end. Raises: ApiError; click.UsageError: no such partition."""
        if self.partition in self._next:
            await self._read_to(self.partition, MAX_INT64)
            return
        described: TopicDescription = await self._client.call(
            apis.DESCRIBE_TOPIC, path={"topic": self._topic}, retry=False
        )
        self._topic_id = self._topic_id or described.topic_id
        count = len(described.partitions)
        if self.offset is not None and self.partition is None:
            if count > 1:
                raise click.UsageError(f"--offset needs --partition: {self._topic} has {count} partitions")
            self.partition = 0
        if self.partition is not None and self.partition >= count:
            raise click.UsageError(f"{self._topic} has no partition {self.partition}, but 0 to {count - 1}")
        for entry in described.partitions:
            if self.partition == entry.partition:
                self._next[entry.partition] = entry.log_start_offset if self.offset is None else self.offset
                await self._read_to(entry.partition, MAX_INT64)
            elif self.partition is None:
                begin = max(self._next.get(entry.partition, 0), entry.log_start_offset)
                self._next[entry.partition] = begin
                await self._read_to(entry.partition, entry.log_end_offset)

    async def _read_to(self, partition: int, end: int) -> None:
        while self._next[partition] < end and not self.over:
            query = ReadRecordsQuery(
                offset=self._next[partition],
                max_records=READ_AT_ONCE if self.left is None else min(READ_AT_ONCE, self.left),
                topic_id=self._topic_id,
            )
            path = {"topic": self._topic, "partition": partition}
            read: RecordPage = await self._client.call(apis.READ_RECORDS, query, path=path, retry=False)
            if read.next_offset == self._next[partition]:
                return
            self._next[partition] = read.next_offset
            batch = FetchedBatch(
                topic=self._topic,
                topic_id="",
                partition=partition,
                first_offset=0,
                last_offset=0,
                delivery_count=0,
                lock_expires_at_ms=0,
                lock_duration_ms=0,
                attempt=0,
                records=read.records,
            )
            printed = await outside(self._printer.print, list(Delivery(batch).records.values()))
            if self.left is not None:
                self.left -= printed


@click.command()
@name_argument
@click.option("--partition", type=click.IntRange(min=0), help="only this partition; otherwise all, one after another")
@click.option(
    "--offset", type=click.IntRange(min=0), help="the first offset to read in --partition; otherwise the log start"
)
@click.option(
    "--max-records", type=click.IntRange(min=1), help="stop after this many records; otherwise at the log end"
)
@click.option("--follow", "-f", is_flag=True, help="print new records too, until Ctrl-C")
@asks_gateway
async def read(
    name: str,
    partition: int | None,
    offset: int | None,
    max_records: int | None,
    follow: bool,
    gateway: Gateway,
) -> None:
    """Print records of the topic NAME by offset, without a group: no record is locked or settled."""
    printer = Printer(as_json=gateway.as_json)
    client = client_of(gateway.url)
    reading = Reading(client, name, printer, partition=partition, offset=offset, left=max_records)
    stopped = asyncio.Event()

    def stop() -> None:
        printer.stop.set()
        stopped.set()

    try:
        with stopping(stop):
            await reading.read()
            while follow and not reading.over:
                await heard(stopped, LOOK_EVERY_S)
                await reading.read()
        if stopped.is_set() and not follow:
            raise click.exceptions.Exit(INTERRUPTED)
    finally:
        await client.close()
        printer.close()

"""`sharequeue scheduled`: the records of a topic that wait for their time."""

from collections.abc import Sequence
from typing import Final

import click
import msgspec

from sharequeue.cli.commands import Commands
from sharequeue.cli.output import (
    Columns,
    Gateway,
    asks_gateway,
    echo_json,
    key_values,
    length_ms,
    moment_ms,
    say,
    shown_ms,
)
from sharequeue.client import NewRecord
from sharequeue.client.new_record import encode_record
from sharequeue.client.scheduling import When, timed
from sharequeue.protocol import apis
from sharequeue.protocol.messages import scheduled as messages
from sharequeue.protocol.types import MAX_CANCELLED

_COLUMNS: Final[Columns] = {
    "schedule": "schedule_id",
    "deliver at": lambda each: shown_ms(each.deliver_at_ms),
    **{name: name for name in ("partition", "key", "bytes")},
}

_DUE_COLUMNS: Final[Columns] = {
    "deliver at": lambda each: shown_ms(each.deliver_at_ms),
    "topic": "topic",
    "schedule": lambda each: each.name or each.schedule_id,
    **{name: name for name in ("partition", "key", "bytes")},
}


@click.group(cls=Commands)
def scheduled() -> None:
    """Add, list or cancel records that wait for their time."""


@scheduled.command()
@click.argument("topic")
@click.argument("value")
@click.option("--delay", metavar="LENGTH", help="the record enters the topic after this time: 30s, 10m, 24h, 7d")
@click.option("--at", metavar="TIME", help="the record enters the topic at this time, in UTC if it has no zone")
@click.option("--key", help="the key of the record")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="a header of the record; repeatable")
@asks_gateway
async def add(
    topic: str,
    value: str,
    delay: str | None,
    at: str | None,
    key: str | None,
    headers: tuple[str, ...],
    gateway: Gateway,
) -> None:
    """Have a record with VALUE (JSON, otherwise a text) enter TOPIC later."""
    if (delay is None) == (at is None):
        raise click.UsageError("give --delay or --at")
    delay_ms = None if delay is None else length_ms(delay, "--delay")
    record = timed(record_of(value, key, headers), When(None if at is None else moment_ms(at, "--at"), delay_ms))
    answer = await gateway.answered(apis.SCHEDULE_RECORDS, b'{"records":[%b]}' % record, topic=topic)
    if answer is None:
        return
    (found,) = answer.scheduled
    say(f"{found.schedule_id} enters {topic} at {shown_ms(found.deliver_at_ms)}")


@scheduled.command("list")
@click.argument("topic")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="how many to show")
@asks_gateway
async def list_some(topic: str, limit: int, gateway: Gateway) -> None:
    """List and count the scheduled records of TOPIC, the next one due first."""
    listed: list[messages.ScheduledListing] = []
    count = 0
    query = messages.ListScheduledQuery(page_size=min(limit, 1000))
    async for page in gateway.pages(apis.LIST_SCHEDULED_RECORDS, query, topic=topic):
        listed += page.scheduled
        count = page.scheduled_count
        if len(listed) >= limit:
            break
    listed = listed[:limit]
    gateway.show(messages.ScheduledList(scheduled=listed, scheduled_count=count), _COLUMNS, listed)
    if not gateway.as_json:
        say(f"{count} scheduled in {topic}")


@scheduled.command()
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="how many to show")
@asks_gateway
async def due(limit: int, gateway: Gateway) -> None:
    """List what is due next in all topics: scheduled records, and schedules that are not paused."""
    listed: list[messages.DueRecord] = []
    async for page in gateway.pages(apis.LIST_DUE, messages.ListScheduledQuery(page_size=min(limit, 1000))):
        listed += page.due
        if len(listed) >= limit:
            break
    gateway.show(messages.DueList(due=listed[:limit]), _DUE_COLUMNS, listed[:limit])


@scheduled.command()
@click.argument("topic")
@click.argument("schedules", nargs=-1, metavar="[SCHEDULE]...")
@click.option("--key", help="cancel all records with this key, in place of SCHEDULE")
@asks_gateway
async def cancel(topic: str, schedules: tuple[str, ...], key: str | None, gateway: Gateway) -> None:
    """Cancel the records of TOPIC with the ids SCHEDULE, or with a key. Those that have entered the log stay there."""
    if (key is None) == (not schedules):
        raise click.UsageError("give ids or --key")
    cancelled: list[str] = []
    more, place = True, 0
    while more:
        part = list(schedules[place : place + MAX_CANCELLED])
        place += MAX_CANCELLED
        request = messages.CancelScheduledRequest(schedule_ids=part, key=key)
        answer: messages.CancelledRecords = await gateway.call(apis.CANCEL_SCHEDULED_RECORDS, request, topic=topic)
        cancelled += answer.cancelled
        more = answer.more or place < len(schedules)
    if gateway.as_json:
        echo_json(messages.CancelledRecords(cancelled=cancelled))
        return
    missing = sorted({*schedules} - {*cancelled})
    say(f"{len(cancelled)} cancelled" + (f"; not found: {', '.join(missing)}" if missing else ""))


def record_of(value: str, key: str | None, headers: Sequence[str]) -> bytes:
    """A record as JSON. `value`: JSON, otherwise a text."""
    try:
        given = msgspec.json.decode(value, type=msgspec.Raw)
    except msgspec.DecodeError:
        given = msgspec.Raw(msgspec.json.encode(value))
    return encode_record(NewRecord(given, key, key_values(headers, "--header")))

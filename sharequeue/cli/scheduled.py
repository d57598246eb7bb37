"""`sharequeue scheduled`: the records of a topic that wait for their time."""

from datetime import UTC, datetime

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.output import ask, decode, echo_json, json_option, pages, run, say, show_table, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.scheduled import (
    CancelledRecords,
    CancelScheduledRequest,
    ListScheduledQuery,
    ScheduledList,
    ScheduledListing,
)
from sharequeue.protocol.types import MAX_CANCELLED


@click.group(cls=Commands)
def scheduled() -> None:
    """List, read or cancel records that wait for their time; `produce --delay` and `--at` schedule them."""


@scheduled.command("list")
@click.argument("topic")
@click.option("--key", help="only records with this key")
@click.option("--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="how many to show")
@json_option
@url_option
@run
async def list_some(topic: str, key: str | None, limit: int, as_json: bool, url: str) -> None:
    """List and count the scheduled records of TOPIC, the next one due first."""
    listed: list[ScheduledListing] = []
    count = 0
    query = ListScheduledQuery(key=key, page_size=min(limit, 1000))
    async for page in pages(url, apis.LIST_SCHEDULED_RECORDS, query, topic=topic):
        listed += page.scheduled
        count = page.scheduled_count
        if len(listed) >= limit:
            break
    if as_json:
        echo_json(ScheduledList(scheduled=listed[:limit], scheduled_count=count))
        return
    rows = [
        (each.schedule_id, shown_ms(each.deliver_at_ms), each.partition, each.key, each.bytes)
        for each in listed[:limit]
    ]
    show_table(("schedule", "deliver at", "partition", "key", "bytes"), rows)
    say(f"{count} scheduled in {topic}" + ("" if key is None else ", with any key"))


@scheduled.command()
@click.argument("topic")
@click.argument("schedule")
@url_option
@run
async def get(topic: str, schedule: str, url: str) -> None:
    """Print the record with the id SCHEDULE, as JSON."""
    echo_json(await ask(url, apis.GET_SCHEDULED_RECORD, topic=topic, schedule=schedule))


@scheduled.command()
@click.argument("topic")
@click.argument("schedules", nargs=-1, metavar="[SCHEDULE]...")
@click.option("--key", help="cancel all records with this key, in place of SCHEDULE")
@json_option
@url_option
@run
async def cancel(topic: str, schedules: tuple[str, ...], key: str | None, as_json: bool, url: str) -> None:
    """Cancel the records of TOPIC with the ids SCHEDULE, or with a key. Those that have entered the log stay there."""
    if (key is None) == (not schedules):
        raise click.UsageError("give ids or --key")
    cancelled: list[str] = []
    more, place = True, 0
    while more:
        part = list(schedules[place : place + MAX_CANCELLED])
        place += MAX_CANCELLED
        request = CancelScheduledRequest(schedule_ids=part, key=key)
        answer: CancelledRecords = decode(
            await ask(url, apis.CANCEL_SCHEDULED_RECORDS, request, topic=topic), apis.CANCEL_SCHEDULED_RECORDS
        )
        cancelled += answer.cancelled
        more = answer.more or place < len(schedules)
    if as_json:
        echo_json(CancelledRecords(cancelled=cancelled))
        return
    say(f"{len(cancelled)} cancelled" + _not_there(len(schedules) - len(cancelled)))


def _not_there(count: int) -> str:
    return f"; {count} not found: they have entered the log, or were cancelled before" if count > 0 else ""


def shown_ms(at_ms: int) -> str:
    """A time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

"""`sharequeue activity`: how many records went through the queue, by hour."""

import time
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from sharequeue.cli.output import echo_json, json_option, moment_ms, pages, run, show_table, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import ActivityEntry, ActivityReport, ListActivityQuery

PAGE: Final = 10_000
DAY_MS: Final = 24 * 3600 * 1000
COLUMNS: Final = (
    "hour",
    "group",
    "topic",
    "partition",
    "produced",
    "delivered",
    "accepted",
    "released",
    "rejected",
    "expired",
    "dead letters",
)


@click.command()
@click.option(
    "--from", "begin", metavar="TIME", help="a time like 2026-11-21T08:00; UTC if it has no zone  [default: a day ago]"
)
@click.option("--to", "end", metavar="TIME", help="the end, exclusive  [default: now]")
@click.option("--group", "-g", help="only this group")
@click.option("--topic", help="only this topic")
@json_option
@url_option
@run
async def activity(
    begin: str | None, end: str | None, group: str | None, topic: str | None, as_json: bool, url: str
) -> None:
    """Show how many records went through the queue in each hour: produced, delivered, settled, dead.

    Rows without a group count produced records. Hours are UTC. --json adds delivery counts, times to accept, and dead
    letters by cause.
    """
    query = ListActivityQuery(
        from_ms=max(0, round(time.time() * 1000) - DAY_MS) if begin is None else moment_ms(begin, "--from"),
        to_ms=None if end is None else moment_ms(end, "--to"),
        group_id=group,
        topic=topic,
        page_size=PAGE,
    )
    entries: list[ActivityEntry] = []
    async for page in pages(url, apis.LIST_ACTIVITY, query):
        entries += page.activity
    if as_json:
        echo_json(ActivityReport(activity=entries))
    else:
        show_table(COLUMNS, map(_row, entries))


def _row(entry: ActivityEntry) -> tuple[object, ...]:
    return (
        datetime.fromtimestamp(entry.hour_ms / 1000, UTC).strftime("%Y-%m-%dT%H:00"),
        None if entry.group_id is msgspec.UNSET else entry.group_id,
        entry.topic or entry.topic_id,
        entry.partition,
        entry.produced,
        entry.delivered,
        entry.accepted,
        entry.released,
        entry.rejected,
        entry.expired,
        sum(dead.records for dead in entry.dead_letters),
    )

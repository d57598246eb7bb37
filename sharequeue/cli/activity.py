"""`sharequeue activity`: how many records went through the queue, by hour."""

import time
from datetime import UTC, datetime
from typing import Final

import click

from sharequeue.cli.output import Columns, Gateway, asks_gateway, moment_ms
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import ActivityReport, ListActivityQuery

PAGE: Final = 10_000
DAY_MS: Final = 24 * 3600 * 1000
COLUMNS: Final[Columns] = {
    "hour": lambda entry: datetime.fromtimestamp(entry.hour_ms / 1000, UTC).strftime("%Y-%m-%dT%H:00"),
    "group": lambda entry: entry.group_id or None,
    "topic": lambda entry: entry.topic or entry.topic_id,
    **{name: name for name in ("partition", "produced", "delivered", "accepted", "released", "rejected", "expired")},
    "dead letters": lambda entry: sum(dead.records for dead in entry.dead_letters),
}


@click.command()
@click.option(
    "--from", "begin", metavar="TIME", help="a time like 2026-11-21T08:00; UTC if it has no zone  [default: a day ago]"
)
@click.option("--to", "end", metavar="TIME", help="the end, exclusive  [default: now]")
@click.option("--group", "-g", help="only this group")
@click.option("--topic", help="only this topic")
@asks_gateway
async def activity(begin: str | None, end: str | None, group: str | None, topic: str | None, gateway: Gateway) -> None:
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
    entries = await gateway.items("activity", apis.LIST_ACTIVITY, query)
    gateway.show(ActivityReport(activity=entries), COLUMNS, entries)

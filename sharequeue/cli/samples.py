"""`sharequeue samples`: what the cluster, a group or a topic had to do, and did, over the last week."""

from typing import Final

import click

from sharequeue.cli.output import Columns, Gateway, asks_gateway, moment_ms, shown_ms
from sharequeue.protocol import apis
from sharequeue.protocol.messages.reports import ListSamplesQuery

THERE: Final[Columns] = {
    "backlog": "backlog",
    "oldest ms": "oldest_ready_ms",
    "held": "held_count",
    "delayed": "delayed_count",
    "dead letters": "open_dead_letters",
}
"""The counts that a sample took at the end of its step; the others are of the whole step."""
COLUMNS: Final[Columns] = {
    "until": lambda point: shown_ms(point.at_ms),
    **{name: f"{name}_count" for name in ("in", "out", "failed", "dead")},
    **THERE,
}


@click.command()
@click.option("--from", "begin", metavar="TIME", help="a time like 2026-11-21T08:00  [default: an hour before the end]")
@click.option("--to", "end", metavar="TIME", help="the end  [default: now]")
@click.option("--group", "-g", help="only this group")
@click.option("--topic", help="only this topic")
@asks_gateway
async def samples(begin: str | None, end: str | None, group: str | None, topic: str | None, gateway: Gateway) -> None:
    """Show what came and went in each step of time, and what was there at its end."""
    span = [None if text is None else moment_ms(text, option) for text, option in ((begin, "--from"), (end, "--to"))]
    query = ListSamplesQuery(group_id=group, topic=topic, from_ms=span[0], to_ms=span[1])
    found = await gateway.call(apis.LIST_SAMPLES, query)
    gateway.show(found, COLUMNS, found.points)

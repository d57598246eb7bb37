"""`sharequeue dead-letters`: list, show, redrive and drop the dead letters of a group."""

import sys
from typing import Any, Final

import click
import msgspec

from sharequeue.cli.commands import Commands
from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.groups.redrive import choosing, redrive, settle
from sharequeue.cli.output import REFUSED, Columns, Gateway, asks_gateway, say, shown_ms
from sharequeue.cli.topics.administration import confirm
from sharequeue.protocol import apis
from sharequeue.protocol.messages.dead_letters import DeadLetter, DropDeadLettersRequest, ListDeadLettersQuery
from sharequeue.protocol.types import MAX_PAGE_SIZE

_COLUMNS: Final[Columns] = {
    **{name: name for name in ("topic", "partition", "offset", "state")},
    "died": lambda each: shown_ms(each.died_at_ms),
    "count": "delivery_count",
    "key": lambda each: each.key if each.key_base64 is None else each.key_base64,
    "reason": lambda each: each.reason or each.cause,
}


@click.group("dead-letters", cls=Commands)
def dead_letters() -> None:
    """List, show, redrive and drop the dead letters of a group."""


@dead_letters.command("list")
@group_argument
@choosing
@click.option("--closed", is_flag=True, help="also those that are not open any more, and what became of them")
@click.option(
    "--max-records", type=click.IntRange(min=1), default=1000, show_default=True, help="list at most this many"
)
@asks_gateway
async def list_letters(group: str, chosen: dict[str, Any], closed: bool, max_records: int, gateway: Gateway) -> None:
    """List the open dead letters of GROUP."""
    query = ListDeadLettersQuery(closed=closed, page_size=min(max_records, MAX_PAGE_SIZE), **chosen)
    found: list[DeadLetter] = []
    unauthorized, more = 0, False
    async for page in gateway.pages(apis.LIST_DEAD_LETTERS, query, group=group):
        found += page.dead_letters
        unauthorized += page.unauthorized_count
        more = page.next_page_token is not None or len(found) > max_records
        if len(found) >= max_records:
            break
    found = found[:max_records]
    gateway.show({"dead_letters": found}, _COLUMNS, found)
    if more:
        say(f"there are more than these {len(found)}; --max-records {10 * max_records} lists more")
    if unauthorized:
        say(f"{unauthorized} came from topics that you may not read")


@dead_letters.command()
@group_argument
@click.argument("topic")
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="the record's partition")
@asks_gateway
async def show(group: str, topic: str, offset: int, partition: int, gateway: Gateway) -> None:
    """Print the dead letters of the record at OFFSET of TOPIC as JSON: its reasons, its value, what became of it."""
    query = ListDeadLettersQuery(topic=topic, partition=partition, offset=offset, closed=True, records=True)
    found = (await gateway.call(apis.LIST_DEAD_LETTERS, query, group=group)).dead_letters
    for letter in found:
        document = msgspec.json.encode(letter)
        click.echo(document if gateway.as_json else msgspec.json.format(document))
    if not found:
        say(f"the record at offset {offset} of {topic}-{partition} is not a dead letter of {group}")
        sys.exit(REFUSED)


@dead_letters.command()
@group_argument
@choosing
@click.option("--max-records", type=click.IntRange(min=1), help="drop at most this many")
@click.option("--dry-run", is_flag=True, help="count the dead letters that would be dropped, and drop none")
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@asks_gateway
async def drop(
    group: str, chosen: dict[str, Any], max_records: int | None, dry_run: bool, yes: bool, gateway: Gateway
) -> None:
    """Close dead letters of GROUP for good: they are open no more, and never redriven. They stay in their topic."""
    if not dry_run:
        confirm(f"drop these dead letters of {group} for good? (--dry-run counts them)", yes)
    request = DropDeadLettersRequest(max_records=max_records, dry_run=dry_run, **chosen)
    await settle(gateway, apis.DROP_DEAD_LETTERS, group, request, "dropped", 0)


dead_letters.add_command(redrive)

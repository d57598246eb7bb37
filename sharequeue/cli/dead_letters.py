"""`sharequeue dead-letters`: list, show, redrive and drop the dead letters of a group."""

import sys
from collections.abc import Iterator
from datetime import datetime

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.groups.redrive import choosing, each_page, redrive, show_count
from sharequeue.cli.output import REFUSED, ask, decode, echo_json, json_option, pages, run, say, show_table, url_option
from sharequeue.cli.topics.administration import confirm
from sharequeue.protocol import apis
from sharequeue.protocol.messages.dead_letters import (
    DeadLetter,
    DropDeadLettersRequest,
    ListDeadLettersQuery,
    RecordPlace,
    RedriveFilter,
)
from sharequeue.protocol.types import MAX_PAGE_SIZE


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
@json_option
@url_option
@run
async def list_letters(
    group: str, topic: str | None, chosen: RedriveFilter, closed: bool, max_records: int, as_json: bool, url: str
) -> None:
    """List the open dead letters of GROUP."""
    if chosen.offsets is not None and len(chosen.offsets) > 1:
        raise click.UsageError("a list takes one --offset")
    fields = {name: getattr(chosen, name) for name in chosen.__struct_fields__ if name != "offsets"}
    query = ListDeadLettersQuery(
        topic=topic,
        offset=chosen.offsets[0] if chosen.offsets else None,
        closed=closed,
        page_size=min(max_records, MAX_PAGE_SIZE),
        **fields,
    )
    found: list[DeadLetter] = []
    unauthorized, more = 0, False
    async for page in pages(url, apis.LIST_DEAD_LETTERS, query, group=group):
        found += page.dead_letters
        unauthorized += page.unauthorized_count
        if isinstance(page.hint, str):
            say(f"sharequeue: {page.hint}")
        more = page.next_page_token is not None or len(found) > max_records
        if len(found) >= max_records:
            break
    found = found[:max_records]
    if as_json:
        echo_json({"dead_letters": found})
    else:
        columns = ("topic", "partition", "offset", "state", "died", "count", "key", "reason")
        show_table(columns, [(*_place(each)[:3], *_summary(each)) for each in found])
    if more:
        say(f"there are more than these {len(found)}; --max-records {10 * max_records} lists more")
    if unauthorized:
        say(f"{unauthorized} came from topics that you may not read")


@dead_letters.command()
@group_argument
@click.argument("topic")
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="the record's partition")
@json_option
@url_option
@run
async def show(group: str, topic: str, offset: int, partition: int, as_json: bool, url: str) -> None:
    """Show the dead letters of the record at OFFSET of TOPIC: its reasons, its value, and what became of it."""
    query = ListDeadLettersQuery(topic=topic, partition=partition, offset=offset, closed=True, records=True)
    answer = await ask(url, apis.LIST_DEAD_LETTERS, query, group=group)
    found = decode(answer, apis.LIST_DEAD_LETTERS).dead_letters
    if as_json:
        echo_json(answer)
    for letter in () if as_json else found:
        for name, value in _described(letter):
            click.echo(f"{name:<12}{value}")
    if not found:
        say(f"the record at offset {offset} of {topic}-{partition} is not a dead letter of {group}")
        sys.exit(REFUSED)


@dead_letters.command()
@group_argument
@choosing
@click.option("--max-records", type=click.IntRange(min=1), help="drop at most this many")
@click.option("--dry-run", is_flag=True, help="count the dead letters that would be dropped, and drop none")
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@json_option
@url_option
@run
async def drop(
    group: str,
    topic: str | None,
    chosen: RedriveFilter,
    max_records: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    url: str,
) -> None:
    """Close dead letters of GROUP for good: they are open no more, and never redriven. They stay in their topic."""
    request = DropDeadLettersRequest(topic=topic, filter=chosen, max_records=max_records, dry_run=dry_run)
    if dry_run:
        await show_count(url, apis.DROP_DEAD_LETTERS, group, request, "dropped", as_json)
        return
    confirm(f"drop these dead letters of {group} for good? (--dry-run counts them)", yes)
    dropped = unauthorized = 0
    async for page in each_page(url, apis.DROP_DEAD_LETTERS, group, request, "dropped", 0):
        dropped += page.dropped
        unauthorized += page.unauthorized_count
    if as_json:
        echo_json({"dropped": dropped, **({"unauthorized_count": unauthorized} if unauthorized else {})})
        return
    left = f"; {unauthorized} came from topics that you may not read" if unauthorized else ""
    say(f"{dropped} dead letters of {group} are dropped{left}")


dead_letters.add_command(redrive)


def _place(letter: DeadLetter) -> tuple[str, int, int]:
    return letter.topic, letter.partition, letter.offset


def _summary(letter: DeadLetter) -> tuple[object, ...]:
    key = letter.key if letter.key_base64 is None else letter.key_base64
    return letter.state, moment(letter.died_at_ms), letter.delivery_count, key, letter.reason or letter.cause


def moment(epoch_ms: int) -> str:
    """Local time, with its date."""
    return datetime.fromtimestamp(epoch_ms / 1000).astimezone().isoformat(timespec="seconds")


def _described(letter: DeadLetter) -> Iterator[tuple[str, object]]:
    """The lines of a dead letter: names and values."""
    yield "record", f"{letter.topic}-{letter.partition} at offset {letter.offset}"
    yield "state", letter.state
    yield "died", f"{moment(letter.died_at_ms)} after {letter.delivery_count} deliveries"
    yield "cause", letter.cause
    for given in letter.reasons:
        yield "reason", f"{moment(given.at_ms)} {given.reason}"
    if letter.reason and not letter.reasons:
        yield "reason", letter.reason
    yield "letter", "parked" if letter.letter is None else _named(letter.letter)
    if letter.closed_at_ms is not None:
        yield "closed", moment(letter.closed_at_ms) + (f" by {letter.consumer_group}" if letter.consumer_group else "")
    if letter.redriven_to is not None:
        yield "redriven to", _named(letter.redriven_to)
    if letter.key is not None or letter.key_base64 is not None:
        yield "key", letter.key if letter.key_base64 is None else f"{letter.key_base64} (base64)"
    if letter.value_base64 is not None:
        yield "value", f"{letter.value_base64} (base64)"
    elif letter.value:
        yield "value", bytes(letter.value).decode()
    for name, value in letter.headers.items():
        yield "header", f"{name}: {value}"


def _named(place: RecordPlace) -> str:
    return f"{place.topic}-{place.partition} at offset {place.offset}"

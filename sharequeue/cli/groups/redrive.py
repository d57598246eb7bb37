"""`sharequeue dead-letters redrive`, which is `groups redrive` too: dead letters go back to their topics, each once, at
a rate if the user wants one. `drop` has its options and its pages."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, TypeVar

import click
import msgspec

from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.login import client_of
from sharequeue.cli.output import Command, check_reachable, echo_json, json_option, moment_ms, run, say, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.dead_letters import (
    DropDeadLettersRequest,
    DropResult,
    RedriveDeadLettersRequest,
    RedriveFilter,
    RedriveResult,
)
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError

AT_ONCE: Final = 10_000
"""One call changes no more."""
DEADLINE_S: Final = 60.0
"""Time for one call and its repeats: a gateway may restart within it."""

Page = TypeVar("Page", RedriveResult, DropResult)
PageCall = Callable[[int, str | None], Awaitable[Page]]
Sleep = Callable[[float], Awaitable[None]]

_OPTIONS: Final = (
    click.option("--topic", help="only dead letters of this source topic"),
    click.option("--partition", type=click.IntRange(min=0), help="only records of this partition"),
    click.option(
        "--offset",
        type=click.IntRange(min=0),
        multiple=True,
        help="only the record at this offset of --topic and of --partition, or 0; it may be repeated",
    ),
    click.option("--key", help="only records with exactly this key"),
    click.option(
        "--cause", type=click.Choice(["rejected", "delivery_limit"]), help="only dead letters that have this cause"
    ),
    click.option("--reason", help="only dead letters whose reason contains this text"),
    click.option("--message", help="only dead letters whose cause or reason contains this text"),
    click.option(
        "--min-delivery-count",
        type=click.IntRange(min=0),
        help="only dead letters that were delivered at least this often",
    ),
    click.option("--after", help="only dead letters from this time on, like 2026-11-21T08:00; UTC if it has no zone"),
    click.option(
        "--before", help="only dead letters from before this time, like 2026-11-21T08:00; UTC if it has no zone"
    ),
)


def choosing(command: Command) -> Command:
    """Options that choose dead letters: the command gets `topic`, and the others as `chosen`, a RedriveFilter."""

    @functools.wraps(command)
    def with_filter(
        *,
        topic: str | None,
        offset: tuple[int, ...],
        after: str | None,
        before: str | None,
        **options: Any,
    ) -> Any:
        if offset and topic is None:
            raise click.UsageError("--offset needs --topic")
        names = ("partition", "key", "cause", "reason", "message", "min_delivery_count")
        chosen = RedriveFilter(
            offsets=[*offset] or None,
            after_ms=None if after is None else moment_ms(after, "--after"),
            before_ms=None if before is None else moment_ms(before, "--before"),
            **{name: options.pop(name) for name in names},
        )
        return command(topic=topic, chosen=chosen, **options)

    for option in reversed(_OPTIONS):
        option(with_filter)
    return with_filter


@click.command()
@group_argument
@choosing
@click.option("--max-records", type=click.IntRange(min=1), help="redrive at most this many")
@click.option(
    "--rate",
    type=click.IntRange(min=0),
    default=0,
    show_default="as fast as the gateway can",
    help="redrive at most this many a second",
)
@click.option(
    "--to",
    type=click.Choice(["retry", "source"]),
    default="retry",
    show_default=True,
    help="retry: for this group alone; source: as new records, for every group of the topic",
)
@click.option("--dry-run", is_flag=True, help="count the dead letters that would be redriven, and redrive none")
@json_option
@url_option
@run
async def redrive(
    group: str,
    topic: str | None,
    chosen: RedriveFilter,
    max_records: int | None,
    rate: int,
    to: Literal["retry", "source"],
    dry_run: bool,
    as_json: bool,
    url: str,
) -> None:
    """Send the dead letters of GROUP back to their topics, each once, even if the command runs again."""
    request = RedriveDeadLettersRequest(topic=topic, filter=chosen, max_records=max_records, to=to, dry_run=dry_run)
    if dry_run:
        await show_count(url, apis.REDRIVE_DEAD_LETTERS, group, request, "redriven", as_json)
        return
    redriven = skipped = unauthorized = 0
    page: RedriveResult
    async for page in each_page(url, apis.REDRIVE_DEAD_LETTERS, group, request, "redriven", rate):
        redriven += page.redriven
        skipped += page.skipped_count
        unauthorized += page.unauthorized_count
    if as_json:
        refused = {"unauthorized_count": unauthorized} if unauthorized else {}
        echo_json({"redriven": redriven, "skipped_count": skipped, **refused})
        return
    left = f"; {skipped} have no record left, or no topic to go to" if skipped else ""
    left += f"; {unauthorized} came from topics that you may not write" if unauthorized else ""
    say(f"{redriven} dead letters of {group} are redriven{left}")


async def show_count(url: str, api: Api, group: str, request: DropDeadLettersRequest, done: str, as_json: bool) -> None:
    """Say how many dead letters a request without `dry_run` would change."""
    matched = 0
    async for page in each_page(url, api, group, request, "", 0):
        matched += page.matched
    if as_json:
        echo_json({"matched": matched})
    else:
        say(f"{matched} dead letters of {group} would be {done}")


async def each_page(
    url: str, api: Api, group: str, request: DropDeadLettersRequest, done: str, rate: int
) -> AsyncIterator[Any]:
    """The answers of a call, page by page, until no dead letter is left. Progress and hints go to stderr.

    Args:
        done: what the call does to dead letters, in a word; empty: it only counts them.
    """
    await check_reachable(url)
    client = client_of(url, deadline_s=DEADLINE_S)

    async def call(most: int, page_token: str | None) -> Any:
        wanted = msgspec.structs.replace(request, max_records=most, page_token=page_token)
        return await client.call(api, wanted, path={"group": group})

    so_far = 0
    try:
        async for page in pages(call, request.max_records, rate):
            yield page
            so_far += page.matched
            if page.hint is not msgspec.UNSET and not so_far:
                say(f"sharequeue: {page.hint}")
            if done and page.next_page_token is not msgspec.UNSET and page.matched == AT_ONCE:
                say(f"{so_far} dead letters of {group} are {done} so far")
    except ApiError:
        if done and so_far:
            say(f"{so_far} dead letters of {group} are {done} so far; run it again for the others")
        raise
    finally:
        await client.close()


async def pages(
    call: "PageCall[Page]", most: int | None, rate: int, sleep: Sleep = asyncio.sleep
) -> AsyncIterator[Page]:
    """Call until no dead letter is left. Yields: each answer.

    Args:
        call: changes no more than so many dead letters, from a page token on.
        most: the most dead letters of all calls together.
        rate: the most of one call. A pause follows in which this rate allows what the call redrove. 0: no bound.
    """
    at_once = min(AT_ONCE, rate or AT_ONCE)
    page_token = None
    while most is None or most > 0:
        page = await call(at_once if most is None else min(at_once, most), page_token)
        yield page
        if page.next_page_token is msgspec.UNSET:
            return
        page_token = page.next_page_token
        if most is not None:
            most -= page.matched
        if rate and most != 0 and isinstance(page, RedriveResult):
            await sleep(page.redriven / rate)

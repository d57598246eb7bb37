"""`sharequeue groups redrive`: dead letters go back to their topics, each once, at a rate if the user wants one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal

import click
import msgspec

from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.login import client_of
from sharequeue.cli.output import (
    ask,
    check_reachable,
    decode,
    echo_json,
    json_option,
    moment_ms,
    run,
    say,
    url_option,
)
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import RedriveDeadLettersRequest, RedriveFilter, RedriveResult
from sharequeue_http.forms.errors import ApiError

AT_ONCE: Final = 10_000
"""One call redrives no more."""
DEADLINE_S: Final = 60.0
"""Time for one call and its repeats: a gateway may restart within it."""

RedriveCall = Callable[[int, str | None], Awaitable[RedriveResult]]
Sleep = Callable[[float], Awaitable[None]]


@click.command()
@group_argument
@click.option("--topic", help="only dead letters of this source topic")
@click.option("--message", help="only dead letters whose cause or reason contains this text")
@click.option(
    "--min-delivery-count", type=click.IntRange(min=0), help="only dead letters that were delivered at least this often"
)
@click.option("--before", help="only dead letters from before this time, like 2026-11-21T08:00; UTC if it has no zone")
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
    message: str | None,
    min_delivery_count: int | None,
    before: str | None,
    max_records: int | None,
    rate: int,
    to: Literal["retry", "source"],
    dry_run: bool,
    as_json: bool,
    url: str,
) -> None:
    """Send the dead letters of GROUP back to their topics, each once, even if the command runs again."""
    before_ms = None if before is None else moment_ms(before, "--before")
    chosen = RedriveFilter(message=message, min_delivery_count=min_delivery_count, before_ms=before_ms)
    request = RedriveDeadLettersRequest(topic=topic, filter=chosen, max_records=max_records, to=to, dry_run=dry_run)
    if dry_run:
        counted = await ask(url, apis.REDRIVE_DEAD_LETTERS, request, group=group)
        matched = decode(counted, apis.REDRIVE_DEAD_LETTERS).matched
        if as_json:
            echo_json({"matched": matched})
        else:
            say(f"{matched} dead letters of {group} would be redriven")
        return
    await check_reachable(url)
    client = client_of(url, deadline_s=DEADLINE_S)

    async def call(most: int, page_token: str | None) -> RedriveResult:
        wanted = msgspec.structs.replace(request, max_records=most, page_token=page_token)
        answer: RedriveResult = await client.call(apis.REDRIVE_DEAD_LETTERS, wanted, path={"group": group})
        return answer

    redriven = skipped = unauthorized = 0
    try:
        async for page in pages(call, max_records, rate):
            redriven += page.redriven
            skipped += page.skipped_count
            unauthorized += page.unauthorized_count
    except ApiError:
        if redriven:
            say(f"{redriven} dead letters of {group} are redriven so far; run it again for the others")
        raise
    finally:
        await client.close()
    if as_json:
        refused = {"unauthorized_count": unauthorized} if unauthorized else {}
        echo_json({"redriven": redriven, "skipped_count": skipped, **refused})
        return
    left = f"; {skipped} have no record left, or no topic to go to" if skipped else ""
    left += f"; {unauthorized} came from topics that you may not write" if unauthorized else ""
    say(f"{redriven} dead letters of {group} are redriven{left}")


async def pages(
    call: RedriveCall, most: int | None, rate: int, sleep: Sleep = asyncio.sleep
) -> AsyncIterator[RedriveResult]:
    """Call until no dead letter is left. Yields: each answer.

    Args:
        call: redrives at most so many dead letters, from a page token on.
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
            most -= page.redriven + page.skipped_count + page.unauthorized_count
        if rate and most != 0:
            await sleep(page.redriven / rate)

"""`sharequeue dead-letters redrive`, which is `groups redrive` too: dead letters go back to their topics, each once, at
a rate if the user wants one. `drop` has its options and its pages."""

import asyncio
import functools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, TypeVar

import click
import msgspec

from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.login import client_of
from sharequeue.cli.output import Command, Gateway, asks_gateway, echo_json, moment_ms, say
from sharequeue.protocol import apis
from sharequeue.protocol.messages.dead_letters import (
    DropDeadLettersRequest,
    DropResult,
    RedriveDeadLettersRequest,
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

_REFUSED: Final = "unauthorized_count"
_TIMES: Final = ("after", "before")
_FIELDS: Final = ("topic", "partition", "offset", "key", "cause", "reason")
_OPTIONS: Final = (
    click.option("--topic", help="only dead letters of this source topic"),
    click.option("--partition", type=click.IntRange(min=0), help="only records of this partition"),
    click.option(
        "--offset",
        type=click.IntRange(min=0),
        help="only the record at this offset of --topic and of --partition, or 0",
    ),
    click.option("--key", help="only records with exactly this key"),
    click.option(
        "--cause", type=click.Choice(["rejected", "delivery_limit"]), help="only dead letters that have this cause"
    ),
    click.option("--reason", help="only dead letters whose reason, or cause in words, contains this text"),
    click.option("--after", help="only dead letters from this time on, like 2026-11-21T08:00; UTC if it has no zone"),
    click.option(
        "--before", help="only dead letters from before this time, like 2026-11-21T08:00; UTC if it has no zone"
    ),
)


def choosing(command: Command) -> Command:
    """Options that choose dead letters: the command gets them as `chosen`, the fields of a LetterFilter."""

    @functools.wraps(command)
    def with_filter(**options: Any) -> Any:
        chosen = {name: options.pop(name) for name in _FIELDS}
        for name in _TIMES:
            given = options.pop(name)
            chosen[f"{name}_ms"] = None if given is None else moment_ms(given, f"--{name}")
        if chosen["offset"] is not None and chosen["topic"] is None:
            raise click.UsageError("--offset needs --topic")
        return command(chosen=chosen, **options)

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
@asks_gateway
async def redrive(
    group: str,
    chosen: dict[str, Any],
    max_records: int | None,
    rate: int,
    to: Literal["retry", "source"],
    dry_run: bool,
    gateway: Gateway,
) -> None:
    """Send the dead letters of GROUP back to their topics, each once, even if the command runs again."""
    request = RedriveDeadLettersRequest(max_records=max_records, to=to, dry_run=dry_run, **chosen)
    await settle(gateway, apis.REDRIVE_DEAD_LETTERS, group, request, "redriven", rate)


async def settle(gateway: Gateway, api: Api, group: str, request: DropDeadLettersRequest, done: str, rate: int) -> None:
    """Redrive or drop dead letters, page by page, and say how many; a dry run counts them. Progress goes to stderr.

    Args:
        done: the field of the answers that counts them, which says what the call does to them.
    """
    await gateway.check_reachable()
    client = client_of(gateway.url, deadline_s=DEADLINE_S)

    async def call(most: int, page_token: str | None) -> Any:
        wanted = msgspec.structs.replace(request, max_records=most, page_token=page_token)
        return await client.call(api, wanted, path={"group": group})

    total: Counter[str] = Counter()
    try:
        page: RedriveResult
        async for page in pages(call, request.max_records, 0 if request.dry_run else rate):
            total.update({name: getattr(page, name, 0) for name in ("matched", done, "skipped_count", _REFUSED)})
            if page.next_page_token is not msgspec.UNSET and page.matched == AT_ONCE and not request.dry_run:
                say(f"{total['matched']} dead letters of {group} are {done} so far")
    except ApiError:
        if total[done]:
            say(f"{total['matched']} dead letters of {group} are {done} so far; run it again for the others")
        raise
    finally:
        await client.close()
    if gateway.as_json:
        shown = (
            ("matched",) if request.dry_run else (done, *(name for name in ("skipped_count", _REFUSED) if total[name]))
        )
        echo_json({name: total[name] for name in shown})
    elif request.dry_run:
        say(f"{total['matched']} dead letters of {group} would be {done}")
    else:
        left = f"; {total['skipped_count']} have no record left, or no topic to go to" if total["skipped_count"] else ""
        left += f"; {total[_REFUSED]} came from topics that you may not use" if total[_REFUSED] else ""
        say(f"{total[done]} dead letters of {group} are {done}{left}")


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

"""`sharequeue groups redrive`: dead letters go back to their topics; `pipeline redrive` does it at a rate."""

from typing import Final

import click
import msgspec

from sharequeue.cli.output import ask, decode, echo_json, json_option, run, say, url_option
from sharequeue.cli.redrive_options import redrive_options, redrive_request
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.groups import RedriveDeadLettersRequest, RedriveResult

AT_ONCE: Final = 10_000
"""One call redrives no more."""


@click.command()
@redrive_options
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
    target: str,
    dry_run: bool,
    as_json: bool,
    url: str,
) -> None:
    """Send the dead letters of GROUP back to their topics, each once, even if the command runs again."""
    request = redrive_request(
        topic=topic, message=message, min_delivery_count=min_delivery_count, before=before, target=target
    )
    if dry_run:
        request.dry_run = True
        request.max_records = max_records
        matched = (await _page(url, group, request)).matched
        if as_json:
            echo_json(msgspec.json.encode({"matched": matched}))
        else:
            say(f"{matched} dead letters of {group} would be redriven")
        return
    redriven = skipped = 0
    try:
        while max_records is None or redriven + skipped < max_records:
            request.max_records = AT_ONCE if max_records is None else min(AT_ONCE, max_records - redriven - skipped)
            page = await _page(url, group, request)
            redriven += page.redriven
            skipped += page.skipped_count
            if page.next_page_token is msgspec.UNSET:
                break
            request.page_token = page.next_page_token
    except ApiError:
        if redriven:
            say(f"{redriven} dead letters of {group} are redriven so far; run it again for the others")
        raise
    if as_json:
        echo_json(msgspec.json.encode({"redriven": redriven, "skipped_count": skipped}))
        return
    left = f"; {skipped} have no record left, or no topic to go to" if skipped else ""
    say(f"{redriven} dead letters of {group} are redriven{left}")


async def _page(url: str, group: str, request: RedriveDeadLettersRequest) -> RedriveResult:
    answer: RedriveResult = decode(
        await ask(url, apis.REDRIVE_DEAD_LETTERS, request, group=group), apis.REDRIVE_DEAD_LETTERS
    )
    return answer

"""`sharequeue groups`: what a share group has in flight, how far it is, its settings; the rest is in `describe`."""

from datetime import datetime

import click
import msgspec

from sharequeue.cli.commands import Commands
from sharequeue.cli.completion import complete_topic
from sharequeue.cli.groups import describe as group_admin
from sharequeue.cli.groups.redrive import redrive
from sharequeue.cli.output import (
    ask,
    check_options_behind,
    decode,
    echo_json,
    json_option,
    key_values,
    run,
    say,
    show_table,
    url_option,
)
from sharequeue.protocol import apis
from sharequeue.protocol.messages import InFlightQuery, ListInFlightResponse, ListShareGroupOffsetsResponse


@click.group(cls=Commands, invoke_without_command=True)
@json_option
@url_option
@click.pass_context
def groups(context: click.Context, as_json: bool, url: str) -> None:
    """List share groups, or look at one and set it up."""
    if context.invoked_subcommand is None:
        group_admin.list_all(state=None, as_json=as_json, url=url)
    else:
        check_options_behind(context)


for command in (
    group_admin.list_groups,
    group_admin.describe,
    group_admin.delete,
    group_admin.reset_offsets,
    group_admin.delete_offsets,
    redrive,
):
    groups.add_command(command)


@groups.command("in-flight")
@group_admin.group_argument
@click.option("--topic", shell_complete=complete_topic, help="only of this topic")
@click.option("--partition", type=click.IntRange(min=0), help="only of this partition of --topic")
@json_option
@url_option
@run
async def in_flight(group: str, topic: str | None, partition: int | None, as_json: bool, url: str) -> None:
    """Show what GROUP has in flight: who holds it, until when, how often it was delivered."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition goes with --topic")
    listed = ListInFlightResponse(partitions=[])
    page_token = None
    while True:
        query = InFlightQuery(topic=topic, partition=partition, page_token=page_token)
        answer = await ask(url, apis.LIST_IN_FLIGHT_RECORDS, query, group=group)
        page: ListInFlightResponse = decode(answer, apis.LIST_IN_FLIGHT_RECORDS)
        listed.partitions += page.partitions
        listed.errors += page.errors
        page_token = page.next_page_token
        if page_token is None:
            break
    if as_json:
        echo_json(msgspec.json.encode(listed))
        return
    rows = [
        (
            entry.topic,
            entry.partition,
            batch.first_offset,
            batch.last_offset,
            batch.delivery_state,
            batch.delivery_count,
            batch.member_id,
            _time(batch.lock_expires_at_ms or batch.available_at_ms),
            batch.reason,
        )
        for entry in listed.partitions
        for batch in entry.batches
    ]
    show_table(("topic", "#partition", "#first", "#last", "state", "#count", "member", "until", "reason"), rows)
    for entry in listed.partitions:
        for letter in entry.dead_letters:
            offsets = f"{letter.first_offset} to {letter.last_offset}"
            say(f"{entry.topic}-{entry.partition}: no dead letter of {offsets} could be written: {letter.last_error}")
        if entry.parked_dead_letters:
            parked = f"dead letters parked: {entry.parked_dead_letters}, the last because {entry.parked_cause}"
            say(f"{entry.topic}-{entry.partition}: {parked}")
    for fault in listed.errors:
        say(f"{fault.topic}-{fault.partition}: {fault.code}: {fault.detail}")


def _time(epoch_ms: int | None) -> str | None:
    """Local time of day, with the date where it is another day's."""
    if epoch_ms is None:
        return None
    moment = datetime.fromtimestamp(epoch_ms / 1000).astimezone()
    today = datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%dT%H:%M:%S")


@groups.command()
@group_admin.group_argument
@json_option
@url_option
@run
async def offsets(group: str, as_json: bool, url: str) -> None:
    """Show where GROUP stands in each partition and how many records are left."""
    answer = await ask(url, apis.LIST_SHARE_GROUP_OFFSETS, group=group)
    if as_json:
        echo_json(answer)
        return
    listed: ListShareGroupOffsetsResponse = decode(answer, apis.LIST_SHARE_GROUP_OFFSETS)
    rows = [
        (
            topic.topic,
            partition.partition,
            *(
                "unknown" if value < 0 else value
                for value in (partition.start_offset, partition.log_end_offset, partition.lag)
            ),
        )
        for topic in listed.topics
        for partition in topic.partitions
    ]
    show_table(("topic", "#partition", "#start", "#log end", "#lag"), rows)


@groups.command()
@group_admin.group_argument
@click.option(
    "--set",
    "--config",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="e.g. share.record.lock.duration.ms=60000; repeatable",
)
@click.option("--reset", multiple=True, metavar="NAME", help="back to the default; repeatable")
@json_option
@url_option
@run
async def config(group: str, changes: tuple[str, ...], reset: tuple[str, ...], as_json: bool, url: str) -> None:
    """Show the settings of GROUP, after changing some. The group need not exist yet."""
    if changes or reset:
        request = {**key_values(changes, "--set"), **({"reset": list(reset)} if reset else {})}
        answer = await ask(url, apis.UPDATE_SHARE_GROUP_CONFIG, request, group=group)
    else:
        answer = await ask(url, apis.GET_SHARE_GROUP_CONFIG, group=group)
    if as_json:
        echo_json(answer)
        return
    show_table(("setting", "value"), sorted(decode(answer, apis.GET_SHARE_GROUP_CONFIG).items()))

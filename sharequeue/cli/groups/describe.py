"""`sharequeue groups` for administrators: list, describe, delete, reset-offsets, delete-offsets.

The words and columns are those of kafka-share-groups.sh, where they make sense here.
"""

import csv
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from sharequeue.cli.completion import complete_group, complete_topic
from sharequeue.cli.output import (
    ask,
    decode,
    echo_json,
    exit_code,
    explain,
    json_option,
    run,
    say,
    show_table,
    url_option,
    without_http,
)
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.group_messages import (
    DescribeShareGroupQuery,
    DescribeShareGroupResponse,
    InUseQuery,
    ListShareGroupsQuery,
    ListShareGroupsResponse,
    MemberAssignment,
    ResetShareGroupOffsetsRequest,
    ResetShareGroupOffsetsResponse,
    ResetTopic,
    ShareGroupListing,
    ShareGroupMember,
)
from sharequeue.protocol.messages import ListShareGroupOffsetsResponse

STATES: Final = ("Empty", "Stable", "Dead")
ALL_STATES: Final = "all"

group_argument: Final = click.argument("group", shell_complete=complete_group)
groups_argument: Final = click.argument("group", nargs=-1, shell_complete=complete_group)
all_groups_option = click.option("--all-groups", is_flag=True, help="every group there is")
force_option = click.option("--force", is_flag=True, help="also while in use: end members, sessions and locks first")


async def listed(url: str, state: str | None = None) -> list[ShareGroupListing]:
    """All groups, page by page."""
    groups: list[ShareGroupListing] = []
    token = None
    while True:
        query = ListShareGroupsQuery(state=state, page_token=token)
        page: ListShareGroupsResponse = decode(await ask(url, apis.LIST_SHARE_GROUPS, query), apis.LIST_SHARE_GROUPS)
        groups += page.groups
        token = page.next_page_token
        if token is None:
            return groups


async def _named(url: str, named: Sequence[str], all_groups: bool) -> list[str]:
    """The groups a command is about. Raises: click.UsageError: none, or both ways at once."""
    if all_groups == bool(named):
        raise click.UsageError("name groups, or give --all-groups")
    return [group.group_id for group in await listed(url)] if all_groups else list(named)


@click.command("list")
@click.option(
    "--state",
    is_flag=False,
    flag_value=ALL_STATES,
    metavar="[STATE,…]",
    help="show states; with Empty, Stable or Dead only groups in these",
)
@json_option
@url_option
def list_groups(state: str | None, as_json: bool, url: str) -> None:
    """List groups, with --state as a table."""
    list_all(state=state, as_json=as_json, url=url)


@run
async def list_all(*, state: str | None, as_json: bool, url: str) -> None:
    """As `list_groups`."""
    wanted = None if state in (None, ALL_STATES) else state
    unknown = [name for name in (wanted or "").split(",") if wanted and name.strip().title() not in STATES]
    if unknown:
        raise click.UsageError(f"a state is one of {', '.join(STATES)}, not {unknown[0]!r}")
    groups = await listed(url, wanted)
    if as_json:
        echo_json(msgspec.json.encode(ListShareGroupsResponse(groups=groups)))
    elif state is None:
        for group in groups:
            click.echo(group.group_id)
    else:
        show_table(("GROUP", "STATE"), [(group.group_id, group.state) for group in groups])


@click.command()
@groups_argument
@all_groups_option
@click.option("--offsets", is_flag=True, help="where it stands (the default)")
@click.option("--members", is_flag=True, help="who is in it, and what each is assigned")
@click.option("--state", is_flag=True, help="its state, and how many are in it")
@click.option("--verbose", is_flag=True, help="epochs too")
@json_option
@url_option
@run
async def describe(
    group: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    as_json: bool,
    url: str,
) -> None:
    """Describe GROUPs: offsets and lag, members, or state."""
    if [offsets, members, state].count(True) > 1:
        raise click.UsageError("give one of --offsets, --members, --state")
    failed = 0
    for group_id in await _named(url, group, all_groups):
        try:
            if members or state:
                await _describe_members(url, group_id, verbose, as_json, only_state=state)
            else:
                await _describe_offsets(url, group_id, verbose, as_json)
        except ApiError as error:
            failed = max(failed, explain(error, as_json=as_json))
    if failed:
        sys.exit(failed)


async def _describe_offsets(url: str, group_id: str, verbose: bool, as_json: bool) -> None:
    answer = await ask(url, apis.LIST_SHARE_GROUP_OFFSETS, group=group_id)
    if as_json:
        echo_json(answer)
        return
    offsets: ListShareGroupOffsetsResponse = decode(answer, apis.LIST_SHARE_GROUP_OFFSETS)
    rows = [
        (
            group_id,
            topic.topic,
            partition.partition,
            *((partition.leader_epoch,) if verbose else ()),
            _known(partition.start_offset),
            _known(partition.lag),
        )
        for topic in offsets.topics
        for partition in topic.partitions
    ]
    if not rows:
        say(f"Share group '{group_id}' has no offset information.")
        return
    epoch = ("#LEADER-EPOCH",) if verbose else ()
    show_table(("GROUP", "TOPIC", "#PARTITION", *epoch, "#START-OFFSET", "#LAG"), rows)


def _known(value: int) -> object:
    return "-" if value < 0 else value


async def _describe_members(url: str, group_id: str, verbose: bool, as_json: bool, *, only_state: bool) -> None:
    members: list[ShareGroupMember] = []
    page_token = None
    while True:
        query = DescribeShareGroupQuery(page_token=page_token)
        answer = await ask(url, apis.DESCRIBE_SHARE_GROUP, query, group=group_id)
        group: DescribeShareGroupResponse = decode(answer, apis.DESCRIBE_SHARE_GROUP)
        members += group.members
        page_token = group.next_page_token
        if page_token is None:
            break
    group.members = members
    if as_json:
        echo_json(msgspec.json.encode(group))
        return
    if only_state:
        epochs = ("#GROUP-EPOCH", "#ASSIGNMENT-EPOCH") if verbose else ()
        values = (group.group_epoch, group.assignment_epoch) if verbose else ()
        show_table(("GROUP", "STATE", "##MEMBERS", *epochs), [(group_id, group.state, group.member_count, *values)])
    if not group.members:
        say(f"Share group '{group_id}' has no active members.")
        return
    if not only_state:
        epoch = ("#MEMBER-EPOCH",) if verbose else ()
        rows = [
            (
                group_id,
                member.member_id,
                member.client_host,
                member.client_id,
                sum(len(entry.partitions) for entry in member.assignment.topic_partitions),
                *((member.member_epoch,) if verbose else ()),
                _assigned(member.assignment),
            )
            for member in group.members
        ]
        show_table(("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "##PARTITIONS", *epoch, "ASSIGNMENT"), rows)


def _assigned(assignment: MemberAssignment) -> str:
    """`topic:0,1;other:2`."""
    return ";".join(f"{entry.topic}:{','.join(map(str, entry.partitions))}" for entry in assignment.topic_partitions)


@click.command()
@groups_argument
@all_groups_option
@force_option
@json_option
@url_option
@run
async def delete(group: tuple[str, ...], all_groups: bool, force: bool, as_json: bool, url: str) -> None:
    """Delete GROUPs that are not in use."""
    failed = 0
    deleted = []
    for group_id in await _named(url, group, all_groups):
        try:
            await ask(url, apis.DELETE_SHARE_GROUP, InUseQuery(force=force), group=group_id)
        except ApiError as error:
            failed = max(failed, explain(error, as_json=as_json))
        else:
            deleted.append(group_id)
            if not as_json:
                say(f"Deletion of share group '{group_id}' was successful.")
    if as_json:
        echo_json(msgspec.json.encode({"deleted": deleted}))
    if failed:
        sys.exit(failed)


@click.command("delete-offsets")
@group_argument
@click.option(
    "--topic", "topics", multiple=True, required=True, shell_complete=complete_topic, help="a topic; repeatable"
)
@force_option
@json_option
@url_option
@run
async def delete_offsets(group: str, topics: tuple[str, ...], force: bool, as_json: bool, url: str) -> None:
    """Forget where GROUP, which is not in use, stands in topics."""
    rows = []
    failed = 0
    for topic in topics:
        try:
            await ask(url, apis.DELETE_SHARE_GROUP_OFFSETS, InUseQuery(force=force), group=group, topic=topic)
            rows.append((topic, "Successful"))
        except ApiError as error:
            if as_json:
                explain(error, as_json=True)
            rows.append((topic, f"Error: {without_http(error.detail)}"))
            failed = max(failed, exit_code(error))
    if as_json:
        echo_json(msgspec.json.encode({"deleted": [topic for topic, status in rows if status == "Successful"]}))
    else:
        show_table(("TOPIC", "STATUS"), rows)
    if failed:
        sys.exit(failed)


@click.command("reset-offsets")
@group_argument
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", shell_complete=complete_topic, help="repeatable"
)
@click.option("--all-topics", is_flag=True, help="everything the group has offsets of")
@click.option("--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="rows of --export")
@click.option("--to-earliest", is_flag=True, help="the first record there is")
@click.option("--to-latest", is_flag=True, help="behind the last record")
@click.option("--to-current", is_flag=True, help="where the group stands")
@click.option("--to-offset", type=click.IntRange(min=0), help="an offset, kept within the log")
@click.option(
    "--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="the first record not before it; UTC without a zone"
)
@click.option("--dry-run", is_flag=True, help="show, change nothing")
@click.option("--execute", is_flag=True, help="do it")
@click.option("--export", is_flag=True, help="print CSV rows: topic,partition,offset")
@force_option
@json_option
@url_option
@run
async def reset_offsets(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    from_file: Path | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    dry_run: bool,
    execute: bool,
    export: bool,
    force: bool,
    as_json: bool,
    url: str,
) -> None:
    """Have GROUP, which is not in use, start elsewhere. A group that is not there comes to be."""
    if dry_run == execute:
        raise click.UsageError("give --dry-run or --execute")
    scenarios = {
        "earliest": to_earliest,
        "latest": to_latest,
        "current": to_current,
        "offset": to_offset is not None or from_file is not None,
        "datetime": to_datetime is not None,
    }
    chosen = [to for to, given in scenarios.items() if given]
    if len(chosen) != 1 or (from_file is not None and to_offset is not None):
        raise click.UsageError(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime"
        )
    if [bool(topics), all_topics, from_file is not None].count(True) != 1:
        raise click.UsageError("give exactly one of --topic, --all-topics, --from-file")
    if to_datetime is not None:
        _check_datetime(to_datetime)
    wanted = None
    if topics:
        wanted = [_topic(text) for text in topics]
    elif from_file is not None:
        wanted = _from_file(from_file)
    fields: dict[str, Any] = {
        "to": chosen[0],
        "offset": to_offset,
        "datetime": to_datetime,
        "topics": wanted,
        "dry_run": dry_run,
        "force": force,
    }
    request = ResetShareGroupOffsetsRequest(**fields)
    answer = await ask(url, apis.RESET_SHARE_GROUP_OFFSETS, request, group=group)
    done: ResetShareGroupOffsetsResponse = decode(answer, apis.RESET_SHARE_GROUP_OFFSETS)
    rows = [(topic.topic, entry.partition, entry.start_offset) for topic in done.topics for entry in topic.partitions]
    if as_json:
        echo_json(answer)
    elif export:
        _export(rows)
    elif all_topics and not rows:
        say(f"Share group '{group}' has no offset information.")
    else:
        show_table(("GROUP", "TOPIC", "#PARTITION", "#NEW-OFFSET"), [(group, *row) for row in rows])
    for error in () if as_json else done.errors:  # the answer has them
        say(f"sharequeue: {error.topic}-{error.partition}: {error.code}: {error.detail}")
    if done.failed_count > len(done.errors):
        say(f"sharequeue: {done.failed_count - len(done.errors)} partitions more failed")
    if done.errors:
        sys.exit(1)


def _check_datetime(text: str) -> None:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime is as 2026-11-21T08:30:00.000, not {text!r}") from None


def _topic(text: str) -> ResetTopic:
    """`orders` or `orders:0,1`; no topic's name holds a colon."""
    topic, separator, numbers = text.partition(":")
    if not separator:
        return ResetTopic(topic=topic)
    return ResetTopic(topic=topic, partitions=[_number(number, text) for number in numbers.split(",")])


def _from_file(file: Path) -> list[ResetTopic]:
    with file.open(newline="", encoding="utf-8") as opened:
        try:
            rows = [row for row in csv.reader(opened) if row]
        except (UnicodeDecodeError, csv.Error) as fault:
            raise click.UsageError(f"{file} is no CSV: {fault}") from None
    if not rows:
        raise click.UsageError(f"{file} has no rows")
    for row in rows:
        if len(row) != 3:
            raise click.UsageError(f"{file}: a row is topic,partition,offset, not {','.join(row)!r}")
    return [
        ResetTopic(topic=topic, partitions=[_number(partition, topic)], offset=_number(offset, topic))
        for topic, partition, offset in rows
    ]


def _number(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise click.UsageError(f"{where}: {text!r} is no number")
    return int(text)


def _export(rows: Iterable[tuple[str, int, int]]) -> None:
    writer = csv.writer(sys.stdout, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerows(rows)

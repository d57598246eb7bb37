"""`sharequeue groups describe`: offsets and lag, members, or state."""

import sys
from collections import Counter

import click

from sharequeue.cli.groups.choosing import all_groups_option, groups_argument, named_groups
from sharequeue.cli.output import ask, decode, echo_json, explain, json_option, pages, run, say, show_table, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import (
    DescribeShareGroupQuery,
    FetchingMembers,
    ListOffsetsQuery,
    MemberAssignment,
    ShareGroupDescription,
    ShareGroupOffsets,
)
from sharequeue.protocol.messages.in_flight import InFlightQuery
from sharequeue_http.forms.errors import ApiError


@click.command()
@groups_argument
@all_groups_option
@click.option("--offsets", is_flag=True, help="offsets and lag of each partition (the default)")
@click.option("--members", is_flag=True, help="members and their assignments")
@click.option("--state", is_flag=True, help="state and number of members")
@click.option("--verbose", is_flag=True, help="show epochs too")
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
    """Describe groups: offsets and lag, members, or state."""
    if [offsets, members, state].count(True) > 1:
        raise click.UsageError("give one of --offsets, --members, --state")
    failed = 0
    for group_id in await named_groups(url, group, all_groups):
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
    listed = pages(url, apis.LIST_SHARE_GROUP_OFFSETS, ListOffsetsQuery(), group=group_id)
    offsets = ShareGroupOffsets(topics=[topic async for page in listed for topic in page.topics])
    if as_json:
        echo_json(offsets)
        return
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
    epoch = ("LEADER-EPOCH",) if verbose else ()
    show_table(("GROUP", "TOPIC", "PARTITION", *epoch, "START-OFFSET", "LAG"), rows)
    dead = sum(partition.open_dead_letters for topic in offsets.topics for partition in topic.partitions)
    if dead:
        say(f"{dead} dead letters of {group_id} are open: neither redriven nor deleted.")


def _known(value: int) -> object:
    return "-" if value < 0 else value


async def _describe_members(url: str, group_id: str, verbose: bool, as_json: bool, *, only_state: bool) -> None:
    described = [
        page async for page in pages(url, apis.DESCRIBE_SHARE_GROUP, DescribeShareGroupQuery(), group=group_id)
    ]
    group: ShareGroupDescription = described[-1]
    group.members = [member for page in described for member in page.members]
    if as_json:
        echo_json(group)
        return
    if only_state:
        epochs = ("GROUP-EPOCH", "ASSIGNMENT-EPOCH") if verbose else ()
        values = (group.group_epoch, group.assignment_epoch) if verbose else ()
        show_table(("GROUP", "STATE", "#MEMBERS", *epochs), [(group_id, group.state, group.member_count, *values)])
    if not group.members:
        await _describe_fetching(url, group_id)
        return
    if not only_state:
        epoch = ("MEMBER-EPOCH",) if verbose else ()
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
        show_table(("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *epoch, "ASSIGNMENT"), rows)


async def _describe_fetching(url: str, group_id: str) -> None:
    """Members that work without having joined."""
    found: FetchingMembers = decode(
        await ask(url, apis.LIST_FETCHING_MEMBERS, group=group_id), apis.LIST_FETCHING_MEMBERS
    )
    if not found.members:
        say(f"Share group '{group_id}' has no active members.{await _held(url, group_id)}")
        return
    say(f"{found.member_count} fetched or acknowledged in the last minute without joining:")
    rows = [(group_id, member.member_id, f"{member.seconds_ago} s") for member in found.members]
    show_table(("GROUP", "CONSUMER-ID", "LAST-CALL"), rows)


async def _held(url: str, group_id: str) -> str:
    """Return which members hold records all the same, in words: their locks may last for hours without a call."""
    held: Counter[str] = Counter()
    async for page in pages(url, apis.LIST_IN_FLIGHT_RECORDS, InFlightQuery(), group=group_id):
        for batch in (batch for entry in page.partitions for batch in entry.batches if batch.member_id is not None):
            held[batch.member_id] += batch.last_offset - batch.first_offset + 1
    most = ", ".join(f"{count} by {member_id}" for member_id, count in held.most_common(10))
    return most and f" Records are held: {most}."


def _assigned(assignment: MemberAssignment) -> str:
    """`topic:0,1;other:2`."""
    return ";".join(f"{entry.topic}:{','.join(map(str, entry.partitions))}" for entry in assignment.topic_partitions)

"""`sharequeue groups describe`: the work of groups, their offsets and lag, members, or state."""

import sys

import click

from sharequeue.cli.groups.choosing import all_groups_option, groups_argument, named_groups
from sharequeue.cli.output import Gateway, asks_gateway, echo_json, say, show_table
from sharequeue.protocol import apis
from sharequeue.protocol.messages import groups as messages
from sharequeue_http.forms.errors import ApiError


@click.command()
@groups_argument
@all_groups_option
@click.option("--offsets", is_flag=True, help="offsets and lag of each partition")
@click.option("--members", is_flag=True, help="members and their assignments")
@click.option("--state", is_flag=True, help="state and number of members")
@click.option("--verbose", is_flag=True, help="show epochs too")
@asks_gateway
async def describe(
    group: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    gateway: Gateway,
) -> None:
    """Describe groups: their work and their workers, or offsets and lag, members, or state."""
    if [offsets, members, state].count(True) > 1:
        raise click.UsageError("give one of --offsets, --members, --state")
    if all_groups and not (group or offsets or members or state):
        await _show_all(gateway)
        return
    failed = 0
    for group_id in await named_groups(gateway, group, all_groups):
        try:
            if offsets:
                await _describe_offsets(gateway, group_id, verbose)
            else:
                await _describe(gateway, group_id, verbose, members=members, state=state)
        except ApiError as error:
            failed = max(failed, gateway.explain(error))
    if failed:
        sys.exit(failed)


async def _show_all(gateway: Gateway) -> None:
    groups = await gateway.items("groups", apis.LIST_SHARE_GROUPS, messages.ListShareGroupsQuery(work=True))
    if gateway.as_json:
        echo_json(messages.ShareGroupList(groups=groups))
    else:
        _show_work(groups)


def _show_work(groups: list[messages.ShareGroupListing] | list[messages.ShareGroupDescription]) -> None:
    heads = ("GROUP", "STATE", "PAUSED", "READY", "OLDEST", "HELD", "DELAYED", "DYING", "DEAD-LETTERS", "WORKERS")
    rows = [
        (
            group.group_id,
            group.state,
            "yes" if group.paused else None,
            work.ready,
            None if work.oldest_ready_age_ms is None else _age(work.oldest_ready_age_ms // 1000),
            *(work.held, work.delayed, work.dying, work.open_dead_letters, work.workers),
        )
        for group in groups
        if (work := group.work) is not None
    ]
    show_table(heads, rows)
    if any(group.work is not None and group.work.partial for group in groups):
        say("a gateway did not answer: what is held, delayed or dying there counts as ready")


def _age(seconds: int) -> str:
    """A length of time, as 90s, 15m, 30h or 9d."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


async def _describe_offsets(gateway: Gateway, group_id: str, verbose: bool) -> None:
    query = messages.ListOffsetsQuery()
    topics = await gateway.items("topics", apis.LIST_SHARE_GROUP_OFFSETS, query, group=group_id)
    if gateway.as_json:
        echo_json(messages.ShareGroupOffsets(topics=topics))
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
        for topic in topics
        for partition in topic.partitions
    ]
    if not rows:
        say(f"Share group '{group_id}' has no offset information.")
        return
    epoch = ("LEADER-EPOCH",) if verbose else ()
    show_table(("GROUP", "TOPIC", "PARTITION", *epoch, "START-OFFSET", "LAG"), rows)


def _known(value: int) -> object:
    return "-" if value < 0 else value


async def _describe(gateway: Gateway, group_id: str, verbose: bool, *, members: bool, state: bool) -> None:
    query = messages.DescribeShareGroupQuery()
    described = [page async for page in gateway.pages(apis.DESCRIBE_SHARE_GROUP, query, group=group_id)]
    group: messages.ShareGroupDescription = described[0]
    group.members = [member for page in described for member in page.members]
    if gateway.as_json:
        group.next_page_token = None
        echo_json(group)
    elif state:
        epochs = ("GROUP-EPOCH", "ASSIGNMENT-EPOCH") if verbose else ()
        values = (group.group_epoch, group.assignment_epoch) if verbose else ()
        show_table(("GROUP", "STATE", "#MEMBERS", *epochs), [(group_id, group.state, group.member_count, *values)])
    elif members and group.members:
        _show_members(group, verbose)
    else:
        if not members:
            _show_work([group])
        if group.workers:
            rows = [(group_id, each.member_id, each.client_host, f"{each.seconds_ago}s") for each in group.workers]
            show_table(("GROUP", "CONSUMER-ID", "HOST", "LAST-CALL"), rows)
        else:
            say(f"Share group '{group_id}' has no active members.")


def _show_members(group: messages.ShareGroupDescription, verbose: bool) -> None:
    epoch = ("MEMBER-EPOCH",) if verbose else ()
    rows = [
        (
            group.group_id,
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


def _assigned(assignment: messages.MemberAssignment) -> str:
    """`topic:0,1;other:2`."""
    return ";".join(f"{entry.topic}:{','.join(map(str, entry.partitions))}" for entry in assignment.topic_partitions)

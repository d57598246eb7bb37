"""`sharequeue groups list` and `sharequeue groups attention`."""

from typing import Final

import click

from sharequeue.cli.groups.choosing import every_group
from sharequeue.cli.output import Columns, Gateway, asks_gateway, echo_json, show_table
from sharequeue.cli.samples import THERE
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import ShareGroupList
from sharequeue.protocol.messages.reports import AttentionQuery, GroupAttention

STATES: Final = ("Empty", "Stable", "Dead")
ALL_STATES: Final = "all"
COLUMNS: Final[Columns] = {
    "group": "group_id",
    "reasons": lambda group: ",".join(group.reasons),
    **THERE,
    "workers": "worker_count",
}


@click.command("list")
@click.option(
    "--state",
    is_flag=False,
    flag_value=ALL_STATES,
    metavar="[STATE,…]",
    help="show states too; with a list of Empty, Stable, Dead: only groups in these states",
)
@asks_gateway
async def list_groups(state: str | None, gateway: Gateway) -> None:
    """List groups; with --state as a table."""
    wanted = None if state in (None, ALL_STATES) else state
    unknown = [name for name in (wanted or "").split(",") if wanted and name.strip().title() not in STATES]
    if unknown:
        raise click.UsageError(f"a state is one of {', '.join(STATES)}, not {unknown[0]!r}")
    groups = await every_group(gateway, wanted)
    if gateway.as_json:
        echo_json(ShareGroupList(groups=groups))
    elif state is None:
        for group in groups:
            click.echo(group.group_id)
    else:
        rows = [(group.group_id, group.state, "yes" if group.paused else None) for group in groups]
        show_table(("GROUP", "STATE", "PAUSED"), rows)


@click.command()
@click.argument("group", required=False)
@asks_gateway
async def attention(group: str | None, gateway: Gateway) -> None:
    """List groups in the order of their need for attention, each with the reasons; or GROUP alone."""
    groups: list[GroupAttention] = []
    async for page in gateway.pages(apis.LIST_ATTENTION, AttentionQuery(group_id=group, page_size=1000)):
        groups += page.groups
    page.groups = groups
    gateway.show(page, COLUMNS, groups)

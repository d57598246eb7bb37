"""`sharequeue groups list`."""

from typing import Final

import click

from sharequeue.cli.groups.choosing import every_group
from sharequeue.cli.output import Gateway, asks_gateway, echo_json, show_table
from sharequeue.protocol.messages.groups import ShareGroupList

STATES: Final = ("Empty", "Stable", "Dead")
ALL_STATES: Final = "all"


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

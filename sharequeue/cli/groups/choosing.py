"""The groups that a command is about: arguments, options, and pages of groups."""

import functools
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import click

from sharequeue.cli.output import REFUSED, Command, Gateway, say
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import ListShareGroupsQuery, ShareGroupListing
from sharequeue_http.forms.errors import ApiError

group_argument: Final = click.argument("group")
groups_argument: Final = click.argument("group", nargs=-1)
all_groups_option = click.option("--all-groups", is_flag=True, help="all groups")
force_option = click.option(
    "--force", is_flag=True, help="even if the group is in use: end its members, sessions and locks first"
)


def one_or_all_groups(command: Command) -> Command:
    return click.argument("group", required=False)(all_groups_option(command))


def each_group(work: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Coroutine[Any, Any, None]]:
    """Do the work for one group, or with --all-groups for each: then name those that failed, and exit with 1."""

    @functools.wraps(work)
    async def over_groups(group: str | None, all_groups: bool, **options: Any) -> None:
        names = await named_groups(options["gateway"], [group] if group else [], all_groups)
        if all_groups and options["gateway"].as_json:
            raise click.UsageError("--all-groups prints tables: leave out --json")
        failed = 0
        for name in names:
            if all_groups:
                say(f"group {name}")
            try:
                await work(group=name, **options)
            except (ApiError, SystemExit) as fault:
                if not all_groups:
                    raise
                failed += 1
                why = f"{fault.code}: {fault.detail}" if isinstance(fault, ApiError) else "its lines above say why"
                say(f"sharequeue: group {name!r} failed: {why}")
        if failed:
            say(f"sharequeue: {failed} of {len(names)} groups failed")
            sys.exit(REFUSED)

    return over_groups


async def every_group(gateway: Gateway, state: str | None = None) -> list[ShareGroupListing]:
    return await gateway.items("groups", apis.LIST_SHARE_GROUPS, ListShareGroupsQuery(state=state))


async def named_groups(gateway: Gateway, named: Sequence[str], all_groups: bool) -> list[str]:
    """The names of the groups. Raises: click.UsageError: neither names nor --all-groups are given, or both."""
    if all_groups == bool(named):
        raise click.UsageError("name groups, or give --all-groups")
    return [group.group_id for group in await every_group(gateway)] if all_groups else list(named)

"""The groups that a command is about: arguments, options, and pages of groups."""

from collections.abc import Sequence
from typing import Final

import click

from sharequeue.cli.output import pages
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import ListShareGroupsQuery, ShareGroupListing

group_argument: Final = click.argument("group")
groups_argument: Final = click.argument("group", nargs=-1)
all_groups_option = click.option("--all-groups", is_flag=True, help="all groups")
force_option = click.option(
    "--force", is_flag=True, help="even if the group is in use: end its members, sessions and locks first"
)


async def every_group(url: str, state: str | None = None) -> list[ShareGroupListing]:
    """All groups, page by page."""
    query = ListShareGroupsQuery(state=state)
    return [group async for page in pages(url, apis.LIST_SHARE_GROUPS, query) for group in page.groups]


async def named_groups(url: str, named: Sequence[str], all_groups: bool) -> list[str]:
    """The names of the groups. Raises: click.UsageError: neither names nor --all-groups are given, or both."""
    if all_groups == bool(named):
        raise click.UsageError("name groups, or give --all-groups")
    return [group.group_id for group in await every_group(url)] if all_groups else list(named)

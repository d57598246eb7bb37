"""`sharequeue groups`: its commands.

list, describe, delete, delete-offsets and reset-offsets take their words and columns from kafka-share-groups.sh, where
they make sense here.
"""

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.groups.administration import config, delete, delete_offsets
from sharequeue.cli.groups.describe import describe
from sharequeue.cli.groups.in_flight import in_flight
from sharequeue.cli.groups.list_groups import list_all, list_groups
from sharequeue.cli.groups.redrive import redrive
from sharequeue.cli.groups.reset_offsets import reset_offsets
from sharequeue.cli.output import check_options_behind, json_option, url_option


@click.group(cls=Commands, invoke_without_command=True)
@json_option
@url_option
@click.pass_context
def groups(context: click.Context, as_json: bool, url: str) -> None:
    """List share groups, or show and change one."""
    if context.invoked_subcommand is None:
        list_all(state=None, as_json=as_json, url=url)
    else:
        check_options_behind(context)


for command in (
    list_groups,
    describe,
    in_flight,
    config,
    redrive,
    reset_offsets,
    delete_offsets,
    delete,
):
    groups.add_command(command)

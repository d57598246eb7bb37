"""`sharequeue groups`: its commands.

list, describe, delete, delete-offsets and reset-offsets take their words and columns from kafka-share-groups.sh, where
they make sense here.
"""

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.groups.administration import config, delete, delete_offsets, pause, resume
from sharequeue.cli.groups.describe import describe
from sharequeue.cli.groups.list_groups import list_groups
from sharequeue.cli.groups.redrive import redrive
from sharequeue.cli.groups.reset_offsets import reset_offsets
from sharequeue.cli.short import commands_of


@click.group(cls=Commands)
def groups() -> None:
    """List share groups, or show and change one."""


for command in (
    list_groups,
    describe,
    *commands_of("groups"),
    config,
    pause,
    resume,
    redrive,
    reset_offsets,
    delete_offsets,
    delete,
):
    groups.add_command(command)

"""`sharequeue topics`: its commands."""

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.topics.administration import alter, create, delete, delete_records, describe, list_topics
from sharequeue.cli.topics.read import read


@click.group(cls=Commands)
def topics() -> None:
    """List topics, or show, read and change one."""


for command in (list_topics, create, describe, alter, read, delete_records, delete):
    topics.add_command(command)

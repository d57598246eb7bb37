"""`sharequeue topics`: its commands."""

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.output import check_options_behind, json_option, url_option
from sharequeue.cli.topics.administration import alter, create, delete, delete_records, describe, list_all, list_topics
from sharequeue.cli.topics.read import read


@click.group(cls=Commands, invoke_without_command=True)
@json_option
@url_option
@click.pass_context
def topics(context: click.Context, as_json: bool, url: str) -> None:
    """List topics, or show, read and change one."""
    if context.invoked_subcommand is None:
        list_all(as_json=as_json, url=url)
    else:
        check_options_behind(context)


for command in (list_topics, create, describe, alter, read, delete_records, delete):
    topics.add_command(command)

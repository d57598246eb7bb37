"""`sharequeue groups config`: the settings of a group."""

import click

from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.output import ask, decode, echo_json, json_option, key_values, run, show_table, url_option
from sharequeue.protocol import apis


@click.command()
@group_argument
@click.option(
    "--set",
    "--config",
    "changes",
    multiple=True,
    metavar="NAME=VALUE",
    help="e.g. share.record.lock.duration.ms=60000; repeatable",
)
@click.option("--reset", multiple=True, metavar="NAME", help="set back to the default; repeatable")
@json_option
@url_option
@run
async def config(group: str, changes: tuple[str, ...], reset: tuple[str, ...], as_json: bool, url: str) -> None:
    """Change settings of GROUP, if --set or --reset is given, and show all. The group need not exist yet."""
    if changes or reset:
        request = {"config": key_values(changes, "--set"), "reset": list(reset)}
        answer = await ask(url, apis.UPDATE_SHARE_GROUP_CONFIG, request, group=group)
    else:
        answer = await ask(url, apis.GET_SHARE_GROUP_CONFIG, group=group)
    if as_json:
        echo_json(answer)
        return
    show_table(("setting", "value"), sorted(decode(answer, apis.GET_SHARE_GROUP_CONFIG).items()))

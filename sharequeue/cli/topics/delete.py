"""`sharequeue topics delete`."""

import click
import msgspec

from sharequeue.cli.output import ask, echo_json, json_option, run, say, url_option
from sharequeue.cli.topics.topic import confirm, name_argument
from sharequeue.protocol import apis


@click.command()
@name_argument
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@json_option
@url_option
@run
async def delete(name: str, yes: bool, as_json: bool, url: str) -> None:
    """Delete the topic NAME with its records and the state of all groups in it."""
    confirm(f"delete {name} and all of its records?", yes)
    await ask(url, apis.DELETE_TOPIC, topic=name)
    if as_json:
        echo_json(msgspec.json.encode({"deleted": [name]}))
    else:
        say(f"deleted {name}")

"""`sharequeue groups delete-offsets`."""

import sys

import click
import msgspec

from sharequeue.cli.completion import complete_topic
from sharequeue.cli.groups.choosing import force_option, group_argument
from sharequeue.cli.output import (
    ask,
    echo_json,
    exit_code,
    explain,
    json_option,
    run,
    show_table,
    url_option,
    without_http,
)
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.groups import InUseQuery


@click.command("delete-offsets")
@group_argument
@click.option(
    "--topic", "topics", multiple=True, required=True, shell_complete=complete_topic, help="a topic; repeatable"
)
@force_option
@json_option
@url_option
@run
async def delete_offsets(group: str, topics: tuple[str, ...], force: bool, as_json: bool, url: str) -> None:
    """Delete the offsets of GROUP in topics. The group must not be in use."""
    rows = []
    failed = 0
    for topic in topics:
        try:
            await ask(url, apis.DELETE_SHARE_GROUP_OFFSETS, InUseQuery(force=force), group=group, topic=topic)
            rows.append((topic, "Successful"))
        except ApiError as error:
            if as_json:
                explain(error, as_json=True)
            rows.append((topic, f"Error: {without_http(error.detail)}"))
            failed = max(failed, exit_code(error))
    if as_json:
        echo_json(msgspec.json.encode({"deleted": [topic for topic, status in rows if status == "Successful"]}))
    else:
        show_table(("TOPIC", "STATUS"), rows)
    if failed:
        sys.exit(failed)

"""`sharequeue groups delete`."""

import sys

import click
import msgspec

from sharequeue.cli.groups.choosing import all_groups_option, force_option, groups_argument, named_groups
from sharequeue.cli.output import ask, echo_json, explain, json_option, run, say, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.groups import InUseQuery


@click.command()
@groups_argument
@all_groups_option
@force_option
@json_option
@url_option
@run
async def delete(group: tuple[str, ...], all_groups: bool, force: bool, as_json: bool, url: str) -> None:
    """Delete groups that are not in use."""
    failed = 0
    deleted = []
    for group_id in await named_groups(url, group, all_groups):
        try:
            await ask(url, apis.DELETE_SHARE_GROUP, InUseQuery(force=force), group=group_id)
        except ApiError as error:
            failed = max(failed, explain(error, as_json=as_json))
        else:
            deleted.append(group_id)
            if not as_json:
                say(f"Deletion of share group '{group_id}' was successful.")
    if as_json:
        echo_json(msgspec.json.encode({"deleted": deleted}))
    if failed:
        sys.exit(failed)

"""The commands of `sharequeue groups` that show and change the settings of a group, and delete it or its offsets."""

import sys

import click

from sharequeue.cli.groups.choosing import (
    all_groups_option,
    each_group,
    force_option,
    group_argument,
    groups_argument,
    named_groups,
    one_or_all_groups,
)
from sharequeue.cli.output import (
    Gateway,
    asks_gateway,
    decode,
    echo_json,
    exit_code,
    key_values,
    say,
    show_table,
)
from sharequeue.protocol import apis
from sharequeue.protocol.configs import PAUSED
from sharequeue.protocol.messages.groups import InUseQuery
from sharequeue_http.forms.errors import ApiError


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
@click.option("--service", is_flag=True, help="show the service-wide settings, and what they clamp, alone")
@asks_gateway
async def config(group: str, changes: tuple[str, ...], reset: tuple[str, ...], service: bool, gateway: Gateway) -> None:
    """Change settings of GROUP, if --set or --reset is given, and show all. The group need not exist yet."""
    answer = b"{}"
    if changes or reset:
        request = {"config": key_values(changes, "--set"), "reset": list(reset)}
        answer = await gateway.ask(apis.UPDATE_SHARE_GROUP_CONFIG, request, group=group)
    elif not service:
        answer = await gateway.ask(apis.GET_SHARE_GROUP_CONFIG, group=group)
    if gateway.as_json and not service:
        echo_json(answer)
        return
    of_service = await gateway.ask(apis.GET_SHARE_GROUP_SERVICE_CONFIG, group=group)
    if gateway.as_json:
        echo_json(of_service)
        return
    found = decode(of_service, apis.GET_SHARE_GROUP_SERVICE_CONFIG)
    own = {} if service else decode(answer, apis.GET_SHARE_GROUP_CONFIG)
    show_table(("setting", "value"), [*sorted(own.items()), *sorted(found.service.items())])
    for name, value in found.clamped.items():
        say(f"{name} is stored as {value.stored} and counts as {value.used}, because of {value.bound}")


def _pausing(name: str, paused: bool, text: str, done: str) -> click.Command:
    """Make the command that begins or ends the pause of a group. `done`: what it says behind the group's name."""

    @click.command(name, help=text)
    @group_argument
    @asks_gateway
    async def command(group: str, gateway: Gateway) -> None:
        change = {"config": {PAUSED: "true" if paused else "false"}}
        if await gateway.answered(apis.UPDATE_SHARE_GROUP_CONFIG, change, group=group) is not None:
            say(f"{group} {done}")

    return command


pause = _pausing(
    "pause",
    True,
    "Pause GROUP: its fetches wait as if the topics were empty. Its members keep the records that they hold.",
    "is paused; records that its members hold stay theirs. `sharequeue groups resume` ends it",
)
resume = _pausing("resume", False, "End the pause of GROUP: its waiting fetches get records at once.", "is not paused")


@click.command("delete-offsets")
@one_or_all_groups
@click.option("--topic", "topics", multiple=True, required=True, help="a topic; repeatable")
@force_option
@asks_gateway
@each_group
async def delete_offsets(group: str, topics: tuple[str, ...], force: bool, gateway: Gateway) -> None:
    """Delete the offsets of GROUP in topics, or those of all groups. A group must not be in use."""
    rows = []
    failed = 0
    for topic in topics:
        try:
            await gateway.ask(apis.DELETE_SHARE_GROUP_OFFSETS, InUseQuery(force=force), group=group, topic=topic)
            rows.append((topic, "Successful"))
        except ApiError as error:
            if gateway.as_json:
                gateway.explain(error)
            rows.append((topic, f"Error: {error.detail}"))
            failed = max(failed, exit_code(error))
    if gateway.as_json:
        echo_json({"deleted": [topic for topic, status in rows if status == "Successful"]})
    else:
        show_table(("TOPIC", "STATUS"), rows)
    if failed:
        sys.exit(failed)


@click.command()
@groups_argument
@all_groups_option
@force_option
@asks_gateway
async def delete(group: tuple[str, ...], all_groups: bool, force: bool, gateway: Gateway) -> None:
    """Delete groups that are not in use."""
    failed = 0
    deleted = []
    for group_id in await named_groups(gateway, group, all_groups):
        try:
            await gateway.ask(apis.DELETE_SHARE_GROUP, InUseQuery(force=force), group=group_id)
        except ApiError as error:
            failed = max(failed, gateway.explain(error))
        else:
            deleted.append(group_id)
            if not gateway.as_json:
                say(f"Deletion of share group '{group_id}' was successful.")
    if gateway.as_json:
        echo_json({"deleted": deleted})
    if failed:
        sys.exit(failed)

"""`sharequeue completion`: scripts for shells, which complete names of groups and topics too, from the gateway."""

import asyncio
import os
from typing import Final

import click
from click.shell_completion import get_completion_class

from sharequeue.cli.output import GATEWAY
from sharequeue.http.calling.caller import Client
from sharequeue.protocol import apis
from sharequeue.protocol.errors import ApiError
from sharequeue.protocol.messages.groups import ListShareGroupsQuery
from sharequeue.protocol.messages.topics import ListTopicsQuery

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_SHAREQUEUE_COMPLETE"
DEADLINE_S: Final = 1.0


def complete_group(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Groups with this prefix; none if the gateway does not answer within DEADLINE_S."""
    answer = _ask(context, apis.LIST_SHARE_GROUPS, ListShareGroupsQuery())
    return [group.group_id for group in getattr(answer, "groups", ()) if group.group_id.startswith(incomplete)]


def complete_topic(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Topics with this prefix; likewise."""
    answer = _ask(context, apis.LIST_TOPICS, ListTopicsQuery())
    return [topic.name for topic in getattr(answer, "topics", ()) if topic.name.startswith(incomplete)]


def _ask(context: click.Context, api: apis.Api, query: object) -> object:
    url = context.params.get("url") or os.environ.get("SHAREQUEUE_URL") or GATEWAY

    async def ask() -> object:
        client = Client(url)
        try:
            return await client.call(api, query, deadline_s=DEADLINE_S, retry=False)
        finally:
            await client.close()

    try:
        return asyncio.run(ask())
    except (ApiError, ValueError):
        return None


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL: eval "$(sharequeue completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.get_current_context().find_root().command, {}, "sharequeue", VARIABLE).source())

"""`sharequeue groups create`: a group with its start offsets, before its first worker runs."""

from typing import Literal

import click

from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.output import ask, decode, echo_json, json_option, run, show_table, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import ResetOffsetsResult, ResetShareGroupOffsetsRequest, ResetTopic


@click.command()
@group_argument
@click.option("--topic", "topics", required=True, multiple=True, metavar="TOPIC", help="a topic to read; repeatable")
@click.option(
    "--from",
    "start",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="where the group begins",
)
@json_option
@url_option
@run
async def create(
    group: str, topics: tuple[str, ...], start: Literal["earliest", "latest"], as_json: bool, url: str
) -> None:
    """Create GROUP at the start or the end of topics, so that retention spares their records for it from now on.

    A group that exists and is not in use is moved there.
    """
    request = ResetShareGroupOffsetsRequest(to=start, topics=[ResetTopic(topic=topic) for topic in topics])
    answer = await ask(url, apis.RESET_SHARE_GROUP_OFFSETS, request, group=group)
    if as_json:
        echo_json(answer)
        return
    done: ResetOffsetsResult = decode(answer, apis.RESET_SHARE_GROUP_OFFSETS)
    rows = [(topic.topic, entry.partition, entry.start_offset) for topic in done.topics for entry in topic.partitions]
    show_table(("topic", "#partition", "#start"), rows)

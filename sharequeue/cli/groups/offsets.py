"""`sharequeue groups offsets`: the position and the lag of a group."""

import click

from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.output import ask, decode, echo_json, json_option, run, show_table, url_option
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import ShareGroupOffsets


@click.command()
@group_argument
@json_option
@url_option
@run
async def offsets(group: str, as_json: bool, url: str) -> None:
    """Show the start offset and the lag of GROUP in each partition."""
    answer = await ask(url, apis.LIST_SHARE_GROUP_OFFSETS, group=group)
    if as_json:
        echo_json(answer)
        return
    listed: ShareGroupOffsets = decode(answer, apis.LIST_SHARE_GROUP_OFFSETS)
    rows = [
        (
            topic.topic,
            partition.partition,
            *(
                "unknown" if value < 0 else value
                for value in (partition.start_offset, partition.log_end_offset, partition.lag)
            ),
        )
        for topic in listed.topics
        for partition in topic.partitions
    ]
    show_table(("topic", "#partition", "#start", "#log end", "#lag"), rows)

"""`sharequeue topics describe`: partitions and settings."""

import click

from sharequeue.cli.output import ask, decode, echo_json, json_option, run, show_table, url_option
from sharequeue.cli.topics.topic import name_argument
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import TopicDescription


@click.command()
@name_argument
@json_option
@url_option
@run
async def describe(name: str, as_json: bool, url: str) -> None:
    """Show the partitions and settings of the topic NAME."""
    answer = await ask(url, apis.DESCRIBE_TOPIC, topic=name)
    if as_json:
        echo_json(answer)
        return
    topic: TopicDescription = decode(answer, apis.DESCRIBE_TOPIC)
    show_table(
        ("#partition", "#log start", "#last stable", "#log end", "#offsets"),
        [
            (
                partition.partition,
                partition.log_start_offset,
                partition.last_stable_offset,
                partition.log_end_offset,
                partition.log_end_offset - partition.log_start_offset,
            )
            for partition in topic.partitions
        ],
        title=f"{topic.name}  {topic.topic_id}",
    )
    show_table(("setting", "value"), sorted(topic.config.items()))

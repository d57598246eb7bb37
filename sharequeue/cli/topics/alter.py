"""`sharequeue topics alter`: partitions and settings."""

import click

from sharequeue.cli.output import ask, json_option, key_values, run, url_option
from sharequeue.cli.topics.topic import name_argument, show_topic
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import UpdateTopicRequest


@click.command()
@name_argument
@click.option("--partitions", type=int, help="the new number of partitions; it can only grow")
@click.option("--config", "--set", "configs", multiple=True, metavar="NAME=VALUE", help="repeatable")
@click.option("--reset", multiple=True, metavar="NAME", help="set back to the default; repeatable")
@json_option
@url_option
@run
async def alter(
    name: str, partitions: int | None, configs: tuple[str, ...], reset: tuple[str, ...], as_json: bool, url: str
) -> None:
    """Add partitions to the topic NAME, or change its settings."""
    if partitions is None and not configs and not reset:
        raise click.UsageError("give --partitions, --config or --reset")
    request = UpdateTopicRequest(partitions=partitions, config=key_values(configs, "--config"), reset=list(reset))
    show_topic(await ask(url, apis.UPDATE_TOPIC, request, topic=name), "changed", as_json)

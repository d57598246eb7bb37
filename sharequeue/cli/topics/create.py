"""`sharequeue topics create`."""

import click

from sharequeue.cli.output import ask, json_option, key_values, run, url_option
from sharequeue.cli.topics.topic import show_topic
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import CreateTopicRequest


@click.command()
@click.argument("name")
@click.option("--partitions", type=int, default=1, show_default=True)
@click.option(
    "--config", "--set", "configs", multiple=True, metavar="NAME=VALUE", help="e.g. retention.ms=86400000; repeatable"
)
@json_option
@url_option
@run
async def create(name: str, partitions: int, configs: tuple[str, ...], as_json: bool, url: str) -> None:
    """Create the topic NAME."""
    request = CreateTopicRequest(name=name, partitions=partitions, config=key_values(configs, "--config"))
    show_topic(await ask(url, apis.CREATE_TOPIC, request), "made", as_json)

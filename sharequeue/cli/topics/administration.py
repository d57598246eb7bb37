"""The commands of `sharequeue topics` that list, show and change topics."""

import sys
from typing import Final

import click

from sharequeue.cli.output import (
    Columns,
    Gateway,
    asks_gateway,
    echo_json,
    key_values,
    say,
    show_table,
    show_things,
)
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import (
    CreateTopicRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    ListTopicsQuery,
    Topic,
    TopicDescription,
    UpdateTopicRequest,
)
from sharequeue.protocol.types import MAX_INT32, MAX_INT64
from sharequeue_http.forms.texts import whole_number

_PARTITIONS: Final[Columns] = {
    "partition": "partition",
    "log start": "log_start_offset",
    "last stable": "last_stable_offset",
    "log end": "log_end_offset",
    "offsets": lambda each: each.log_end_offset - each.log_start_offset,
}
name_argument: Final = click.argument("name")
"""The name of an existing topic."""


def show_topic(topic: Topic | None, what: str) -> None:
    """Print a topic that was created or changed. `what`: the verb."""
    if topic is not None:
        plural = "" if topic.partitions == 1 else "s"
        click.echo(f"{what} {topic.name}: {topic.partitions} partition{plural}, id {topic.topic_id}")


def confirm(question: str, yes: bool) -> None:
    """Ask before a deletion. Raises: click.UsageError: stdin is not a terminal; click.Abort: the user said no."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("give --yes: stdin is not a terminal, so the command cannot ask")
    click.confirm(question, abort=True, err=True)


@click.command("list")
@asks_gateway
async def list_topics(gateway: Gateway) -> None:
    """List topics."""
    listed = await gateway.items("topics", apis.LIST_TOPICS, ListTopicsQuery())
    gateway.show({"topics": listed}, {"topic": "name", "partitions": "partitions", "topic id": "topic_id"}, listed)


@click.command()
@click.argument("name")
@click.option("--partitions", type=int, default=1, show_default=True)
@click.option(
    "--config", "--set", "configs", multiple=True, metavar="NAME=VALUE", help="e.g. retention.ms=86400000; repeatable"
)
@asks_gateway
async def create(name: str, partitions: int, configs: tuple[str, ...], gateway: Gateway) -> None:
    """Create the topic NAME."""
    request = CreateTopicRequest(name=name, partitions=partitions, config=key_values(configs, "--config"))
    show_topic(await gateway.answered(apis.CREATE_TOPIC, request), "made")


@click.command()
@name_argument
@asks_gateway
async def describe(name: str, gateway: Gateway) -> None:
    """Show the partitions and settings of the topic NAME."""
    topic: TopicDescription | None = await gateway.answered(apis.DESCRIBE_TOPIC, topic=name)
    if topic is None:
        return
    show_things(_PARTITIONS, topic.partitions, title=f"{topic.name}  {topic.topic_id}")
    show_table(("setting", "value"), sorted(topic.config.items()))


@click.command()
@name_argument
@click.option("--partitions", type=int, help="the new number of partitions; it can only grow")
@click.option("--config", "--set", "configs", multiple=True, metavar="NAME=VALUE", help="repeatable")
@click.option("--reset", multiple=True, metavar="NAME", help="set back to the default; repeatable")
@asks_gateway
async def alter(
    name: str, partitions: int | None, configs: tuple[str, ...], reset: tuple[str, ...], gateway: Gateway
) -> None:
    """Add partitions to the topic NAME, or change its settings."""
    if partitions is None and not configs and not reset:
        raise click.UsageError("give --partitions, --config or --reset")
    request = UpdateTopicRequest(partitions=partitions, config=key_values(configs, "--config"), reset=list(reset))
    show_topic(await gateway.answered(apis.UPDATE_TOPIC, request, topic=name), "changed")


LOG_END: Final = -1


@click.command("delete-records")
@name_argument
@click.argument("before", metavar="PARTITION:OFFSET...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@asks_gateway
async def delete_records(name: str, before: tuple[str, ...], yes: bool, gateway: Gateway) -> None:
    """Delete the records of topic NAME below an offset: 0:100 below 100 in partition 0, 1:end all of partition 1."""
    partitions = [_before(text) for text in before]
    confirm(f"delete records of {name} below {', '.join(before)}?", yes)
    deleted = await gateway.answered(apis.DELETE_RECORDS, DeleteRecordsRequest(partitions=partitions), topic=name)
    if deleted is not None:
        show_things({"partition": "partition", "log start": "log_start_offset"}, deleted.partitions)


def _before(text: str) -> DeleteRecordsPartition:
    partition, _, offset = text.partition(":")
    number = whole_number(partition, MAX_INT32)
    before_offset = LOG_END if offset == "end" else whole_number(offset, MAX_INT64)
    if number is None or before_offset is None:
        raise click.UsageError(f"PARTITION:OFFSET is like 0:100 or 0:end, not {text!r}")
    return DeleteRecordsPartition(partition=number, before_offset=before_offset)


@click.command()
@name_argument
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@asks_gateway
async def delete(name: str, yes: bool, gateway: Gateway) -> None:
    """Delete the topic NAME with its records and the state of all groups in it."""
    confirm(f"delete {name} and all of its records?", yes)
    await gateway.ask(apis.DELETE_TOPIC, topic=name)
    if gateway.as_json:
        echo_json({"deleted": [name]})
    else:
        say(f"deleted {name}")

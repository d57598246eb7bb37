"""`sharequeue topics`: list, create, describe, alter, delete, delete-records; `read` is in `read`."""

import sys
from typing import Final

import click
import msgspec

from sharequeue.cli.commands import Commands
from sharequeue.cli.output import (
    ask,
    check_options_behind,
    decode,
    echo_json,
    json_option,
    key_values,
    run,
    say,
    show_table,
    url_option,
)
from sharequeue.cli.topics.read import name_argument, read
from sharequeue.protocol import apis
from sharequeue.protocol.messages import (
    ConfigValue,
    CreateTopicRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DescribeTopicResponse,
    ListTopicsResponse,
    Topic,
    TopicListing,
    UpdateTopicRequest,
)
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, whole_number

LOG_END: Final = -1


@click.group(cls=Commands, invoke_without_command=True)
@json_option
@url_option
@click.pass_context
def topics(context: click.Context, as_json: bool, url: str) -> None:
    """List topics, or do something with one."""
    if context.invoked_subcommand is None:
        _list(as_json=as_json, url=url)
    else:
        check_options_behind(context)


topics.add_command(read)


@run
async def _list(*, as_json: bool, url: str) -> None:
    listed: list[TopicListing] = []
    page_token = None
    while True:
        answer = await ask(url, apis.LIST_TOPICS, apis.ListTopicsQuery(page_token=page_token))
        page: ListTopicsResponse = decode(answer, apis.LIST_TOPICS)
        listed += page.topics
        page_token = page.next_page_token
        if page_token is None:
            break
    if as_json:
        echo_json(msgspec.json.encode({"topics": listed}))
        return
    show_table(
        ("topic", "#partitions", "topic id"), [(topic.name, topic.partitions, topic.topic_id) for topic in listed]
    )


@topics.command("list")
@json_option
@url_option
def list_topics(as_json: bool, url: str) -> None:
    """List topics."""
    _list(as_json=as_json, url=url)


@topics.command()
@click.argument("name")
@click.option("--partitions", type=int, default=1, show_default=True)
@click.option(
    "--config", "--set", "configs", multiple=True, metavar="NAME=VALUE", help="e.g. retention.ms=86400000; repeatable"
)
@json_option
@url_option
@run
async def create(name: str, partitions: int, configs: tuple[str, ...], as_json: bool, url: str) -> None:
    """Make the topic NAME."""
    config: dict[str, ConfigValue] = {**key_values(configs, "--config")}
    answer = await ask(url, apis.CREATE_TOPIC, CreateTopicRequest(name=name, partitions=partitions, config=config))
    _tell_topic(answer, "made", as_json)


@topics.command()
@name_argument
@click.option("--partitions", type=int, help="how many there are to be; only more than there are")
@click.option("--config", "--set", "configs", multiple=True, metavar="NAME=VALUE", help="repeatable")
@click.option("--reset", multiple=True, metavar="NAME", help="back to the default; repeatable")
@json_option
@url_option
@run
async def alter(
    name: str, partitions: int | None, configs: tuple[str, ...], reset: tuple[str, ...], as_json: bool, url: str
) -> None:
    """Add partitions to the topic NAME, or change its settings."""
    if partitions is None and not configs and not reset:
        raise click.UsageError("give --partitions, --config or --reset")
    config: dict[str, ConfigValue | None] = {**key_values(configs, "--config")}
    request = UpdateTopicRequest(partitions=partitions, config=config, reset=list(reset))
    _tell_topic(await ask(url, apis.UPDATE_TOPIC, request, topic=name), "changed", as_json)


def _tell_topic(answer: bytes, what: str, as_json: bool) -> None:
    if as_json:
        echo_json(answer)
        return
    topic: Topic = decode(answer, apis.CREATE_TOPIC)
    plural = "" if topic.partitions == 1 else "s"
    click.echo(f"{what} {topic.name}: {topic.partitions} partition{plural}, id {topic.topic_id}")


@topics.command()
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
    topic: DescribeTopicResponse = decode(answer, apis.DESCRIBE_TOPIC)
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


@topics.command()
@name_argument
@click.option("--yes", is_flag=True, help="do not ask")
@json_option
@url_option
@run
async def delete(name: str, yes: bool, as_json: bool, url: str) -> None:
    """Delete the topic NAME, its records, and what every group knows of it."""
    _confirm(f"delete {name} and all of its records?", yes)
    await ask(url, apis.DELETE_TOPIC, topic=name)
    if as_json:
        echo_json(msgspec.json.encode({"deleted": [name]}))
    else:
        say(f"deleted {name}")


@topics.command("delete-records")
@name_argument
@click.argument("before", metavar="PARTITION:OFFSET...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="do not ask")
@json_option
@url_option
@run
async def delete_records(name: str, before: tuple[str, ...], yes: bool, as_json: bool, url: str) -> None:
    """Delete the records of topic NAME below an offset: 0:100 below 100 in partition 0, 1:end all of partition 1."""
    partitions = [_before(text) for text in before]
    _confirm(f"delete records of {name} below {', '.join(before)}?", yes)
    answer = await ask(url, apis.DELETE_RECORDS, DeleteRecordsRequest(partitions=partitions), topic=name)
    if as_json:
        echo_json(answer)
        return
    deleted = decode(answer, apis.DELETE_RECORDS)
    show_table(
        ("#partition", "#log start"), [(entry.partition, entry.log_start_offset) for entry in deleted.partitions]
    )


def _before(text: str) -> DeleteRecordsPartition:
    partition, _, offset = text.partition(":")
    number = whole_number(partition, MAX_INT32)
    before_offset = LOG_END if offset == "end" else whole_number(offset, MAX_INT64)
    if number is None or before_offset is None:
        raise click.UsageError(f"PARTITION:OFFSET is like 0:100 or 0:end, not {text!r}")
    return DeleteRecordsPartition(partition=number, before_offset=before_offset)


def _confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("give --yes: nobody can be asked here")
    click.confirm(question, abort=True, err=True)

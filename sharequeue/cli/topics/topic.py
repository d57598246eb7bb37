"""What the commands about one topic share: its name as an argument, its line, the question before a deletion."""

import sys
from typing import Final

import click

from sharequeue.cli.completion import complete_topic
from sharequeue.cli.output import decode, echo_json
from sharequeue.protocol import apis
from sharequeue.protocol.messages import Topic

name_argument: Final = click.argument("name", shell_complete=complete_topic)
"""Of a topic that is there."""


def show_topic(answer: bytes, what: str, as_json: bool) -> None:
    if as_json:
        echo_json(answer)
        return
    topic: Topic = decode(answer, apis.CREATE_TOPIC)
    plural = "" if topic.partitions == 1 else "s"
    click.echo(f"{what} {topic.name}: {topic.partitions} partition{plural}, id {topic.topic_id}")


def confirm(question: str, yes: bool) -> None:
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("give --yes: nobody can be asked here")
    click.confirm(question, abort=True, err=True)

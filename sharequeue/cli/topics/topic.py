"""For commands about one topic: its name as an argument, its line, the question before a deletion."""

import sys
from typing import Final

import click

from sharequeue.cli.completion import complete_topic
from sharequeue.cli.output import decode, echo_json
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import Topic

name_argument: Final = click.argument("name", shell_complete=complete_topic)
"""The name of an existing topic."""


def show_topic(answer: bytes, what: str, as_json: bool) -> None:
    """Print a topic that was created or changed. `what`: the verb."""
    if as_json:
        echo_json(answer)
        return
    topic: Topic = decode(answer, apis.CREATE_TOPIC)
    plural = "" if topic.partitions == 1 else "s"
    click.echo(f"{what} {topic.name}: {topic.partitions} partition{plural}, id {topic.topic_id}")


def confirm(question: str, yes: bool) -> None:
    """Ask before a deletion. Raises: click.UsageError: stdin is not a terminal; click.Abort: the user said no."""
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise click.UsageError("give --yes: stdin is not a terminal, so the command cannot ask")
    click.confirm(question, abort=True, err=True)

"""Options of `groups redrive` and `pipeline redrive`: which dead letters are redriven, and to whom."""

from collections.abc import Callable
from typing import Any

import click

from sharequeue.cli.completion import complete_group, complete_topic
from sharequeue.cli.output import moment_ms
from sharequeue.protocol.messages.groups import RedriveDeadLettersRequest, RedriveFilter

Command = Callable[..., Any]

_PARAMETERS = (
    click.argument("group", shell_complete=complete_group),
    click.option("--topic", shell_complete=complete_topic, help="only dead letters of this source topic"),
    click.option("--message", help="only dead letters whose cause or reason contains this text"),
    click.option(
        "--min-delivery-count",
        type=click.IntRange(min=0),
        help="only dead letters that were delivered at least this often",
    ),
    click.option(
        "--before", help="only dead letters from before this time, like 2026-11-21T08:00; UTC if it has no zone"
    ),
    click.option("--max-records", type=click.IntRange(min=1), help="redrive at most this many"),
    click.option(
        "--to",
        "target",
        type=click.Choice(["retry", "source"]),
        default="retry",
        show_default=True,
        help="retry: for this group alone; source: as new records, for every group of the topic",
    ),
)


def redrive_options(command: Command) -> Command:
    """Add the options: `group`, `max_records`, and the arguments of `redrive_request`."""
    for parameter in reversed(_PARAMETERS):
        command = parameter(command)
    return command


def redrive_request(
    *, topic: str | None, message: str | None, min_delivery_count: int | None, before: str | None, target: str
) -> RedriveDeadLettersRequest:
    """The request that the options ask for, without `max_records`. Raises: click.BadParameter: not a time."""
    wanted = RedriveFilter(
        message=message,
        min_delivery_count=min_delivery_count,
        before_ms=None if before is None else moment_ms(before, "--before"),
    )
    return RedriveDeadLettersRequest(topic=topic, filter=wanted, to="source" if target == "source" else "retry")

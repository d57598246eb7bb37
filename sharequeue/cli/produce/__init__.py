"""`sharequeue produce`: the lines of a file become records, in order.

`lines` reads the input. `sending` sends many lines at a time and knows which are appended.
This file has the options and the exit code. `sharequeue.cli` alone imports this package.
"""

import click
import msgspec

from sharequeue.cli.commands import INTERRUPTED, complain
from sharequeue.cli.output import REFUSED, Gateway, asks_gateway, explain, key_values, say
from sharequeue.cli.produce.lines import BadLine, Lines, open_input
from sharequeue.cli.produce.sending import Sending
from sharequeue.client import ApiError


@click.command()
@click.argument("topic")
@click.argument("file", default="-")
@click.option("--json-lines", is_flag=True, help="each line is a JSON value; otherwise each line is a string")
@click.option("--key", help="the key of every record")
@click.option("--key-separator", help="the text between key and value in each line")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="a header of every record; repeatable")
@click.option("--partition", type=click.IntRange(min=0), help="the partition of every record")
@asks_gateway
async def produce(
    topic: str,
    file: str,
    json_lines: bool,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    gateway: Gateway,
) -> None:
    """Produce each line of FILE, or of stdin, as a record of TOPIC.

    Lines that are not UTF-8 become bytes. Records keep the order of the lines. A refused line ends the command; the
    message says up to which line the records are appended, and no line behind that one is. After Ctrl-C the command
    ends with the request under way, for which it waits at most 3 seconds, says the same, and exits with 130.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("give --key or --key-separator, not both")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    lines = Lines(
        as_json=json_lines,
        key=key,
        key_separator=None if key_separator is None else key_separator.encode(),
        headers=key_values(headers, "--header"),
        partition=partition,
    )
    descriptor = open_input(file)
    await gateway.check_reachable()
    fault: Exception | None = None
    interrupted = False
    sending = Sending(gateway.url, topic, lines)
    try:
        interrupted = await sending.run(descriptor)
    except (BadLine, ApiError, OSError) as error:
        fault = error
    if gateway.as_json:
        click.echo(msgspec.json.encode(sending.as_json()))
    elif sending.record_count or (fault is None and not interrupted):
        click.echo(str(sending))
    stopped, last_line = sending.so_far(), sending.last_line
    if interrupted:
        detail = f"interrupted: {stopped}; no later line was sent"
        complain(detail, as_json=gateway.as_json, code="INTERRUPTED", by="sharequeue produce", last_line=last_line)
        raise click.exceptions.Exit(INTERRUPTED)
    if fault is None:
        return
    if not gateway.as_json:
        say(f"sharequeue produce: stopped: {stopped}")
    if isinstance(fault, ApiError):
        raise click.exceptions.Exit(explain(fault, as_json=gateway.as_json, stopped=stopped, last_line=last_line))
    complain(str(fault), as_json=gateway.as_json, by="sharequeue produce", stopped=stopped, last_line=last_line)
    raise click.exceptions.Exit(REFUSED)

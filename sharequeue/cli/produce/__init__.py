"""`sharequeue produce`: the lines of a file become records, in order.

`lines` reads the input. `sending` sends many lines at a time and knows which are appended.
This file has the options and the exit code. `sharequeue.cli` alone imports this package.
"""

import click
import msgspec

from sharequeue.cli.commands import INTERRUPTED, complain
from sharequeue.cli.output import REFUSED, Gateway, asks_gateway, explain, key_values, length_ms, moment_ms, say
from sharequeue.cli.produce.lines import BadLine, Blocks, Lines, one_line, open_input, read_lines
from sharequeue.cli.produce.sending import Sending
from sharequeue.client import ApiError
from sharequeue.client.new_record import encode_record
from sharequeue.client.scheduling import When, timed
from sharequeue.protocol import apis


@click.command()
@click.argument("topic")
@click.argument("file", default="-")
@click.option("--json-lines", is_flag=True, help="each line is a JSON value; otherwise each line is a string")
@click.option("--key", help="the key of every record")
@click.option("--key-separator", help="the text between key and value in each line")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="a header of every record; repeatable")
@click.option("--partition", type=click.IntRange(min=0), help="the partition of every record")
@click.option("--value", help="one record with this value, in place of FILE")
@click.option("--delay", metavar="LENGTH", help="the records enter TOPIC after this time: 30s, 10m, 24h, 7d")
@click.option("--at", metavar="TIME", help="the records enter TOPIC at this time, in UTC if it has no zone")
@asks_gateway
async def produce(
    topic: str,
    file: str,
    json_lines: bool,
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    value: str | None,
    delay: str | None,
    at: str | None,
    gateway: Gateway,
) -> None:
    """Produce each line of FILE, or of stdin, as a record of TOPIC; with --delay or --at, schedule it.

    Lines that are not UTF-8 become bytes. Records keep the order of the lines. A refused line ends the command; the
    message says up to which line the records are appended, and no line behind that one is. After Ctrl-C the command
    ends with the request under way, for which it waits at most 3 seconds, says the same, and exits with 130.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("give --key or --key-separator, not both")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if (value is not None and file != "-") or (delay is not None and at is not None):
        raise click.UsageError("give FILE or --value, and --delay or --at, not both")
    lines = Lines(
        as_json=json_lines,
        key=key,
        key_separator=None if key_separator is None else key_separator.encode(),
        headers=key_values(headers, "--header"),
        partition=partition,
    )
    blocks = read_lines(open_input(file)) if value is None else one_line(value)
    if delay is not None or at is not None:
        times = None if at is None else moment_ms(at, "--at"), None if delay is None else length_ms(delay, "--delay")
        await _schedule(gateway, topic, blocks, lines, When(*times))
        return
    await gateway.check_reachable()
    fault: Exception | None = None
    interrupted = False
    sending = Sending(gateway.url, topic, lines)
    try:
        interrupted = await sending.run(blocks)
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


async def _schedule(gateway: Gateway, topic: str, blocks: Blocks, lines: Lines, when: When) -> None:
    """Schedule all lines with one request."""
    try:
        found = [line async for block in blocks for line in block]
        records = [lines.record(line, number) for number, line in enumerate(found, 1)]
        whole = b",".join(timed(encode_record(record), when) for record in records if record is not None)
    except (BadLine, ValueError) as fault:
        raise click.UsageError(str(fault)) from None
    answer = await gateway.answered(apis.SCHEDULE_RECORDS, b'{"records":[%b]}' % whole, topic=topic)
    if answer is not None:
        click.echo(f"{len(answer.scheduled)} scheduled in {topic}")

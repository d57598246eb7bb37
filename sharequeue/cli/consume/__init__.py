"""`sharequeue consume`: print records and settle those that were printed.

`consumption` is one run of it: it polls, prints and settles. This file has the options.
`sharequeue.cli` alone imports this package.
"""

import logging
import sys
from typing import Any, Final

import click

from sharequeue.cli.consume.consumption import Consumption, Word
from sharequeue.cli.login import variables
from sharequeue.cli.output import Gateway, asks_gateway, say
from sharequeue.cli.printing import Printer, stopping
from sharequeue.client import ShareConsumer
from sharequeue.protocol import apis

SAID: Final[dict[Word, str]] = {
    "accept": "accepted",
    "release": "released",
    "reject": "rejected",
}


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--group", "-g", required=True, help="the share group")
@click.option("--release", is_flag=True, help="release the records when all are printed")
@click.option("--reject", is_flag=True, help="reject each record after it is printed: it becomes a dead letter")
@click.option("--reason", help="the reason, with --release or --reject")
@click.option("--max-records", type=click.IntRange(min=1), help="stop after this many records")
@click.option("--follow", "-f", is_flag=True, help="wait for more records until Ctrl-C")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=3.0,
    show_default=True,
    help="stop after this many seconds without a record",
)
@click.option("--priority", is_flag=True, help="the topics are in the order of priority")
@click.option("--member-id", help="the id of this member of the group: 1 to 36 characters")
@asks_gateway
async def consume(
    topics: tuple[str, ...],
    group: str,
    release: bool,
    reject: bool,
    reason: str | None,
    max_records: int | None,
    follow: bool,
    timeout: float,
    priority: bool,
    member_id: str | None,
    gateway: Gateway,
) -> None:
    """Print the records of TOPIC that a group has not settled, and accept each after it is printed.

    Prints one value a line; --json prints whole records. The command releases records that it fetched and did not print
    because stdout was closed, --max-records was reached or Ctrl-C came. --release keeps its records locked until the
    command ends, so it gets at most share.partition.max.record.locks records of each partition.

    It exits with 1 if TOPIC does not exist.
    """
    if release and reject:
        raise click.UsageError("--release and --reject exclude each other")
    if reason is not None and not (release or reject):
        raise click.UsageError("--reason needs --release or --reject")
    if sys.stdout is None:
        raise click.UsageError("stdout is closed: there is nowhere to print to")
    for topic in topics:
        await gateway.ask(apis.DESCRIBE_TOPIC, topic=topic)
    word: Word = "release" if release else "reject" if reject else "accept"
    printer = Printer(as_json=gateway.as_json)
    options: dict[str, Any] = {"member_id": member_id, "acknowledgement": "deferred", "priority": priority}
    if max_records is not None:
        options["max_records"] = min(max_records, 500)
    warnings = logging.StreamHandler()
    warnings.setFormatter(logging.Formatter("sharequeue consume: %(message)s"))
    logging.getLogger("sharequeue").addHandler(warnings)
    try:
        consumer = ShareConsumer(gateway.url, group, topics, **options, **variables().options)
        consumption = Consumption(consumer, printer, word=word, reason=reason, max_records=max_records)
        with stopping(consumption.stop):  # the first Ctrl-C never interrupts the release at the end
            async with consumer:
                await consumption.run(None if follow else timeout)
                await consumption.release()
    finally:
        printer.close()
        logging.getLogger("sharequeue").removeHandler(warnings)
    say(f"{consumption.count} record{'' if consumption.count == 1 else 's'} {SAID[word]}")

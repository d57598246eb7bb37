"""`sharequeue groups reset-offsets`."""

import csv
import sys
from pathlib import Path
from typing import Any

import click

from sharequeue.cli.groups.choosing import each_group, force_option, one_or_all_groups
from sharequeue.cli.output import Gateway, asks_gateway, decode, echo_json, moment_ms, say, show_table
from sharequeue.protocol import apis
from sharequeue.protocol.messages.groups import ResetOffsetsResult, ResetShareGroupOffsetsRequest, ResetTopic


@click.command("reset-offsets")
@one_or_all_groups
@click.option("--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="repeatable")
@click.option("--all-topics", is_flag=True, help="all topics that the group has offsets of")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="a file of rows that --export printed",
)
@click.option("--to-earliest", is_flag=True, help="start at the first record")
@click.option("--to-latest", is_flag=True, help="start after the last record")
@click.option("--to-current", is_flag=True, help="start at the present start offset")
@click.option("--to-offset", type=click.IntRange(min=0), help="start at this offset, or at the nearest one of the log")
@click.option(
    "--to-datetime",
    metavar="YYYY-MM-DDThh:mm:ss.sss",
    help="start at the first record from this time on; UTC if it has no zone",
)
@click.option("--dry-run", is_flag=True, help="show the new offsets, change nothing")
@click.option("--execute", is_flag=True, help="change the offsets")
@click.option("--export", is_flag=True, help="print CSV rows: topic,partition,offset")
@force_option
@asks_gateway
@each_group
async def reset_offsets(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    from_file: Path | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    to_datetime: str | None,
    dry_run: bool,
    execute: bool,
    export: bool,
    force: bool,
    gateway: Gateway,
) -> None:
    """Change the start offsets of GROUP or of all groups, not in use. A group that does not exist is created."""
    if dry_run == execute:
        raise click.UsageError("give --dry-run or --execute")
    scenarios = {
        "earliest": to_earliest,
        "latest": to_latest,
        "current": to_current,
        "offset": to_offset is not None or from_file is not None,
        "datetime": to_datetime is not None,
    }
    chosen: list[Any] = [to for to, given in scenarios.items() if given]
    if len(chosen) != 1 or (from_file is not None and to_offset is not None):
        raise click.UsageError(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime"
        )
    if [bool(topics), all_topics, from_file is not None].count(True) != 1:
        raise click.UsageError("give exactly one of --topic, --all-topics, --from-file")
    if to_datetime is not None:
        moment_ms(to_datetime, "--to-datetime")
    wanted = [_topic(text) for text in topics] if from_file is None else _from_file(from_file)
    request = ResetShareGroupOffsetsRequest(
        to=chosen[0], offset=to_offset, datetime=to_datetime, topics=wanted or None, dry_run=dry_run, force=force
    )
    answer = await gateway.ask(apis.RESET_SHARE_GROUP_OFFSETS, request, group=group)
    done: ResetOffsetsResult = decode(answer, apis.RESET_SHARE_GROUP_OFFSETS)
    rows = [(topic.topic, entry.partition, entry.start_offset) for topic in done.topics for entry in topic.partitions]
    if gateway.as_json:
        echo_json(answer)
    elif export:
        csv.writer(sys.stdout, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(rows)
    elif all_topics and not rows:
        say(f"Share group '{group}' has no offset information.")
    else:
        show_table(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), [(group, *row) for row in rows])
    _end_if_failed(done, gateway.as_json)


def _end_if_failed(done: ResetOffsetsResult, as_json: bool) -> None:
    """Name the partitions that failed, and exit with 1 if there are any. A JSON answer names them itself."""
    for error in () if as_json else done.errors:
        say(f"sharequeue: {error.topic}-{error.partition}: {error.code}: {error.detail}")
    if done.failed_count > len(done.errors):
        say(f"sharequeue: {done.failed_count - len(done.errors)} more partitions failed")
    if done.errors:
        sys.exit(1)


def _topic(text: str) -> ResetTopic:
    """`orders` or `orders:0,1`; no topic's name holds a colon."""
    topic, separator, numbers = text.partition(":")
    if not separator:
        return ResetTopic(topic=topic)
    return ResetTopic(topic=topic, partitions=[_number(number, text) for number in numbers.split(",")])


def _from_file(file: Path) -> list[ResetTopic]:
    with file.open(newline="", encoding="utf-8-sig") as opened:
        try:
            rows = [row for row in csv.reader(opened) if row]
        except (UnicodeDecodeError, csv.Error) as fault:
            raise click.UsageError(f"{file} is not a CSV file: {fault}") from None
    if not rows:
        raise click.UsageError(f"{file} has no rows")
    for row in rows:
        if len(row) != 3:
            raise click.UsageError(f"{file}: a row is topic,partition,offset, not {','.join(row)!r}")
    return [
        ResetTopic(topic=topic, partitions=[_number(partition, topic)], offset=_number(offset, topic))
        for topic, partition, offset in rows
    ]


def _number(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise click.UsageError(f"{where}: {text!r} is not a number")
    return int(text)

"""`sharequeue topics delete-records`."""

from typing import Final

import click

from sharequeue.cli.output import ask, decode, echo_json, json_option, run, show_table, url_option
from sharequeue.cli.topics.topic import confirm, name_argument
from sharequeue.protocol import apis
from sharequeue.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest
from sharequeue.protocol.types import MAX_INT32, MAX_INT64, whole_number

LOG_END: Final = -1


@click.command("delete-records")
@name_argument
@click.argument("before", metavar="PARTITION:OFFSET...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="do not ask for confirmation")
@json_option
@url_option
@run
async def delete_records(name: str, before: tuple[str, ...], yes: bool, as_json: bool, url: str) -> None:
    """Delete the records of topic NAME below an offset: 0:100 below 100 in partition 0, 1:end all of partition 1."""
    partitions = [_before(text) for text in before]
    confirm(f"delete records of {name} below {', '.join(before)}?", yes)
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

"""`sharequeue records`: what a group has done with single records, by their offset or their key; changes by hand."""

import click

from sharequeue.cli.commands import Commands
from sharequeue.cli.dead_letters import moment
from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.output import Columns, Gateway, asks_gateway, length_ms, say, show_things
from sharequeue.protocol import apis
from sharequeue.protocol.messages.in_flight import (
    MOST_FOUND,
    ChangeRecordRequest,
    FindRecordsQuery,
    RecordAction,
    RecordLife,
)


@click.group(cls=Commands)
def records() -> None:
    """Look up what a group has done with single records, and change it by hand."""


@records.command()
@group_argument
@click.argument("topic")
@click.argument("offset", type=click.IntRange(min=0))
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="the record's partition")
@asks_gateway
async def show(group: str, topic: str, offset: int, partition: int, gateway: Gateway) -> None:
    """Show what GROUP has done with the record at OFFSET of TOPIC: new, held, delayed, dead, finished and so on."""
    place = {"group": group, "topic": topic, "partition": partition, "offset": offset}
    found = await gateway.answered(apis.LOOK_UP_RECORD, **place)
    if found is not None:
        _table([found])


@records.command()
@group_argument
@click.argument("topic")
@click.argument("key")
@click.option("--partition", type=click.IntRange(min=0), help="look here, and not in the partition of the key")
@click.option(
    "--max-records", type=click.IntRange(1, MOST_FOUND), default=10, show_default=True, help="find at most this many"
)
@click.option("--page-token", help="go on where an earlier call ended")
@asks_gateway
async def find(
    group: str,
    topic: str,
    key: str,
    partition: int | None,
    max_records: int,
    page_token: str | None,
    gateway: Gateway,
) -> None:
    """Find the newest records of TOPIC with KEY, and what GROUP has done with each."""
    query = FindRecordsQuery(key=key, partition=partition, page_size=max_records, page_token=page_token)
    found = await gateway.answered(apis.FIND_RECORDS, query, group=group, topic=topic)
    if found is None:
        return
    _table(found.records)
    if found.next_page_token is not None:
        say(f"{found.looked} offsets looked at; --page-token {found.next_page_token} goes on with older ones")


def _by_hand(action: RecordAction, text: str) -> None:
    """Add the command of an action. An option that does not fit it is refused by the gateway."""

    @records.command(action.replace("_", "-"), help=text)
    @group_argument
    @click.argument("topic")
    @click.argument("offset", type=click.IntRange(min=0))
    @click.option(
        "--partition", type=click.IntRange(min=0), default=0, show_default=True, help="the record's partition"
    )
    @click.option("--delivery-count", type=click.IntRange(min=1), required=True, help="of this delivery alone")
    @click.option("--reason", help="why, for release and reject")
    @click.option("--delay", metavar="LENGTH", help="for release: the record waits for this time: 30s, 10m, 12h")
    @click.option("--lock", metavar="LENGTH", help="for extend: the length of the lock from now on")
    @asks_gateway
    async def change(
        group: str,
        topic: str,
        offset: int,
        partition: int,
        delivery_count: int,
        reason: str | None,
        delay: str | None,
        lock: str | None,
        gateway: Gateway,
    ) -> None:
        request = ChangeRecordRequest(action=action, delivery_count=delivery_count, reason=reason)
        request.delay_ms = None if delay is None else length_ms(delay, "--delay")
        request.lock_duration_ms = None if lock is None else length_ms(lock, "--lock")
        place = {"group": group, "topic": topic, "partition": partition, "offset": offset}
        done = await gateway.answered(apis.CHANGE_RECORD, request, **place)
        if done is not None:
            say("done" if done.note is None else f"done; {done.member_id} held it, and {done.note}")


_by_hand("release", "Give back a record that a worker of GROUP holds: it is delivered again.")
_by_hand("reject", "Make a record that a worker of GROUP holds, or that is delayed, a dead letter.")
_by_hand("extend", "Let a worker of GROUP hold a record for longer.")
_by_hand("deliver_now", "End the delay of a record: GROUP gets it with its next fetch.")


def _table(found: list[RecordLife]) -> None:
    place: Columns = {name: name for name in ("topic", "partition", "offset", "state")}
    show_things({**place, "before": "unfinished_before", "what": _more}, found)


def _more(record: RecordLife) -> str:
    """Return what else is known of a record, in words."""
    said = []
    batch = record.in_flight
    if record.finished_at_ms is not None:
        said.append(f"by {record.finished_by} at {moment(record.finished_at_ms)}")
    if batch is not None and batch.member_id is not None:
        said.append(f"{batch.member_id}, attempt {batch.attempt}, until {moment(batch.lock_expires_at_ms or 0)}")
    if batch is not None and batch.available_at_ms is not None:
        said.append(f"until {moment(batch.available_at_ms)}")
    if batch is not None and batch.transaction_id is not None:
        said.append(f"transaction {batch.transaction_id}")
    if batch is not None and batch.reason is not None:
        said.append(batch.reason)
    for letter in record.dead_letters:
        place = "" if letter.redriven_to is None else f" as offset {letter.redriven_to.offset}"
        said.append(f"{letter.state}{place}: {letter.reason or letter.cause}, died {moment(letter.died_at_ms)}")
    return "; ".join(said)

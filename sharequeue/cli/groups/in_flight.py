"""`sharequeue groups in-flight`: records that members hold, and records that wait for redelivery. `sharequeue groups
window`: how many there are of each kind, offset by offset."""

from datetime import datetime

import click

from sharequeue.cli.groups.choosing import group_argument
from sharequeue.cli.output import Gateway, asks_gateway, echo_json, say, show_table
from sharequeue.protocol import apis
from sharequeue.protocol.messages.in_flight import (
    MOST_BUCKETS,
    InFlightQuery,
    ListInFlightResponse,
    WindowBucket,
    WindowQuery,
)
from sharequeue.protocol.types import KEPT_REASONS


@click.command("in-flight")
@group_argument
@click.option("--topic", help="only this topic")
@click.option("--partition", type=click.IntRange(min=0), help="only this partition of --topic")
@click.option("--reasons", is_flag=True, help="the last five reasons of each, with their times")
@asks_gateway
async def in_flight(group: str, topic: str | None, partition: int | None, reasons: bool, gateway: Gateway) -> None:
    """Show the records that GROUP has in flight: their member, the end of their lock, their delivery count."""
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    listed = ListInFlightResponse(partitions=[])
    query = InFlightQuery(topic=topic, partition=partition)
    async for page in gateway.pages(apis.LIST_IN_FLIGHT_RECORDS, query, group=group):
        listed.partitions += page.partitions
        listed.errors += page.errors
    if gateway.as_json:
        echo_json(listed)
        return
    if reasons:
        show_table(("topic", "partition", "first", "last", "given", "reason"), _reasons(listed))
        return
    rows = [
        (
            entry.topic,
            entry.partition,
            batch.first_offset,
            batch.last_offset,
            batch.delivery_state,
            batch.delivery_count,
            batch.member_id,
            _time(batch.lock_expires_at_ms or batch.available_at_ms),
            batch.reason if batch.transaction_id is None else f"pending on transaction {batch.transaction_id}",
        )
        for entry in listed.partitions
        for batch in entry.batches
    ]
    show_table(("topic", "partition", "first", "last", "state", "count", "member", "until", "reason"), rows)
    for entry in listed.partitions:
        for letter in entry.dead_letters:
            offsets = f"{letter.first_offset} to {letter.last_offset}"
            say(
                f"{entry.topic}-{entry.partition}: the dead letters of {offsets} could not be written: "
                f"{letter.last_error}"
            )
        if entry.parked_dead_letters:
            parked = f"dead letters parked: {entry.parked_dead_letters}, the last because {entry.parked_cause}"
            say(f"{entry.topic}-{entry.partition}: {parked}")
        if entry.limited_by is not None:
            say(f"{entry.topic}-{entry.partition}: new records wait, because {entry.limited_by} is reached")
    for fault in listed.errors:
        say(f"{fault.topic}-{fault.partition}: {fault.code}: {fault.detail}")


@click.command()
@group_argument
@click.argument("topic")
@click.option("--partition", type=click.IntRange(min=0), default=0, show_default=True, help="the partition")
@click.option("--from", "begin", type=click.IntRange(min=0), help="the first offset  [default: where the group begins]")
@click.option("--to", "end", type=click.IntRange(min=0), help="the end, exclusive  [default: the end of the log]")
@click.option("--buckets", type=click.IntRange(1, MOST_BUCKETS), default=20, show_default=True, help="lines at most")
@asks_gateway
async def window(
    group: str, topic: str, partition: int, begin: int | None, end: int | None, buckets: int, gateway: Gateway
) -> None:
    """Count what GROUP does with the offsets of a partition of TOPIC, in buckets. No gateway loads it for that."""
    query = WindowQuery(from_offset=begin, to_offset=end, buckets=buckets)
    seen = await gateway.call(apis.DESCRIBE_WINDOW, query, group=group, topic=topic, partition=partition)
    if gateway.as_json:
        echo_json(seen)
        return
    counts = [name for name in WindowBucket.__struct_fields__ if not name.endswith(("_id", "_ms"))]
    rows = [
        (seen.from_offset + place * seen.bucket_size, *(getattr(bucket, name) for name in counts), bucket.member_id)
        for place, bucket in enumerate(seen.buckets)
    ]
    show_table(("from", *counts, "member"), rows)


def _reasons(listed: ListInFlightResponse) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for entry in listed.partitions:
        for batch in entry.batches:
            given = [(each.at_ms, str(each.reason)) for each in batch.earlier_reasons]
            if batch.reason is not None:
                given.append((batch.reason_at_ms or 0, batch.reason))
            rows += (
                (entry.topic, entry.partition, batch.first_offset, batch.last_offset, _time(at_ms or None), reason)
                for at_ms, reason in given[-KEPT_REASONS:]
            )
    return rows


def _time(epoch_ms: int | None) -> str | None:
    """Local time of day; with the date if it is not today."""
    if epoch_ms is None:
        return None
    moment = datetime.fromtimestamp(epoch_ms / 1000).astimezone()
    today = datetime.now().astimezone().date()
    return moment.strftime("%H:%M:%S" if moment.date() == today else "%Y-%m-%dT%H:%M:%S")

"""`sharequeue schedules`: the schedules of a topic, each of which makes a record at each of its times."""

from typing import Final

import click
import msgspec

from sharequeue.cli.commands import Commands
from sharequeue.cli.output import (
    Columns,
    Gateway,
    asks_gateway,
    echo_json,
    say,
    show_things,
    shown_ms,
)
from sharequeue.cli.scheduled import record_of
from sharequeue.protocol import apis
from sharequeue.protocol.messages.records import ProduceRecord
from sharequeue.protocol.messages.scheduled import (
    Missed,
    PutScheduleRequest,
    ScheduleList,
    ScheduleSummary,
    UpdateScheduleRequest,
)

_COLUMNS: Final[Columns] = {
    "name": "name",
    "cron": lambda each: each.cron.replace(" ", "_"),
    "time zone": "time_zone",
    "next": lambda each: "paused" if each.paused else shown_ms(each.next_at_ms),
    "last": lambda each: shown_ms(each.last_at_ms),
    "missed": "missed",
}


@click.group(cls=Commands)
def schedules() -> None:
    """Make, list, pause, run or delete schedules: one record at each of their times."""


@schedules.command()
@click.argument("topic")
@click.argument("name")
@click.option("--cron", required=True, help="five fields, as in crontab: '*/5 * * * *'; or six, with the second first")
@click.option("--time-zone", default="UTC", show_default=True, help="the IANA name of the time zone of --cron")
@click.option("--value", required=True, help="the value of the records: JSON, otherwise a text")
@click.option("--key", help="the key of the records")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="a header of the records; repeatable")
@click.option(
    "--missed",
    type=click.Choice(["one", "all", "none"]),
    default="one",
    show_default=True,
    help="what to make of times that an outage has taken: one record, one each, or none",
)
@click.option("--paused", is_flag=True, help="make no records until `schedules resume`")
@asks_gateway
async def put(
    topic: str,
    name: str,
    cron: str,
    time_zone: str,
    value: str,
    key: str | None,
    headers: tuple[str, ...],
    missed: Missed,
    paused: bool,
    gateway: Gateway,
) -> None:
    """Make or replace the schedule NAME of TOPIC."""
    record = msgspec.json.decode(record_of(value, key, headers), type=ProduceRecord)
    request = PutScheduleRequest(cron=cron, time_zone=time_zone, missed=missed, paused=paused, record=record)
    _tell(await gateway.answered(apis.PUT_SCHEDULE, request, topic=topic, name=name))


@schedules.command("list")
@click.argument("topic")
@asks_gateway
async def list_all(topic: str, gateway: Gateway) -> None:
    """List the schedules of TOPIC by name."""
    found: ScheduleList | None = await gateway.answered(apis.LIST_SCHEDULES, topic=topic)
    if found is not None:
        show_things(_COLUMNS, found.schedules)


@schedules.command()
@click.argument("topic")
@click.argument("name")
@asks_gateway
async def describe(topic: str, name: str, gateway: Gateway) -> None:
    """Print the schedule NAME of TOPIC with its record, as JSON."""
    echo_json(await gateway.ask(apis.GET_SCHEDULE, topic=topic, name=name))


@schedules.command()
@click.argument("topic")
@click.argument("name")
@asks_gateway
async def delete(topic: str, name: str, gateway: Gateway) -> None:
    """Delete the schedule NAME of TOPIC. Records that it has made stay."""
    await gateway.ask(apis.DELETE_SCHEDULE, topic=topic, name=name)
    if gateway.as_json:
        echo_json({"deleted": [name]})
    else:
        say(f"deleted {name}")


def _changing(command: str, change: UpdateScheduleRequest, text: str) -> None:
    """Add a command that changes a schedule."""

    @schedules.command(command, help=text)
    @click.argument("topic")
    @click.argument("name")
    @asks_gateway
    async def update(topic: str, name: str, gateway: Gateway) -> None:
        _tell(await gateway.answered(apis.UPDATE_SCHEDULE, change, topic=topic, name=name))


_changing("pause", UpdateScheduleRequest(paused=True), "Make no records of the schedule NAME at its times.")
_changing("resume", UpdateScheduleRequest(paused=False), "Let the schedule NAME go on with its next time.")
_changing("run", UpdateScheduleRequest(run=True), "Make one record of the schedule NAME now. Its times stay.")


def _tell(found: ScheduleSummary | None) -> None:
    if found is None:
        return
    if found.made_offset is not None:
        say(f"one record in partition {found.partition} at offset {found.made_offset}")
    say(f"{found.name}: " + ("paused" if found.paused else f"next at {shown_ms(found.next_at_ms)}"))

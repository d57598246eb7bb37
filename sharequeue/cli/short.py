"""Everyday words for calls: `sharequeue groups in-flight G` is `sharequeue call listInFlightRecords group=G`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
import msgspec

from sharequeue.cli.call import CALLS, fields_of, make
from sharequeue.cli.commands import Commands
from sharequeue.cli.output import Gateway, asks_gateway

_RECORD: Final = "group topic offset partition=0"
ROWS: Final[Sequence[tuple[str, ...]]] = (
    ("groups attention", "listGroupsByAttention", "[group_id]"),
    ("groups in-flight", "listInFlightRecords", "group"),
    ("groups window", "describeWindow", "group topic partition=0 buckets=20"),
    ("scheduled list", "listScheduledRecords", "topic"),
    ("scheduled due", "listDue", ""),
    ("scheduled cancel", "cancelScheduledRecords", "topic [schedule_ids]…"),
    ("schedules put", "putSchedule", "topic name"),
    ("schedules list", "listSchedules", "topic"),
    ("schedules describe", "getSchedule", "topic name"),
    ("schedules pause", "updateSchedule", "topic name paused=true", "Make no records of a schedule at its times."),
    ("schedules resume", "updateSchedule", "topic name paused=false", "Let a schedule go on with its next time."),
    ("schedules run", "updateSchedule", "topic name run=true", "Make one record of a schedule now. Its times stay."),
    ("schedules delete", "deleteSchedule", "topic name"),
    ("records show", "lookUpRecord", _RECORD),
    ("records find", "findRecords", "group topic key page_size=10"),
    ("records release", "changeRecord", f"{_RECORD} action=release", "Give back a held record: it is delivered again."),
    ("records reject", "changeRecord", f"{_RECORD} action=reject", "Make a held or a delayed record a dead letter."),
    ("records extend", "changeRecord", f"{_RECORD} action=extend", "Let a worker hold a record for longer."),
    ("records deliver-now", "changeRecord", f"{_RECORD} action=deliver_now", "End the delay of a record."),
    ("transactions list", "listTransactions", ""),
    ("transactions describe", "describeTransaction", "transaction"),
    ("transactions abort", "terminateTransaction", "transaction"),
    ("activity", "listActivity", "from_ms=1d"),
    ("samples", "listSamples", ""),
)
"""The words, their call, its members, and a help if the summary of the call does not fit. A member is an argument, but
with a value it has that unless the user gives another. One in brackets takes a word without `=`; with `…`, all such."""
GROUPS: Final = {
    "scheduled": "List or cancel records that wait for their time; `sharequeue produce --delay` adds one.",
    "schedules": "Make, list, pause, run or delete schedules: one record at each of their times.",
    "records": "Look up what a group has done with single records, and change it by hand.",
    "transactions": "List transactions, or describe or abort one.",
}


class Short(click.Command):
    def __init__(self, words: str, operation: str, members: str, text: str = "") -> None:
        self.api = CALLS[operation]
        self._usual = re.findall(r"\S+=\S+", members)
        self._rest = re.search(r"\[(\w+)\](…?)", members)
        given = re.findall(r"(?<!\S)\w+(?!\S)", members)
        same = " ".join([operation, *(f"{name}={name.upper()}" for name in given), *self._usual])
        others = ", ".join(name for name in fields_of(self.api) if name not in given) or "nothing"
        makes = f"Makes `sharequeue call {same}` (docs/calls.md). It takes as NAME=VALUE: {others}."
        arguments: list[click.Parameter] = [click.Argument([name]) for name in given]
        rest = f"{self._rest[0].upper()} " if self._rest else ""
        arguments.append(click.Argument(["members"], nargs=-1, metavar=f"{rest}[NAME=VALUE]..."))
        command = asks_gateway(self._make)
        arguments += command.__click_params__[::-1]  # type: ignore[attr-defined]
        super().__init__(
            words.rpartition(" ")[2], callback=command, params=arguments, help=f"{text or self.api.summary}\n\n{makes}"
        )

    async def _make(self, gateway: Gateway, members: Sequence[str], **given: str) -> None:
        await make(self.api, self.members(members, given), gateway)

    def members(self, more: Sequence[str], given: Mapping[str, Any]) -> list[str]:
        """NAME=VALUE of each member of the call. `more`: the words behind the arguments. `given`: the arguments."""
        named = [f"{name}={value}" for name, value in given.items()]
        words = [each for each in more if "=" not in each]
        if self._rest and words:
            name, many = self._rest.groups()
            taken = words if many else words[:1]
            named.append(f"{name}={msgspec.json.encode(taken).decode() if many else taken[0]}")
            more = [*words[len(taken) :], *(each for each in more if "=" in each)]
        return [*self._usual, *named, *more]


def commands_of(group: str) -> Iterator[click.Command]:
    """The short commands of a group of commands; those that are in none, for their own name."""
    return (Short(*row) for row in ROWS if row[0].split()[0] == group)


def command_of(name: str) -> click.Command:
    """The command of a first word: a group, or a short command itself."""
    found = list(commands_of(name))
    return Commands(name, help=GROUPS[name], commands=found) if name in GROUPS else found[0]

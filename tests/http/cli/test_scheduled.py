"""`sharequeue scheduled` and `schedules`, and the first with the Python client."""

import asyncio
import json

import pytest

from sharequeue.client import Producer, Scheduled
from sharequeue.client.sync import Producer as SyncProducer
from sharequeue.stack.stack import Stack
from tests.http.cli.conftest import REFUSED, WRONG_USAGE, Run


def test_records_are_added_listed_and_cancelled(run: Run, name: str) -> None:
    for value, key in (("1", "a"), ("x y", "b"), ('{"n": 1}', "a")):
        added = run("scheduled", "add", name, value, "--key", key, "--header", "h=1", "--delay", "7d")
        assert f" enters {name} at 2".encode() in added.stderr
    (later,) = json.loads(run("scheduled", "add", name, "2", "--json", "--at", "2030-01-01T09:00").stdout)["scheduled"]
    assert later["deliver_at_ms"] == 1_893_488_400_000
    listed = run("scheduled", "list", name)
    rows = [line.split() for line in listed.stdout.decode().splitlines()[1:]]
    assert [row[3] for row in rows] == ["a", "b", "a", "-"]
    assert listed.stderr == f"4 scheduled in {name}\n".encode()
    due = [line.split() for line in run("scheduled", "due").stdout.decode().splitlines()[1:]]
    assert [row[2] for row in due if row[1] == name] == [row[0] for row in rows]
    assert len(json.loads(run("scheduled", "due", "--limit", "1", "--json").stdout)["due"]) == 1
    assert run("scheduled", "cancel", name, rows[0][0]).stderr == b"1 cancelled\n"
    assert run("scheduled", "cancel", name, rows[0][0]).stderr.decode() == f"0 cancelled; not found: {rows[0][0]}\n"
    assert json.loads(run("scheduled", "cancel", name, "--key", "a", "--json").stdout) == {"cancelled": [rows[2][0]]}
    assert json.loads(run("scheduled", "list", name, "--limit", "1", "--json").stdout)["scheduled_count"] == 2


def test_times_that_contradict_or_are_none_are_wrong_usage(run: Run, name: str) -> None:
    for options in ((), ("--delay", "1d", "--at", "2030-01-01"), ("--delay", "soon"), ("--at", "noon")):
        run("scheduled", "add", name, "1", *options, code=WRONG_USAGE)
    run("scheduled", "cancel", name, code=WRONG_USAGE)


def test_the_clients_schedule_and_cancel(stack: Stack, name: str) -> None:
    async def schedule() -> Scheduled:
        async with Producer(stack.url) as producer:
            with pytest.raises(ValueError, match="exactly one"):
                await producer.schedule(name, 1)
            first = await producer.schedule(name, {"n": 1}, key="k", deliver_at_ms=1_893_488_400_000)
            assert await producer.cancel_scheduled(name, schedule_ids=[first.schedule_id]) == [first.schedule_id]
            return first

    first = asyncio.run(schedule())
    assert first == Scheduled(name, 0, first.schedule_id, 1_893_488_400_000)
    with SyncProducer(stack.url) as producer:
        second = producer.schedule(name, b"\xff", key="k", delay_ms=86_400_000)
        assert producer.cancel_scheduled(name, key="k") == [second.schedule_id]


def test_a_schedule_is_put_listed_paused_run_and_deleted(run: Run, name: str) -> None:
    options = ("--cron", "30 7 * * *", "--time-zone", "Europe/Berlin", "--key", "k", "--header", "a=b")
    assert run("schedules", "put", name, "s", *options, "--value", '{"n": 1}').stderr.startswith(b"s: next at 2")
    described = json.loads(run("schedules", "describe", name, "s").stdout)
    assert (described["value"], described["key"], described["headers"]["a"]) == ({"n": 1}, "k", "b")
    assert run("schedules", "pause", name, "s").stderr == b"s: paused\n"
    assert run("schedules", "list", name).stdout.splitlines()[1].split()[:4] == [
        *(b"s", b"30_7_*_*_*", b"Europe/Berlin", b"paused")
    ]
    assert run("schedules", "run", name, "s").stderr.splitlines() == [
        *(b"one record in partition 0 at offset 0", b"s: paused")
    ]
    assert json.loads(run("schedules", "resume", name, "s", "--json").stdout)["paused"] is False
    assert run("schedules", "delete", name, "s").stderr == b"deleted s\n"
    assert b"/cron" in run("schedules", "put", name, "s", "--cron", "61 9 9 9 9", "--value", "x", code=REFUSED).stderr
    run("schedules", "pause", name, "s", code=REFUSED)

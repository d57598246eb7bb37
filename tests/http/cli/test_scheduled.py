"""`sharequeue scheduled`, `schedules` and `produce --delay`, and the first with the Python client."""

import asyncio
import json
from pathlib import Path

import pytest

from sharequeue.client import Producer, Scheduled
from sharequeue.client.sync import Producer as SyncProducer
from sharequeue.stack.stack import Stack
from tests.http.cli.conftest import REFUSED, WRONG_USAGE, Run


def test_lines_are_scheduled_listed_read_and_cancelled(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("a=1\nb=2\na=3\n")
    keyed = (str(file), "--key-separator", "=")
    assert run("produce", name, *keyed, "--delay", "7d").stdout == f"3 records scheduled in {name}\n".encode()
    (later,) = json.loads(run("produce", name, "--json", "--at", "2030-01-01T09:00", str(file)).stdout)["scheduled"][:1]
    assert later["deliver_at_ms"] == 1_893_488_400_000
    listed = run("scheduled", "list", name, "--key", "a")
    rows = [line.split() for line in listed.stdout.decode().splitlines()[1:]]
    assert [row[3] for row in rows] == ["a", "a"]
    assert listed.stderr == f"6 scheduled in {name}, with any key\n".encode()
    assert json.loads(run("scheduled", "get", name, rows[1][0]).stdout)["value"] == "3"
    assert run("scheduled", "cancel", name, rows[0][0], rows[0][0]).stderr.startswith(b"1 cancelled; 1 not found")
    assert json.loads(run("scheduled", "cancel", name, "--key", "a", "--json").stdout) == {"cancelled": [rows[1][0]]}
    assert json.loads(run("scheduled", "list", name, "--limit", "1", "--json").stdout)["scheduled_count"] == 4
    assert b"RESOURCE_NOT_FOUND" in run("scheduled", "get", name, rows[1][0], code=REFUSED).stderr


def test_times_that_contradict_or_are_none_are_wrong_usage(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n2\nx\n")
    for options in (("--delay", "1d", "--at", "2030-01-01"), ("--delay", "soon"), ("--at", "noon")):
        run("produce", name, str(file), *options, code=WRONG_USAGE)
    run("scheduled", "cancel", name, code=WRONG_USAGE)
    refused = run("produce", name, str(file), "--json-lines", "--delay", "1d", code=REFUSED)
    assert (refused.stdout, b"line 3" in refused.stderr) == (f"2 records scheduled in {name}\n".encode(), True)


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
    assert run("schedules", "run", name, "s").stderr == b"one record in partition 0 at offset 0\n"
    assert json.loads(run("schedules", "resume", name, "s", "--json").stdout)["paused"] is False
    assert run("schedules", "delete", name, "s").stderr == b"deleted s\n"
    assert b"/cron" in run("schedules", "put", name, "s", "--cron", "61 9 9 9 9", "--value", "x", code=REFUSED).stderr
    run("schedules", "pause", name, "s", code=REFUSED)

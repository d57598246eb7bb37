"""Everyday words for calls: `sharequeue scheduled list TOPIC` and all others of the table."""

import json
from typing import Any

import httpx
import pytest

from sharequeue.cli.short import ROWS
from sharequeue.stack.stack import Stack
from tests.http.cli.conftest import WRONG_USAGE, Run, ask, fill


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    return shared_stack


def scheduled(client: httpx.Client, topic: str) -> list[str]:
    return [each["schedule_id"] for each in ask(client, "GET", f"/v1/topics/{topic}/scheduled")["scheduled"]]


def test_each_row_makes_its_call_and_prints_a_table(run: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, *range(5))
    fetch = {"topics": [name], "member_id": "m", "max_records": 4, "lock_duration_ms": 600_000}
    ask(client, "POST", f"/v1/share-groups/{name}/fetch", fetch)
    records = [{"value": 1, "key": key, "delay_ms": 604_800_000} for key in "abc"]
    ask(client, "POST", f"/v1/topics/{name}/scheduled", {"records": records})
    first, second, _ = scheduled(client, name)
    transaction = ask(client, "POST", "/v1/transactions", {"transactional_id": name})["transaction_id"]
    cron = ("cron=30 2 * * *", "time_zone=Europe/Berlin", 'record={"value": {"n": 1}}')
    done: tuple[tuple[str, list[str], str], ...] = (
        ("groups attention", [name], "period_ms"),
        ("groups in-flight", [name], "lock_expires_at_ms"),
        ("groups window", [name, name], "bucket_size"),
        ("scheduled list", [name], first),
        ("scheduled due", ["page_size=1"], "deliver_at_ms"),
        ("scheduled cancel", [name, first, second], second),
        ("schedules put", [name, "nightly", *cron], "Europe/Berlin"),
        ("schedules list", [name], "nightly"),
        ("schedules describe", [name, "nightly"], '{"n": 1}'),
        ("schedules pause", [name, "nightly"], "true"),
        ("schedules resume", [name, "nightly"], "next_at_ms"),
        ("schedules run", [name, "nightly"], "made_offset"),
        ("schedules delete", [name, "nightly"], ""),
        ("records show", [name, name, "4"], "new"),
        ("records find", [name, name, "k", "partition=0"], "looked"),
        ("records release", [name, name, "0", "delivery_count=1", "delay_ms=1h"], "m"),
        ("records reject", [name, name, "1", "delivery_count=1", "reason=why"], "m"),
        ("records extend", [name, name, "2", "delivery_count=1", "lock_duration_ms=10m"], "m"),
        ("records deliver-now", [name, name, "0", "delivery_count=1"], ""),
        ("transactions list", [f"transactional_id={name}"], transaction),
        ("transactions describe", [transaction], "open"),
        ("transactions abort", [transaction], "administrator"),
        ("activity", [f"topic={name}", "page_size=1"], "hour_ms"),
        ("samples", [f"group_id={name}"], "step_ms"),
    )
    assert [words for words, *_ in done] == [row[0] for row in ROWS]
    for words, arguments, shown in done:
        printed = run(*words.split(), *arguments).stdout.decode()
        assert shown in printed, (words, printed)
        assert bool(printed) == bool(shown), words
    assert len(scheduled(client, name)) == 1
    assert not ask(client, "GET", f"/v1/topics/{name}/schedules")["schedules"]


def test_a_member_with_a_value_has_it_unless_the_user_gives_another(run: Run, client: httpx.Client, name: str) -> None:
    ask(client, "POST", "/v1/topics", {"name": name, "partitions": 2})

    def seen(*members: str) -> Any:
        return json.loads(run("groups", "window", name, name, *members, "--json").stdout)

    fill(client, name, 1)
    assert sum(seen(f"partition={number}")["log_end_offset"] for number in (0, 1)) == 1
    assert seen() == seen("partition=0", "buckets=20")
    long_ago = ("activity", f"topic={name}", "from_ms=1970-01-02")
    assert run("activity", f"topic={name}").stdout == run("activity", f"topic={name}", "from_ms=24h").stdout
    assert run(*long_ago).stdout == run("activity", f"topic={name}").stdout, "a length is a time so long ago"


def test_words_too_few_or_too_many_are_wrong_usage_and_help_names_the_call(run: Run, name: str) -> None:
    for words in (
        ("records", "show", name),
        ("records", "show", name, name, "1", "2"),
        ("groups", "attention", name, name),
        ("schedules", "put", name, "nightly", "corn=1"),
    ):
        run(*words, code=WRONG_USAGE)
    for row in ROWS:
        said = " ".join(run(*row[0].split(), "--help").stdout.decode().split())
        assert f"`sharequeue call {row[1]}" in said

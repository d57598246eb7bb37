"""`sharequeue call`: any call of the API by its name."""

import json
from typing import Any

import httpx
import pytest

from sharequeue.cli.call import CALLS
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until
from tests.http.cli.conftest import REFUSED, WRONG_USAGE, Run, ask, fill

WEEK = 7 * 86_400_000


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    return shared_stack


def tables(printed: bytes) -> list[list[str]]:
    return [line.split() for line in printed.decode().splitlines()]


def called(run: Run, *words: str) -> Any:
    return json.loads(run("call", *words, "--json").stdout)


def test_members_are_texts_json_lengths_and_times(run: Run, name: str) -> None:
    topic, group = f"topic={name}", f"group={name}"
    records = [{"value": value, "key": key, "delay_ms": WEEK} for value, key in enumerate("1a1")]
    assert len(called(run, "scheduleRecords", topic, f"records={json.dumps(records)}")["scheduled"]) == 3
    (first, *_) = called(run, "listScheduledRecords", topic)["scheduled"]
    ids = json.dumps([first["schedule_id"]])
    assert called(run, "cancelScheduledRecords", topic, f"schedule_ids={ids}")["cancelled"] == json.loads(ids)
    assert len(called(run, "cancelScheduledRecords", topic, "key=1")["cancelled"]) == 1, "a key is no number"
    cron = ("cron=30 7 * * *", "time_zone=Europe/Berlin", 'record={"value": {"n": 1e400}}')
    assert called(run, "putSchedule", topic, "name=s", *cron)["time_zone"] == "Europe/Berlin"
    assert called(run, "updateSchedule", topic, "name=s", "paused=true", "run=true")["made_offset"] == 0
    assert b'"value":{"n": 1e400}' in run("call", "getSchedule", topic, "name=s", "--json").stdout
    assert run("call", "deleteSchedule", topic, "name=s").stdout == b""
    ask_for = ("topics=" + json.dumps([name]), "member_id=m", "lock_duration_ms=10m")
    (batch,) = called(run, "fetchRecords", group, *ask_for)["batches"]
    assert batch["lock_duration_ms"] == 600_000
    by_hand = (group, topic, "partition=0", "offset=0", "action=reject", "delivery_count=1", "reason=why")
    assert called(run, "changeRecord", *by_hand)["member_id"] == "m"
    assert called(run, "listActivity", topic, "from_ms=2999-11-21T08:00")["activity"] == []


def test_an_answer_is_a_table_for_each_kind_of_thing(run: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, 1, 2)
    ask(client, "POST", f"/v1/share-groups/{name}/fetch", {"topics": [name], "member_id": "m", "max_records": 1})
    shown = tables(run("call", "listInFlightRecords", f"group={name}").stdout)
    (heads,) = [cells for cells in shown if "first_offset" in cells]
    assert any("start_offset" in cells for cells in shown), "the partitions have a table of their own"
    held = dict(zip(heads, next(cells for cells in shown if "m" in cells), strict=True))
    assert (held["topic"], held["partition"], held["member_id"]) == (name, "0", "m")
    assert held["lock_expires_at_ms"].endswith("Z"), "a time, in UTC"
    (life,) = tables(run("call", "lookUpRecord", f"group={name}", f"topic={name}", "partition=0", "offset=1").stdout)[
        1:
    ]
    assert "new" in life


def test_a_list_is_followed_to_its_end_and_page_size_gives_one_page(
    run: Run, client: httpx.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [{"value": 1, "delay_ms": WEEK}] * 2500
    ask(client, "POST", f"/v1/topics/{name}/scheduled", {"records": records})
    everything = called(run, "listScheduledRecords", f"topic={name}")
    assert len({each["schedule_id"] for each in everything["scheduled"]}) == 2500
    assert "next_page_token" not in everything
    page = called(run, "listScheduledRecords", f"topic={name}", "page_size=2")
    assert (len(page["scheduled"]), "next_page_token" in page) == (2, True)
    lines = run("call", "listScheduledRecords", f"topic={name}", "--jsonl").stdout.splitlines()
    assert len(lines) == 2500


def test_what_does_not_fit_is_wrong_usage_and_a_refusal_is_the_gateways(run: Run, name: str) -> None:
    for words, said in (
        (("listTransaction",), "is not one of"),
        (("describeTopic",), "describeTopic takes topic"),
        (("describeTopic", f"topic={name}", "tpoic=x"), "look at tpoic"),
        (("describeTopic", "topic"), "takes NAME=VALUE"),
        (("listScheduledRecords", f"topic={name}", "page_size=many"), "page_size"),
        (("putSchedule", f"topic={name}", "name=s"), "cron"),
        (("scheduleRecords", f"topic={name}", "records=1"), "records"),
        (("listActivity", "from_ms=noon"), "2026-11-21T08:00"),
    ):
        assert said in run("call", *words, code=WRONG_USAGE).stderr.decode(), words
    refused = run("call", "describeTransaction", "transaction=none", "--json", code=REFUSED)
    assert json.loads(refused.stderr)["kafka_code"] == 105


def test_all_calls_of_users_are_listed(run: Run) -> None:
    listed = {line[0] for line in tables(run("call").stdout)[1:]}
    assert listed == {*CALLS} > {"listTransactions", "terminateTransaction", "describeWindow", "deleteTopic"}
    assert not {"auditLog", "registerGateway", "streamRecords", "produceRawRecord"} & listed


def test_a_change_is_one_call_and_says_how_it_goes_on(gateway: Gateway, run: Run, name: str) -> None:
    """A list is followed to its end; `max_records=1` of dead letters drops one, and not all."""
    gateway.produce_batches(name, 3)
    gateway.acquire(name, name)
    gateway.settle(name, name, 0, 2, "reject")
    group = f"group={name}"
    wait_until(lambda: len(called(run, "listDeadLetters", group)["dead_letters"]) == 3)
    done = called(run, "dropDeadLetters", group, "max_records=1")
    assert (done["matched"], done["dropped"]) == (1, 1)
    assert len(called(run, "listDeadLetters", group)["dead_letters"]) == 2
    assert called(run, "dropDeadLetters", group, f"page_token={done['next_page_token']}")["dropped"] == 2

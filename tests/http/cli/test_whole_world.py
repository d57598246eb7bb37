"""Each command that shows something, over a world that has everything in it: as a table, and as the API's JSON."""

import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until
from tests.http.cli.conftest import Run, ask

TRANSIENT = ("age_ms", "seconds_ago")
MEMBER = "arbeiter ü [1]"


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    return shared_stack


@pytest.fixture
def gateway(client: httpx.Client) -> Gateway:
    return Gateway(client)


def without_ages(value: Any) -> Any:
    """A JSON value without what two looks at the same thing differ in."""
    if isinstance(value, dict):
        return {name: without_ages(part) for name, part in value.items() if name not in TRANSIENT}
    return [without_ages(part) for part in value] if isinstance(value, list) else value


def begin(gateway: Gateway, name: str, transactional_id: str) -> str:
    """A transaction that has written. Returns: its id."""
    begun = ask(gateway.http, "POST", "/v1/transactions", {"transactional_id": transactional_id})["transaction_id"]
    body = {"records": [{"value": transactional_id, "partition": 0}]}
    good(gateway.http.post(f"/v1/topics/{name}/records", json=body, headers={"Transaction-Id": begun}))
    return str(begun)


def world(gateway: Gateway, name: str) -> Sequence[str]:
    """Two reasons, delays, both causes of letters, bytes that are no text, gaps, members, transactions.
    Returns: the ids of an open, a committed and an aborted transaction."""
    gateway.create_topic(name, 2, retention_ms=86_400_000)
    gateway.configure(name, share_delivery_count_limit=3)
    values = [{"value": value} for value in ("ü|\t", {"n": 1.5}, None, [], "rejected", "worn out", "held")]
    values += [
        {"value_base64": "//4A", "key_base64": "/w==", "headers": {"h": "ü"}},
        {"key": "gone", "tombstone": True},
    ]
    ask(gateway.http, "POST", f"/v1/topics/{name}/records", {"records": [{**each, "partition": 0} for each in values]})
    ids = [begin(gateway, name, f"{name}-{end}") for end in ("open", "commit", "abort")]
    for transaction, end in zip(ids[1:], ("commit", "abort"), strict=True):
        good(gateway.http.post(f"/v1/transactions/{transaction}/{end}", json={}))
    for reason in ("besetzt", "line | busy"):
        gateway.fetch(name, name, member=MEMBER)
        for offset in (0, 5):
            gateway.settle(name, name, offset, offset, "release", reason=reason, member=MEMBER)
    gateway.fetch(name, name, member=MEMBER)
    gateway.settle(name, name, 0, 0, "release", delay_ms=3_600_000, begun=False, reason="später", member=MEMBER)
    gateway.settle(name, name, 1, 3, "accept", member=MEMBER)
    gateway.settle(name, name, 4, 4, "reject", reason="no such account", member=MEMBER)
    gateway.settle(name, name, 5, 5, "release", reason="third", member=MEMBER)
    gateway.letters(f"dlq.{name}", 2)
    joined = {"member_id": "joined", "member_epoch": 0, "subscribed_topic_names": [name]}
    for group in (name, f"{name}-other"):
        ask(gateway.http, "POST", f"/v1/share-groups/{group}/heartbeat", joined)
    return ids


def test_every_command_shows_what_the_api_answers(run: Run, gateway: Gateway, name: str) -> None:
    opened, committed, aborted = world(gateway, name)
    group, topic = f"/v1/share-groups/{name}", f"/v1/topics/{name}"
    shown: dict[tuple[str, ...], tuple[str, Sequence[str]]] = {
        ("topics", "list"): ("/v1/topics", [name, f"dlq.{name}"]),
        ("topics", "describe", name): (topic, ["retention.ms", "86400000"]),
        ("groups", "list"): ("/v1/share-groups", [name]),
        ("groups", "list", "--state"): ("/v1/share-groups", ["Stable"]),
        ("groups", "describe", name): (f"{group}/offsets", [name]),
        ("groups", "describe", name, "--members"): (group, ["joined"]),
        ("groups", "describe", name, "--state", "--verbose"): (group, ["Stable"]),
        ("groups", "config", name): (f"{group}/config", ["share.delivery.count.limit"]),
        ("groups", "in-flight", name): (f"{group}/in-flight", [MEMBER, "später", "AVAILABLE", "ACQUIRED"]),
        ("groups", "in-flight", name, "--reasons"): (f"{group}/in-flight", ["besetzt", "line | busy", "später"]),
        ("transactions", "list"): ("/v1/transactions", [opened]),
        ("transactions", "list", "--state", "committed"): ("/v1/transactions?state=committed", [committed]),
        ("transactions", "list", "--state", "aborted"): ("/v1/transactions?state=aborted", [aborted]),
        **{
            ("transactions", "describe", each): (f"/v1/transactions/{each}", [each])
            for each in (opened, committed, aborted)
        },
    }
    for command, (path, words) in shown.items():
        table = run(*command).stdout.decode()
        assert [word for word in words if word not in table] == [], command
        answer = good(gateway.http.get(path))
        answer.pop("next_page_token", None)
        (line,) = run(*command, "--json").stdout.splitlines()
        assert without_ages(json.loads(line)) == without_ages(answer), command
    described = run("groups", "describe", name, f"{name}-other", "--members", "--json").stdout.splitlines()
    assert [json.loads(line)["group_id"] for line in described] == [name, f"{name}-other"]
    matched = good(gateway.http.post(f"{group}/dead-letters/redrive", json={"dry_run": True}))["matched"]
    assert json.loads(run("groups", "redrive", name, "--dry-run", "--json").stdout) == {"matched": matched}
    assert matched == 2
    counted = ("activity", "--group", name)
    wait_until(lambda: json.loads(run(*counted, "--json").stdout)["activity"])
    assert name in run(*counted).stdout.decode()


@pytest.mark.parametrize("options", [["--json"], []], ids=["whole records", "values"])
def test_a_value_of_many_lines_is_printed_on_one(run: Run, gateway: Gateway, name: str, options: list[str]) -> None:
    """It stays byte for byte in the log. A program that reads lines saw half a JSON value."""
    values = [{"a": [1, "two\nlines"]}, "next"]
    records = ",".join(json.dumps({"value": value}, indent=2).replace("\n", "\r\n") for value in values)
    headers = {"Content-Type": "application/json"}
    good(gateway.http.post(f"/v1/topics/{name}/records", content=f'{{"records":[{records}]}}', headers=headers))
    for command in (["topics", "read", name], ["consume", name, "-g", name, "--max-records", "2"]):
        first, second = run(*command, *options).stdout.splitlines()
        assert json.loads(first) == values[0] if not options else json.loads(first)["value"] == values[0]
        assert second == b"next" if not options else json.loads(second)["value"] == "next"


def test_every_record_is_read_as_the_api_answers_it(run: Run, gateway: Gateway, name: str) -> None:
    world(gateway, name)
    for topic in (name, f"dlq.{name}"):
        lines = run("topics", "read", topic, "--partition", "0", "--json").stdout.splitlines()
        printed = [{**json.loads(line)} for line in lines]
        for line in printed:
            assert (line.pop("topic"), line.pop("partition")) == (topic, 0)
        read = gateway.read(topic)["records"]
        assert printed == [{"headers": {}, **record} for record in read]
        assert len(run("topics", "read", topic, "--partition", "0").stdout.splitlines()) >= len(read)

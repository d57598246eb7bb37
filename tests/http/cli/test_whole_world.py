"""Each command that shows something, over a world that has everything in it: as a table, as the API's JSON, and as JSON
lines."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import httpx
import pytest

from sharequeue.cli import main
from sharequeue.cli.short import ROWS
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, Json, good
from tests.http.cli.conftest import SOON, Run, ask

TRANSIENT = ("age_ms", "seconds_ago", "oldest_ready_age_ms", "oldest_ready_ms")
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
    later = {"value": 1, "key": "später", "delay_ms": 604_800_000}
    ask(gateway.http, "POST", f"/v1/topics/{name}/scheduled", {"records": [later]})
    schedule = {"cron": "0 4 * * *", "record": {"value": "nightly"}}
    good(gateway.http.put(f"/v1/topics/{name}/schedules/nachts", json=schedule))
    joined = {"member_id": "joined", "member_epoch": 0, "subscribed_topic_names": [name]}
    for group in (name, f"{name}-other"):
        ask(gateway.http, "POST", f"/v1/share-groups/{group}/heartbeat", joined)
    return ids


def rows_of(table: bytes, *without: int) -> list[list[str]]:
    """The cells of each line, without those of some columns, which are times."""
    rows = [re.split(" {2,}", line) for line in table.decode().splitlines()]
    return [[cell for column, cell in enumerate(row) if column not in without] for row in rows]


def of_offsets(answer: Json) -> list[list[Any]]:
    return [
        [topic["topic"], partition["partition"], partition["start_offset"], partition["lag"]]
        for topic in answer["topics"]
        for partition in topic["partitions"]
    ]


def of_members(answer: Json) -> list[list[Any]]:
    return [
        [
            *(answer["group_id"], member["member_id"], member["client_host"], member["client_id"]),
            *(len(assigned["partitions"]), f"{assigned['topic']}:{','.join(map(str, assigned['partitions']))}"),
        ]
        for member in answer["members"]
        for assigned in member["assignment"]["topic_partitions"]
    ]


def of_topic(answer: Json) -> list[list[Any]]:
    offsets = ("partition", "log_start_offset", "last_stable_offset", "log_end_offset")
    return [
        *map(list, answer["config"].items()),
        *([entry[field] for field in offsets] for entry in answer["partitions"]),
    ]


def listed(place: str, *fields: str) -> Callable[[Json], list[list[Any]]]:
    return lambda answer: [[entry.get(field) for field in fields] for entry in answer[place]]


def single(*fields: str) -> Callable[[Json], list[list[Any]]]:
    return lambda answer: [[answer.get(field) for field in fields]]


LISTS = {"list", "--offsets"}
"""Words of the commands whose answer is a list."""
SHOWS = {"list", "describe", "show", "config"}
"""The last words of the commands that show something."""
WORK = ("ready", "held", "delayed", "dying", "open_dead_letters", "workers")


def commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    """The paths of all commands."""
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, *path, name)


def test_every_command_shows_what_the_api_answers(run: Run, gateway: Gateway, name: str) -> None:
    world(gateway, name)
    group, principal = f"/v1/share-groups/{name}", f"User:{name}"
    ask(gateway.http, "POST", "/v1/keys", {"principal": principal, "description": "für die Öfen"})
    resource = {"resource_type": "TOPIC", "resource_name": name, "pattern_type": "PREFIXED"}
    ask(gateway.http, "POST", "/v1/acls", {"acls": [{"principal": principal, "operation": "READ", **resource}]})
    epochs = ("state", "member_count", "group_epoch", "assignment_epoch")
    shown: dict[tuple[str, ...], tuple[str, Callable[[Json], list[list[Any]]], Sequence[int]]] = {
        ("topics", "list"): ("/v1/topics", listed("topics", "name", "partitions", "topic_id"), ()),
        ("topics", "describe", name): (f"/v1/topics/{name}", of_topic, (4,)),
        ("groups", "list"): ("/v1/share-groups", listed("groups", "group_id"), ()),
        ("groups", "list", "--state"): ("/v1/share-groups", listed("groups", "group_id", "state"), (2,)),
        ("groups", "describe", name, "--offsets"): (f"{group}/offsets", of_offsets, (0,)),
        ("groups", "describe", name): (
            group,
            lambda answer: [[name, answer["state"], *(answer["work"][each] for each in WORK)]],
            (2, 4),
        ),
        ("groups", "describe", name, "--members"): (group, of_members, ()),
        ("groups", "describe", name, "--state", "--verbose"): (group, single("group_id", *epochs), ()),
        ("groups", "config", name): (f"{group}/config", lambda answer: [*map(list, answer.items())], ()),
        ("groups", "config", name, "--service"): (
            f"{group}/config/service",
            lambda answer: [*map(list, answer["service"].items())],
            (),
        ),
        ("dead-letters", "list", name): (
            f"{group}/dead-letters",
            listed("dead_letters", "topic", "partition", "offset", "state", "delivery_count", "key", "reason"),
            (4,),
        ),
        ("keys", "list", "--principal", principal): (
            f"/v1/keys?principal={principal}",
            listed("keys", "key_id", "principal", "description"),
            (2, 3, 4, 5),
        ),
    }
    for command, (path, expected, without) in shown.items():
        answer, table, line, lines = {}, b"", b"", []
        while without_ages(answer) != without_ages(answer := good(gateway.http.get(path))):  # counts come late
            table = run(*command).stdout
            (line,) = run(*command, "--json").stdout.splitlines()
            lines = run(*command, "--jsonl").stdout.splitlines()
        answer.pop("next_page_token", None)
        assert without_ages(json.loads(line)) == without_ages(answer), command
        parts = [part for part in answer.values() if isinstance(part, list)]
        entries = [entry for part in parts for entry in part] if LISTS.intersection(command) else [answer]
        assert without_ages([json.loads(each) for each in lines]) == without_ages(entries), command
        cells = [["-" if cell in (None, "") else str(cell) for cell in row] for row in expected(answer)]
        assert cells, command
        found = rows_of(table, *without)
        assert [row for row in cells if row not in found] == [], command
    rights = good(gateway.http.get(f"/v1/acls?principal={principal}"))
    assert json.loads(run("acls", "list", "--principal", principal, "--json").stdout) == rights
    assert run("acls", "list", "--principal", principal).stdout.decode().splitlines() == [
        f"Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name={name}, patternType=PREFIXED)`:",
        f"\t(principal={principal}, host=*, operation=READ, permissionType=ALLOW)",
    ]
    letters = good(gateway.http.get(f"{group}/dead-letters?topic={name}&partition=0&offset=4&records=true"))
    for options in ((), ("--json",), ("--jsonl",)):
        shown_letter = run("dead-letters", "show", name, name, "4", *options).stdout
        assert json.loads(shown_letter) == letters["dead_letters"][0], options
    tested = [*shown, ("dead-letters", "show"), ("acls", "list"), *(tuple(row[0].split()) for row in ROWS)]
    missing = {command for command in commands(main) if command[-1] in SHOWS} - {
        each[: len(command)] for each in tested for command in commands(main)
    }
    assert not missing
    described = run("groups", "describe", name, f"{name}-other", "--members", "--json").stdout.splitlines()
    assert [json.loads(line)["group_id"] for line in described] == [name, f"{name}-other"]


def test_a_redrive_says_how_many_letters_it_sent(run: Run, gateway: Gateway, name: str) -> None:
    world(gateway, name)
    before = sum(gateway.log_ends(name))
    matched = good(gateway.http.post(f"/v1/share-groups/{name}/dead-letters/redrive", json={"dry_run": True}))[
        "matched"
    ]
    assert json.loads(run("groups", "redrive", name, "--dry-run", "--json").stdout) == {"matched": matched}
    done = json.loads(run("groups", "redrive", name, "--json").stdout)
    assert (done["redriven"], matched) == (2, 2)
    assert sum(gateway.log_ends(name)) == before + 2
    assert f"0 dead letters of {name} are redriven" in run("groups", "redrive", name).stderr.decode()


def test_consume_prints_the_records_as_the_api_answers_them(run: Run, gateway: Gateway, name: str) -> None:
    world(gateway, name)
    printed = {}
    for line in run("consume", name, "-g", f"{name}-reader", "--json", *SOON).stdout.splitlines():
        record = json.loads(line)
        assert (record.pop("topic"), record.pop("delivery_count"), record.pop("attempt")) == (name, 1, 1)
        printed[record.pop("partition"), record["offset"]] = record
    assert printed == {
        (partition, record["offset"]): {"headers": {}, **record}
        for partition in (0, 1)
        for record in gateway.read(name, partition=partition)["records"]
    }


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

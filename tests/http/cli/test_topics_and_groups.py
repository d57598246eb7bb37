"""`sharequeue topics` and `sharequeue groups`, and what all commands have in common."""

import json
import socket

import httpx
import pytest

from sharequeue.stack import Stack
from tests.http.calls import wait_until
from tests.http.cli.conftest import REFUSED, UNREACHABLE, WRONG_USAGE, Run, ask, fill


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """Nothing here stops any of it."""
    return shared_stack


def test_a_topic_from_its_making_to_its_end(run: Run, client: httpx.Client, name: str) -> None:
    done = run("topics", "create", name, "--partitions", "2", "--config", "retention.ms=1000000")
    assert done.stdout.startswith(f"made {name}: 2 partitions, id ".encode())
    assert b"TOPIC_ALREADY_EXISTS" in run("topics", "create", name, code=REFUSED).stderr
    assert b"INVALID_CONFIG" in run("topics", "alter", name, "--config", "no.such=1", code=REFUSED).stderr
    altered = json.loads(
        run(
            "topics",
            "alter",
            name,
            "--partitions",
            "3",
            "--config",
            "max.message.bytes=2000",
            "--reset",
            "retention.ms",
            "--json",
        ).stdout
    )
    assert (altered["partitions"], altered["config"]["max.message.bytes"]) == (3, "2000")
    assert altered["config"].get("retention.ms", "-1") == "-1"
    run("topics", "alter", name, code=WRONG_USAGE)
    assert b"behind 'describe'" in run("topics", "--json", "describe", name, code=WRONG_USAGE).stderr
    values = [{"value": value, "partition": 1} for value in ("a", "b", "c")]
    ask(client, "POST", f"/v1/topics/{name}/records", {"records": values})
    described = run("topics", "describe", name).stdout.decode()
    row = next(line for line in described.splitlines() if line.strip("│ ").startswith("1 "))
    assert [cell.strip() for cell in row.split("│")[1:-1]] == ["1", "0", "3", "3", "3"]
    assert json.loads(run("topics", "describe", name, "--json").stdout)["partitions"][1]["log_end_offset"] == 3
    assert run("topics", "read", name, "--partition", "1", "--max-records", "2").stdout == b"a\nb\n"
    line = json.loads(run("topics", "read", name, "--partition", "1", "--offset", "2", "--json").stdout)
    assert (line["offset"], line["value"], "delivery_count" in line) == (2, "c", False)
    assert b"1" in run("topics", "delete-records", name, "1:2", "--yes").stdout
    assert run("topics", "read", name, "--partition", "1").stdout == b"c\n"
    deleted = json.loads(run("topics", "delete-records", name, "1:end", "--yes", "--json").stdout)
    assert deleted == {"partitions": [{"partition": 1, "log_start_offset": 3}]}
    assert b"OFFSET_OUT_OF_RANGE" in run("topics", "delete-records", name, "1:9", "--yes", code=REFUSED).stderr
    run("topics", "delete-records", name, "1-9", "--yes", code=WRONG_USAGE)
    assert name in run("topics").stdout.decode()
    listed = json.loads(run("topics", "list", "--json").stdout)["topics"]
    assert [topic["partitions"] for topic in listed if topic["name"] == name] == [3]
    assert b"--yes" in run("topics", "delete", name, code=WRONG_USAGE).stderr
    run("topics", "delete", name, "--yes")
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in run("topics", "describe", name, code=REFUSED).stderr


def test_what_a_group_is_doing(run: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, *range(4))
    body = {"topics": [name], "member_id": "worker [7]", "max_records": 3}
    ask(client, "POST", f"/v1/share-groups/{name}/fetch", body)
    (row,) = [line for line in run("groups", "in-flight", name).stdout.decode().splitlines() if "ACQUIRED" in line]
    assert [cell.strip() for cell in row.split("│")[1:8]] == [name, "0", "0", "2", "ACQUIRED", "1", "worker [7]"]
    listed = json.loads(run("groups", "in-flight", name, "--topic", name, "--partition", "0", "--json").stdout)
    assert listed["partitions"][0]["batches"][0]["member_id"] == "worker [7]"
    run("groups", "in-flight", name, "--partition", "0", code=WRONG_USAGE)
    (row,) = [line for line in run("groups", "offsets", name).stdout.decode().splitlines() if name in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [name, "0", "0", "4", "4"]
    assert b"GROUP_ID_NOT_FOUND" in run("groups", "offsets", f"{name}-none", code=REFUSED).stderr


def test_why_dead_letters_are_parked_is_said(run: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, 0)
    ask(client, "POST", "/v1/topics", {"name": f"dlq.{name}"})
    ask(client, "POST", f"/v1/share-groups/{name}/fetch", {"topics": [name], "member_id": "m"})
    reject = {"topic": name, "partition": 0, "first_offset": 0, "last_offset": 0, "type": "reject"}
    ask(client, "POST", f"/v1/share-groups/{name}/acknowledge", {"member_id": "m", "acknowledgements": [reject]})
    said = f"{name}-0: dead letters parked: 1, the last because topic 'dlq.{name}' takes no dead letters"
    wait_until(lambda: said in run("groups", "in-flight", name).stderr.decode())


def test_the_settings_of_a_group(run: Run, name: str) -> None:
    setting = "share.record.lock.duration.ms"
    changed = json.loads(run("groups", "config", name, "--set", f"{setting}=60000", "--json").stdout)
    assert changed[setting] == "60000"
    row = next(line for line in run("groups", "config", name).stdout.decode().splitlines() if setting in line)
    assert "60000" in row
    assert json.loads(run("groups", "config", name, "--reset", setting, "--json").stdout)[setting] == "30000"
    assert b"INVALID_CONFIG" in run("groups", "config", name, "--set", f"{setting}=soon", code=REFUSED).stderr
    run("groups", "config", name, "--set", setting, code=WRONG_USAGE)


def test_a_service_that_is_not_there(run: Run, name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for command in (
            ("produce", name, __file__),
            ("consume", name, "-g", name),
            ("topics",),
            ("groups", "offsets", name),
        ):
            done = run(*command, "--url", url, code=UNREACHABLE)
            assert f"cannot reach {url}".encode() in done.stderr
            assert b"`sharequeue up` runs a stack, --url names another" in done.stderr
            assert done.stdout == b""


def test_what_is_not_a_url_is_said(run: Run) -> None:
    assert b"http://host:port" in run("topics", "--url", "gateway:8080", code=WRONG_USAGE).stderr


def test_usage_is_explained(run: Run) -> None:
    assert b"No such command" in run("produc", code=WRONG_USAGE).stderr
    for command in (("produce",), ("consume",), ("topics", "create"), ("groups", "config")):
        assert b"SHAREQUEUE_URL" in run(*command, "--help").stdout

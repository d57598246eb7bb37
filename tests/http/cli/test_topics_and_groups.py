"""`sharequeue topics` and `sharequeue groups`, and what all commands have in common."""

import json
import socket

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.http.cli.conftest import (
    DEADLINE_S,
    REFUSED,
    UNREACHABLE,
    WRONG_USAGE,
    Popen,
    Run,
    ask,
    available,
    fill,
)


@pytest.fixture(scope="module")
def stack(shared_stack: Stack) -> Stack:
    """The shared stack: no test here stops a service."""
    return shared_stack


def test_a_topic_is_created_changed_and_deleted(run: Run, client: httpx.Client, name: str) -> None:
    done = run("topics", "create", name, "--partitions", "2", "--config", "retention.ms=1000000")
    assert done.stdout.startswith(f"made {name}: 2 partitions, id ".encode())
    assert b"TOPIC_ALREADY_EXISTS" in run("topics", "create", name, code=REFUSED).stderr
    assert b"INVALID_CONFIG" in run("topics", "alter", name, "--config", "no.such=1", code=REFUSED).stderr
    changes = ("--partitions", "3", "--config", "max.message.bytes=2000", "--reset", "retention.ms")
    altered = json.loads(run("topics", "alter", name, *changes, "--json").stdout)
    assert (altered["partitions"], altered["config"]["max.message.bytes"]) == (3, "2000")
    assert altered["config"].get("retention.ms", "-1") == "-1"
    altered = json.loads(run("topics", "alter", name, "--set", "max.message.bytes=3000", "--json").stdout)
    assert altered["config"]["max.message.bytes"] == "3000", "the option of `groups config`"
    run("topics", "alter", name, code=WRONG_USAGE)
    values = [{"value": value, "partition": 1} for value in ("a", "b", "c")]
    ask(client, "POST", f"/v1/topics/{name}/records", {"records": values})
    described = run("topics", "describe", name).stdout.decode()
    assert ["1", "0", "3", "3", "3"] in [line.split() for line in described.splitlines()]
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
    assert name in run("topics", "list").stdout.decode()
    listed = json.loads(run("topics", "list", "--json").stdout)["topics"]
    assert [topic["partitions"] for topic in listed if topic["name"] == name] == [3]
    assert b"--yes" in run("topics", "delete", name, code=WRONG_USAGE).stderr
    assert json.loads(run("topics", "alter", name, "--set", "retention.ms=5000", "--json").stdout)["config"]
    assert json.loads(run("topics", "delete", name, "--yes", "--json").stdout) == {"deleted": [name]}
    for command in (("describe", name), ("delete", name, "--yes"), ("read", name)):
        said = run("topics", *command, code=REFUSED).stderr.decode()
        assert said.startswith(f"sharequeue: UNKNOWN_TOPIC_OR_PARTITION: there is no topic '{name}' (request ")


def test_following_ends_with_the_topic(start: Popen, client: httpx.Client, name: str) -> None:
    fill(client, name, "old")
    process = start("topics", "read", name, "-f")
    assert process.stdout is not None
    assert process.stdout.readline() == b"old\n"
    assert client.delete(f"/v1/topics/{name}").status_code == 204
    fill(client, name, "new", "new")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (REFUSED, b"")
    assert b"another one has its name" in err or b"there is no topic" in err


def test_group_settings_are_shown_and_changed(run: Run, name: str) -> None:
    setting = "share.record.lock.duration.ms"
    changed = json.loads(run("groups", "config", name, "--set", f"{setting}=60000", "--json").stdout)
    assert changed[setting] == "60000"
    row = next(line for line in run("groups", "config", name).stdout.decode().splitlines() if setting in line)
    assert "60000" in row
    assert (
        json.loads(run("groups", "config", name, "--config", f"{setting}=50000", "--json").stdout)[setting] == "50000"
    )
    assert json.loads(run("groups", "config", name, "--reset", setting, "--json").stdout)[setting] == "30000"
    assert b"INVALID_CONFIG" in run("groups", "config", name, "--set", f"{setting}=soon", code=REFUSED).stderr
    run("groups", "config", name, "--set", setting, code=WRONG_USAGE)


def test_an_unreachable_service_is_reported(run: Run, name: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for command in (
            ("produce", name, __file__),
            ("consume", name, "-g", name),
            ("topics", "list"),
            ("groups", "describe", name),
        ):
            done = run(*command, "--url", url, code=UNREACHABLE)
            assert f"cannot reach {url}".encode() in done.stderr
            assert b"`sharequeue up` runs a stack, --url names another" in done.stderr
            assert done.stdout == b""
            done = run(*command, "--url", url, "--json", code=UNREACHABLE)
            assert json.loads(done.stderr)["code"] == "UNREACHABLE"
        assert b"cannot reach" in run("healthcheck", url, code=UNREACHABLE).stderr
        assert json.loads(run("healthcheck", url, "--json", code=UNREACHABLE).stderr)["code"] == "UNREACHABLE"


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list", "--json"),
        ("topics", "read", "{}"),
        ("consume", "{}", "-g", "{}"),
        ("produce", "{}", __file__),
    ],
)
def test_a_full_disk_is_one_line(process: Run, client: httpx.Client, name: str, command: tuple[str, ...]) -> None:
    fill(client, name, 1, 2, 3)
    with open("/dev/full", "wb") as full:
        done = process(*(word.format(name) for word in command), stdout=full, code=REFUSED)
    assert done.stderr.count(b"\n") == 1
    assert b"the output cannot be written: No space left on device" in done.stderr
    assert [offset for offset, _ in available(client, name, name)][:3] == [0, 1, 2]


def test_a_health_check_asks_the_gateway_of_the_environment(run: Run, stack: Stack) -> None:
    for arguments in ((), (stack.url,), (f"{stack.url}/readyz",)):
        assert json.loads(run("healthcheck", *arguments).stdout)["status"] == "ready"
    assert b"is not a URL" in run("healthcheck", "not a URL", code=WRONG_USAGE).stderr


def test_errors_are_json_where_json_is_asked_for(run: Run, name: str) -> None:
    problem = json.loads(run("topics", "describe", name, "--json", code=REFUSED).stderr)
    assert (problem["code"], problem["status"]) == ("UNKNOWN_TOPIC_OR_PARTITION", 404)
    assert problem["detail"] == f"there is no topic '{name}'"
    wrong = json.loads(run("topics", "create", "--json", code=WRONG_USAGE).stderr)
    assert wrong == {"code": "WRONG_USAGE", "detail": "Missing argument 'NAME'."}


def test_an_invalid_url_is_reported(run: Run) -> None:
    assert b"http://host:port" in run("topics", "list", "--url", "gateway:8080", code=WRONG_USAGE).stderr


def test_a_wrong_usage_is_explained(run: Run) -> None:
    assert b"No such command 'produc'. Did you mean 'produce'?" in run("produc", code=WRONG_USAGE).stderr
    assert b"Did you mean 'describe'?" in run("groups", "descrbe", code=WRONG_USAGE).stderr
    assert b"Did you mean 'archive'?" in run("pipeline", "archve", code=WRONG_USAGE).stderr
    assert b"--partition" in run("produce", "t", "--partitoin", "1", code=WRONG_USAGE).stderr
    for command in (("produce",), ("consume",), ("topics", "create"), ("groups", "config")):
        assert b"SHAREQUEUE_URL" in run(*command, "--help").stdout


def test_the_usual_words_for_help_and_version_work(run: Run) -> None:
    assert run("help").stdout == run("--help").stdout
    assert run("help", "groups", "config").stdout == run("groups", "config", "--help").stdout
    assert run("-V").stdout == run("--version").stdout


@pytest.mark.parametrize("command", [(), ("topics",), ("groups",), ("pipeline",)], ids=" ".join)
def test_help_cuts_no_sentence(run: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(*command, "--help").stdout.decode()
    assert "..." not in shown.replace("[ARGS]...", "")

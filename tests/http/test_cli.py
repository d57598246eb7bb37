"""The command line as a user runs it: a process, its exit code, what it prints where."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from click.testing import CliRunner

from sharequeue.cli import main
from sharequeue.stack import Stack

SHAREQUEUE = str(Path(sys.executable).with_name("sharequeue"))
REFUSED, WRONG_USAGE, UNREACHABLE = 1, 2, 3
DEADLINE_S = 60
SOON = ("--timeout", "0.3")
"""Long enough without a record for the service to have handed out what there is."""

Run = Callable[..., "Done"]
Popen = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    """A machine under load is no dead Redis: what a killed gateway leaves there must be there."""
    return {"SHAREQUEUE_GATEWAY_REDIS_TIMEOUT_MS": "5000"}


@pytest.fixture
def environment(stack: Stack) -> dict[str, str]:
    return {**os.environ, "SHAREQUEUE_URL": stack.url, "COLUMNS": "200"}


class Done(NamedTuple):
    """What a command that ended left."""

    stdout: bytes
    stderr: bytes


@pytest.fixture
def run(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command in this process; `code` is the exit code it must have."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> Done:
        done = CliRunner(env={"SHAREQUEUE_URL": stack.url}).invoke(main, arguments)
        fault = done.exception if not isinstance(done.exception, SystemExit) else None
        assert (done.exit_code, fault) == (code, None), (arguments, done.stdout, done.stderr)
        return Done(done.stdout_bytes, done.stderr_bytes)

    return run


@pytest.fixture
def process(environment: dict[str, str]) -> Run:
    """Runs one command as a process of its own; `input` is its stdin."""

    def process(*arguments: str, code: int = 0, **options: Any) -> Done:
        options = {"input": b"", "stdout": subprocess.PIPE, **options}
        done = subprocess.run(
            [SHAREQUEUE, *arguments],
            check=False,
            env=environment,
            timeout=DEADLINE_S,
            stderr=subprocess.PIPE,
            **options,
        )
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return Done(done.stdout, done.stderr)

    return process


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Popen]:
    """Starts a command that goes on; it is killed when the test ends."""
    with contextlib.ExitStack() as started:

        def start(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
            options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
            process = subprocess.Popen([SHAREQUEUE, *arguments], env=environment, **options)
            started.enter_context(process)
            started.callback(process.kill)
            late = threading.Timer(DEADLINE_S, process.kill)  # nobody waits for ever for what it prints
            late.start()
            started.callback(late.cancel)
            return process

        yield start


def ask(client: httpx.Client, method: str, path: str, body: Any = None) -> Any:
    answer = client.request(method, path, json=body)
    assert answer.is_success, answer.text
    return answer.json()


def fill(client: httpx.Client, topic: str, *values: Any) -> None:
    ask(client, "POST", f"/v1/topics/{topic}/records", {"records": [{"value": value} for value in values]})


def log(client: httpx.Client, topic: str, partition: int = 0) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = ask(client, "GET", f"/v1/topics/{topic}/partitions/{partition}/records")["records"]
    return records


def available(client: httpx.Client, group: str, topic: str) -> list[tuple[int, int]]:
    """What another member gets now, as (offset, delivery count)."""
    fetched = ask(client, "POST", f"/v1/share-groups/{group}/fetch", {"topics": [topic], "max_wait_ms": 300})
    return [(record["offset"], batch["delivery_count"]) for batch in fetched["batches"] for record in batch["records"]]


# Produce


def test_lines_of_stdin_become_records(process: Run, client: httpx.Client, name: str) -> None:
    done = process("produce", name, input="one\n\nthree ü\r\nlast without an end".encode())
    assert done.stdout == f"4 records to {name} (partition 0: 4, offsets 0 to 3)\n".encode()
    assert [record["value"] for record in log(client, name)] == ["one", "", "three ü", "last without an end"]
    done = process("produce", name, "-", "--json", input=b"\xff\xfe\nfive\n")
    assert json.loads(done.stdout) == {
        "topic": name,
        "record_count": 2,
        "partitions": [{"partition": 0, "record_count": 2, "first_offset": 4, "last_offset": 5}],
    }
    assert log(client, name)[4]["value_base64"] == "//4="


def test_keys_headers_partitions_and_json_lines(run: Run, client: httpx.Client, name: str, tmp_path: Path) -> None:
    ask(client, "POST", "/v1/topics", {"name": name, "partitions": 2})
    file = tmp_path / "records.ndjson"
    file.write_text('a|{"n": 1.10}\n\nb|[2]\n'.replace("\n\n", "\n"))
    options = ("--json-lines", "--key-separator", "|", "--header", "trace=x=y", "--partition", "1")
    assert b"partition 1: 2, offsets 0 to 1" in run("produce", name, str(file), *options).stdout
    first, second = log(client, name, 1)
    assert (first["key"], first["value"], first["headers"]) == ("a", {"n": 1.1}, {"trace": "x=y"})
    assert (second["key"], second["value"]) == ("b", [2])
    file.write_text("three\n")
    run("produce", name, str(file), "--key", "k", "--partition", "1")
    assert log(client, name, 1)[2]["key"] == "k"


def test_what_producing_refuses(run: Run, process: Run, client: httpx.Client, name: str, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_text('{"n":1}\n\n{"n":\n{"n":3}\n')
    done = run("produce", name, str(file), "--json-lines", code=REFUSED)
    assert b"line 3: not JSON" in done.stderr
    assert b"stopped after 1 records" in done.stderr
    assert [record["value"] for record in log(client, name)] == [{"n": 1}]
    done = run("produce", "no such name", str(file), code=REFUSED)
    assert b"INVALID_TOPIC_EXCEPTION" in done.stderr
    assert b"(request " in done.stderr
    assert done.stdout == b""
    assert b"no '|' behind a key" in run("produce", name, str(file), "--key-separator", "|", code=REFUSED).stderr
    run("produce", name, str(tmp_path / "missing"), code=WRONG_USAGE)
    run("produce", name, str(tmp_path), code=REFUSED)
    run("produce", name, "--key", "k", "--key-separator", "|", code=WRONG_USAGE)
    run("produce", name, "--header", "none", code=WRONG_USAGE)
    done = process("produce", name, input=None, preexec_fn=lambda: os.close(0), code=WRONG_USAGE)
    assert b"stdin is closed" in done.stderr


def test_long_input_is_produced_in_order_over_a_crash(
    stack: Stack, start: Popen, client: httpx.Client, name: str
) -> None:
    process = start("produce", name)
    assert process.stdin is not None
    process.stdin.write(b"".join(b"%d\n" % n for n in range(3000)))
    process.stdin.flush()
    gateway = stack.service("gateway")
    while not client.get(f"/v1/topics/{name}/partitions/0/records?max_records=1").json().get("records"):
        assert process.poll() is None
    gateway.kill()
    gateway.start()
    process.stdin.write(b"".join(b"%d\n" % n for n in range(3000, 6000)))
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert f"6000 records to {name} (partition 0: 6000, offsets 0 to 5999)".encode() in out
    values = ask(client, "GET", f"/v1/topics/{name}/partitions/0/records?max_records=10000")["records"]
    assert [record["value"] for record in values] == [str(n) for n in range(6000)]


def test_an_interrupt_says_how_much_was_produced(start: Popen, client: httpx.Client, name: str) -> None:
    process = start("produce", name, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nhalf a li")
    process.stdin.flush()
    while len(client.get(f"/v1/topics/{name}/partitions/0/records").json().get("records", ())) < 2:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == REFUSED
    assert process.stderr is not None
    assert b"interrupted after 2 records" in process.stderr.read()
    assert [record["value"] for record in log(client, name)] == ["one", "two"]


def test_progress_is_shown_on_a_terminal_alone(
    environment: dict[str, str], name: str, tmp_path: Path, process: Run
) -> None:
    file = tmp_path / "long"
    file.write_bytes(b"x" * 99 + b"\n" + (b"y" * 999 + b"\n") * 1200)
    leader, follower = pty.openpty()
    shown = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # the terminal's other end was closed
            while data := os.read(leader, 65536):
                shown.extend(data)

    reading = threading.Thread(target=read)
    reading.start()
    try:
        done = subprocess.run(
            [SHAREQUEUE, "produce", name, str(file)],
            check=False,
            env={**environment, "TERM": "xterm"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=follower,
            timeout=DEADLINE_S,
        )
    finally:
        os.close(follower)
        reading.join(DEADLINE_S)
        os.close(leader)
    assert done.returncode == 0
    assert b"producing" in shown
    assert done.stdout == f"1201 records to {name} (partition 0: 1201, offsets 0 to 1200)\n".encode()
    assert process("produce", name, str(file)).stderr == b""


# Consume


def test_cl_013_what_is_printed_is_accepted(run: Run, process: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, "text", {"n": [1, None]}, 3)
    ask(client, "POST", f"/v1/topics/{name}/records", {"records": [{"value_base64": "AAE="}, {"tombstone": True}]})
    done = process("consume", name, "--group", name, "--max-records", "2")
    assert done.stdout == b'text\n{"n":[1,null]}\n'
    assert done.stderr == b"2 records accepted\n"
    assert run("consume", name, "-g", name, *SOON).stdout == b"3\n\x00\x01\nnull\n"
    assert available(client, name, name) == []
    fill(client, name, "at once")
    assert run("consume", name, "-g", name, "--timeout", "0").stdout == b"at once\n"
    assert run("consume", name, "-g", name, "--timeout", "0").stderr == b"0 records accepted\n"


def test_records_as_json(run: Run, client: httpx.Client, name: str) -> None:
    records = [
        {"key": "k", "value": {"n": 1}, "headers": {"h": "v"}, "timestamp_ms": 5},
        {"key_base64": "/w==", "value_base64": "AAE="},
    ]
    ask(client, "POST", f"/v1/topics/{name}/records", {"records": records})
    lines = run("consume", name, "-g", name, "--json", "--max-records", "2").stdout.splitlines()
    first, second = (json.loads(line) for line in lines)
    place = {"topic": name, "partition": 0, "delivery_count": 1}
    assert first == {**place, **records[0], "offset": 0}
    del second["timestamp_ms"]
    assert second == {**place, **records[1], "offset": 1, "headers": {}}


def test_cl_013_all_are_released_or_rejected_with_a_reason(run: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, *range(3))
    done = run("consume", name, "-g", name, "--release", "--reason", "look", *SOON)
    assert (done.stdout, done.stderr) == (b"0\n1\n2\n", b"3 records released\n")  # each once
    done = run("consume", name, "-g", name, "--reject", "--reason", "bad", "--max-records", "2")
    assert (done.stdout, done.stderr) == (b"0\n1\n", b"2 records rejected\n")
    done = run("consume", f"dlq.{name}", "-g", f"{name}-dlq", "--json", *SOON)
    letters = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(letter["value"], letter["headers"]["__dlq.errors.reason"]) for letter in letters] == [
        (0, "bad"),
        (1, "bad"),
    ]
    assert available(client, name, name) == [(2, 2)]


def test_a_reader_that_leaves_takes_only_what_it_could_read(start: Popen, client: httpx.Client, name: str) -> None:
    fill(client, name, *("x" * 10_000 + str(n) for n in range(100)))  # more than a pipe holds
    process = start("consume", name, "-g", name, "--follow")
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    assert lines[4].endswith(b"x4\n")
    process.stdout.close()
    assert process.wait(DEADLINE_S) == 0
    assert process.stderr is not None
    err = process.stderr.read()
    printed = int(err.split()[0])
    assert err == f"{printed} records accepted\n".encode()
    assert 5 <= printed < 60
    assert available(client, name, name) == [(n, 2) for n in range(printed, 100)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_following_ends_in_order_when_told_to(
    start: Popen, client: httpx.Client, name: str, number: signal.Signals
) -> None:
    process = start("consume", name, "-g", name, "-f", "--member-id", "m-1")  # the topic comes later
    fill(client, name, "first")
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    fill(client, name, "second")
    assert process.stdout.readline() == b"second\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err.splitlines()[-1]) == (0, b"2 records accepted")
    assert available(client, name, name) == []


def test_a_consumer_that_is_killed_gives_back_what_it_had_not_settled(
    run: Run, start: Popen, client: httpx.Client, name: str
) -> None:
    run("groups", "config", name, "--set", "share.record.lock.duration.ms=1000")
    fill(client, name, *range(3))
    process = start("consume", name, "-g", name, "--release", "--follow")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
    process.kill()
    assert run("consume", name, "-g", name, "--max-records", "3", "--timeout", "20").stdout == b"0\n1\n2\n"


def test_each_record_is_asked_about_on_a_terminal(
    environment: dict[str, str], client: httpx.Client, name: str, run: Run
) -> None:
    fill(client, name, *range(5))
    leader, follower = pty.openpty()
    try:
        process = subprocess.Popen(
            [SHAREQUEUE, "consume", name, "-g", name, "--explicit", "--reason", "why"],
            env=environment,
            stdin=follower,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.write(leader, b"a\nwhat\nr\nx\nq\n")
        out, err = process.communicate(timeout=DEADLINE_S)
    finally:
        os.close(follower)
        os.close(leader)
    assert process.returncode == 0, err
    assert out == b"0\n1\n2\n3\n"
    assert err.count(b"offset 1: [a]ccept, [r]elease, [x] reject, [q]uit?") == 2
    assert err.endswith(b"3 records settled\n")
    assert available(client, name, name) == [(1, 2), (3, 2), (4, 2)]
    (letter,) = log(client, f"dlq.{name}")
    assert (letter["value"], letter["headers"]["__dlq.errors.reason"]) == (2, "why")
    assert b"terminal" in run("consume", name, "-g", name, "--explicit", code=WRONG_USAGE).stderr


def test_cl_013_what_consuming_refuses(run: Run, process: Run, name: str) -> None:
    run("consume", name, code=WRONG_USAGE)
    run("consume", name, "-g", name, "--release", "--reject", code=WRONG_USAGE)
    run("consume", name, "-g", name, "--reason", "x", code=WRONG_USAGE)
    run("consume", name, "-g", name, "--max-records", "0", code=WRONG_USAGE)
    done = process("consume", name, "-g", name, stdout=None, preexec_fn=lambda: os.close(1), code=WRONG_USAGE)
    assert b"stdout is closed" in done.stderr
    assert b"INVALID_TOPIC_EXCEPTION" in run("consume", "no such name", "-g", name, code=REFUSED).stderr
    assert b"INVALID_GROUP_ID" in run("consume", name, "-g", "x" * 250, code=REFUSED).stderr


# Topics and groups


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

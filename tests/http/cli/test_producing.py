"""`sharequeue produce`: lines that become records, lines that are refused, and the end of a run."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import wait_until
from tests.http.cli.conftest import (
    DEADLINE_S,
    INTERRUPTED,
    REFUSED,
    WRONG_USAGE,
    Popen,
    Run,
    ask,
    log,
)


def test_lines_of_stdin_become_records(process: Run, client: httpx.Client, name: str) -> None:
    done = process("produce", name, input="one\n\nthree ü\r\nlast without an end".encode())
    assert done.stdout == f"4 records to {name} (partition 0: 4, offsets 0 to 3)\n".encode()
    assert [record["value"] for record in log(client, name)] == ["one", "", "three ü", "last without an end"]
    done = process("produce", name, "-", "--json", input=b"\xff\xfe\nfive\n")
    assert json.loads(done.stdout) == {
        "topic": name,
        "record_count": 2,
        "unknown_lines": [],
        "partitions": [{"partition": 0, "record_count": 2, "first_offset": 4, "last_offset": 5}],
    }
    assert log(client, name)[4]["value_base64"] == "//4="
    process("produce", name, input="\ufefffrom Windows\r\n\ufeffmeant\r\n".encode())
    assert [record["value"] for record in log(client, name)[6:]] == ["from Windows", "\ufeffmeant"]


def test_records_have_keys_headers_partitions_and_json_values(
    run: Run, client: httpx.Client, name: str, tmp_path: Path
) -> None:
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


def test_invalid_produce_input_is_refused(
    run: Run, process: Run, client: httpx.Client, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "records"
    file.write_text('{"n":1}\n\n{"n":\n{"n":3}\n')
    done = run("produce", name, str(file), "--json-lines", code=REFUSED)
    assert b"line 3: not JSON" in done.stderr
    assert b"stopped: 1 record appended, up to line 1" in done.stderr
    assert [record["value"] for record in log(client, name)] == [{"n": 1}]
    done = run("produce", "no such name", str(file), code=REFUSED)
    assert b"INVALID_TOPIC_EXCEPTION" in done.stderr
    assert b"(request " in done.stderr
    assert done.stdout == b""
    assert b"no '|' after a key" in run("produce", name, str(file), "--key-separator", "|", code=REFUSED).stderr
    run("produce", name, str(tmp_path / "missing"), code=WRONG_USAGE)
    assert b"line 1: it has more than 52428800 bytes" in process("produce", name, "/dev/zero", code=REFUSED).stderr
    run("produce", name, str(tmp_path), code=REFUSED)
    run("produce", name, "--key", "k", "--key-separator", "|", code=WRONG_USAGE)
    run("produce", name, "--header", "none", code=WRONG_USAGE)
    done = process("produce", name, input=None, preexec_fn=lambda: os.close(0), code=WRONG_USAGE)
    assert b"stdin is closed" in done.stderr


def test_long_input_is_produced_in_order_through_a_crash(
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


INTERRUPTIBLE: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}


def test_an_interrupt_sends_whole_lines_and_names_the_next_line(start: Popen, client: httpx.Client, name: str) -> None:
    process = start("produce", name, **INTERRUPTIBLE)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nhalf a li")
    process.stdin.flush()
    while len(client.get(f"/v1/topics/{name}/partitions/0/records").json().get("records", ())) < 2:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_S) == INTERRUPTED
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read() == f"2 records to {name} (partition 0: 2, offsets 0 to 1)\n".encode()
    said = b"interrupted: 2 records appended, up to line 2; no later line was sent"
    assert process.stderr.read() == b"sharequeue produce: " + said + b"\n"
    assert [record["value"] for record in log(client, name)] == ["one", "two"]


def unread_requests(url: str) -> bool:
    """Whether a client has sent bytes that the paused server at `url` has not read. Linux only."""
    port = httpx.URL(url).port
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, _, _, queues, *_ = line.split()
        if int(local.rpartition(":")[2], 16) == port and int(queues.rpartition(":")[2], 16):
            return True
    return False


def test_an_interrupt_names_lines_with_an_unknown_outcome(
    stack: Stack, start: Popen, client: httpx.Client, name: str
) -> None:
    ask(client, "POST", "/v1/topics", {"name": name})
    process = start("produce", name, **INTERRUPTIBLE)
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    wait_until(lambda: len(log(client, name)) == 1)
    log(client, name)  # the gateway has sent the answer to the first line before it answers this
    gateway = stack.service("gateway")
    os.kill(gateway.pid, signal.SIGSTOP)
    try:
        process.stdin.write(b"two\nthree\n")
        process.stdin.flush()
        wait_until(lambda: unread_requests(gateway.url))  # so the command line knows the outcome of the first line
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == INTERRUPTED
    finally:
        os.kill(gateway.pid, signal.SIGCONT)
    assert process.stderr is not None
    said = process.stderr.read()
    assert b"interrupted: 1 record appended, up to line 1; unknown for lines 2 to 3; no later line was sent" in said


def test_a_refused_line_is_named_and_nothing_of_its_request_is_appended(
    run: Run, client: httpx.Client, name: str, tmp_path: Path
) -> None:
    """So what is appended ends at one line, and `tail -n +1001` gives what is left."""
    ask(client, "POST", "/v1/topics", {"name": name, "config": {"max.message.bytes": "2000"}})
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}{'x' * (3000 if number in (1010, 1012) else 0)}\n" for number in range(1, 1031)))
    (fault,) = map(json.loads, run("produce", name, str(file), "--json", code=REFUSED).stderr.splitlines())
    assert (fault["code"], fault["last_line"]) == ("MESSAGE_TOO_LARGE", 1000)
    assert fault["stopped"] == "1000 records appended, up to line 1000"
    assert fault["detail"].startswith("line 1010: the record has ")
    done = run("produce", name, str(file), code=REFUSED)
    assert b"sharequeue produce: stopped: 1000 records appended, up to line 1000\n" in done.stderr
    assert b"line 1010: the record has " in done.stderr
    assert client.get(f"/v1/topics/{name}").json()["partitions"][0]["log_end_offset"] == 2000


def test_what_is_appended_ends_at_one_line_with_long_headers_too(
    run: Run, client: httpx.Client, name: str, tmp_path: Path
) -> None:
    ask(client, "POST", "/v1/topics", {"name": name, "config": {"max.message.bytes": "20000"}})
    file = tmp_path / "lines"
    file.write_text("".join(f"{number}{'x' * 20_000 * (number == 1000)}\n" for number in range(1, 1001)))
    done = run("produce", name, str(file), "--json", "--header", f"long={'h' * 9000}", code=REFUSED)
    (fault,) = map(json.loads, done.stderr.splitlines())
    appended = client.get(f"/v1/topics/{name}").json()["partitions"][0]["log_end_offset"]
    assert json.loads(done.stdout)["record_count"] == fault["last_line"] == appended
    assert fault["detail"].startswith("line 1000: ")


def test_what_stops_produce_is_one_line_of_json_where_that_is_asked_for(run: Run, name: str, tmp_path: Path) -> None:
    file = tmp_path / "records"
    file.write_text('{"n":1}\n\n{"n":\n')
    (fault,) = map(
        json.loads, run("produce", name, str(file), "--json-lines", "--json", code=REFUSED).stderr.splitlines()
    )
    assert fault == {
        "code": "FAILED",
        "detail": "line 3: not JSON: Input data was truncated",
        "stopped": "1 record appended, up to line 1",
        "last_line": 1,
    }
    (fault,) = map(json.loads, run("produce", name, f"{file}-2", "--json", code=WRONG_USAGE).stderr.splitlines())
    assert fault == {"code": "WRONG_USAGE", "detail": f"{file}-2: No such file or directory"}


def test_records_are_scheduled_by_a_delay_or_a_time(process: Run, run: Run, client: httpx.Client, name: str) -> None:
    done = process("produce", name, "--json-lines", "--key", "k", "--delay", "7d", input=b'1\n{"n": 2}\n')
    assert done.stdout == f"2 scheduled in {name}\n".encode()
    at = ("--value", "good morning", "--at", "2030-01-01T09:00+01:00", "--json")
    (one,) = json.loads(run("produce", name, *at).stdout)["scheduled"]
    assert one["deliver_at_ms"] == 1_893_484_800_000
    waiting = ask(client, "GET", f"/v1/topics/{name}/scheduled")["scheduled"]
    assert [each.get("key") for each in waiting] == ["k", "k", None]
    assert waiting[-1]["schedule_id"] == one["schedule_id"]
    assert log(client, name) == []
    run("produce", name, "--value", "at once", "--delay", "1s")
    wait_until(lambda: [record["value"] for record in log(client, name)] == ["at once"])
    assert (
        run("produce", name, "--value", "now").stdout
        == f"1 record to {name} (partition 0: 1, offsets 1 to 1)\n".encode()
    )


def test_a_time_that_contradicts_or_is_none_is_refused(run: Run, client: httpx.Client, name: str) -> None:
    for options in (
        ("--delay", "1d", "--at", "2040-01-01"),
        ("--delay", "soon"),
        ("--at", "noon"),
        ("--delay", ""),
        ("--delay", "9999d"),
        ("--at", "1969-01-01"),
        ("file", "--delay", "1d"),
    ):
        assert run("produce", name, "--value", "1", *options, code=WRONG_USAGE).stdout == b"", options
    no_json = ("--value", "{", "--json-lines", "--delay", "1d")
    assert b"line 1" in run("produce", name, *no_json, code=WRONG_USAGE).stderr
    assert client.get(f"/v1/topics/{name}").status_code == 404, "nothing was sent"
    refused = run("produce", name, "--value", "1", "--at", "2999-01-01", "--json", code=REFUSED)
    assert json.loads(refused.stderr)["code"] == "INVALID_REQUEST"

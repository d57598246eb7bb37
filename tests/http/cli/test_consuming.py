"""`sharequeue consume`: printed records are accepted, released or rejected."""

import json
import os
import signal
import subprocess

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until
from tests.http.cli.conftest import (
    DEADLINE_S,
    REFUSED,
    SOON,
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


def test_cl_013_printed_records_are_accepted(run: Run, process: Run, client: httpx.Client, name: str) -> None:
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


def test_cl_013_all_are_released_or_rejected_with_a_reason(run: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, *range(3))
    done = run("consume", name, "-g", name, "--release", "--reason", "look", *SOON)
    assert (done.stdout, done.stderr) == (b"0\n1\n2\n", b"3 records released\n")  # each once
    done = run("consume", name, "-g", name, "--reject", "--reason", "bad", "--max-records", "2")
    assert (done.stdout, done.stderr) == (b"0\n1\n", b"2 records rejected\n")
    Gateway(client).letters(f"dlq.{name}", 2)
    done = run("consume", f"dlq.{name}", "-g", f"{name}-dlq", "--json", *SOON)
    letters = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(letter["value"], letter["headers"]["__dlq.errors.reason"]) for letter in letters] == [
        (0, "bad"),
        (1, "bad"),
    ]
    assert available(client, name, name) == [(2, 2)]


def test_a_closed_pipe_accepts_only_records_that_were_read(start: Popen, client: httpx.Client, name: str) -> None:
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
def test_an_interrupt_ends_following_in_order(
    start: Popen, client: httpx.Client, name: str, number: signal.Signals
) -> None:
    fill(client, name, "first")
    process = start("consume", name, "-g", name, "-f", "--member-id", "m-1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    fill(client, name, "second")
    assert process.stdout.readline() == b"second\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err.splitlines()[-1]) == (0, b"2 records accepted")
    assert available(client, name, name) == []


def test_an_interrupted_consumer_holds_no_records_after_its_end(start: Popen, client: httpx.Client, name: str) -> None:
    for _ in range(20):
        fill(client, name, *range(500))
    for number in range(4):
        process = start("consume", name, "-g", f"{name}-{number}", "-f", stdout=subprocess.DEVNULL)
        path = f"/v1/share-groups/{name}-{number}/in-flight"
        wait_until(lambda path=path: client.get(path).json().get("partitions"))
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 0
        (partition,) = ask(client, "GET", path)["partitions"]
        assert {batch["delivery_state"] for batch in partition["batches"]} <= {"AVAILABLE"}


def test_a_topic_that_does_not_exist_is_a_failure(run: Run, client: httpx.Client, name: str) -> None:
    fill(client, name, 1)
    done = run("consume", name, f"{name}-typo", "-g", name, code=REFUSED)
    assert done.stdout == b""
    said = f"sharequeue: UNKNOWN_TOPIC_OR_PARTITION: there is no topic '{name}-typo' (request "
    assert done.stderr.decode().startswith(said)


def test_cl_013_contradictory_consume_options_are_refused(
    run: Run, process: Run, client: httpx.Client, name: str
) -> None:
    run("consume", name, code=WRONG_USAGE)
    run("consume", name, "-g", name, "--release", "--reject", code=WRONG_USAGE)
    run("consume", name, "-g", name, "--reason", "x", code=WRONG_USAGE)
    run("consume", name, "-g", name, "--max-records", "0", code=WRONG_USAGE)
    done = process("consume", name, "-g", name, stdout=None, preexec_fn=lambda: os.close(1), code=WRONG_USAGE)
    assert b"stdout is closed" in done.stderr
    assert b"INVALID_TOPIC_EXCEPTION" in run("consume", "no such name", "-g", name, code=REFUSED).stderr
    fill(client, name, 1)
    assert b"INVALID_GROUP_ID" in run("consume", name, "-g", "x" * 250, code=REFUSED).stderr


def test_topics_come_in_the_order_of_priority(run: Run, client: httpx.Client, name: str) -> None:
    for topic in ("a", "z"):
        fill(client, f"{name}.{topic}", topic, topic)
    command = ("consume", f"{name}.z", f"{name}.a", "-g", name, "--max-records", "4")
    assert run(*command, "--priority").stdout == b"z\nz\na\na\n"

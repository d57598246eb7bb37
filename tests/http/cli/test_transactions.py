"""`sharequeue transactions`: list, describe, and an operator's abort."""

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import wait_until, when_loaded
from tests.http.cli.conftest import DEADLINE_S, INTERRUPTED, REFUSED, Popen, Run, ask


def test_an_operator_finds_and_aborts_a_transaction(run: Run, stack: Stack, name: str) -> None:
    begun = httpx.post(f"{stack.url}/v1/transactions", json={"transactional_id": name}, timeout=60).json()
    transaction, epoch = begun["transaction_id"], str(begun["producer_epoch"])
    httpx.post(
        f"{stack.url}/v1/topics/{name}/records",
        json={"records": [{"value": 1}]},
        headers={"Transaction-Id": transaction},
        timeout=60,
    ).raise_for_status()
    (row,) = [line.split() for line in run("transactions").stdout.decode().splitlines() if name in line]
    assert (row[:3], row[4:]) == ([transaction, name, epoch], ["60.0", "1"])
    listed = json.loads(run("transactions", "list", "--transactional-id", name, "--json").stdout)["transactions"]
    assert [each["transaction_id"] for each in listed] == [transaction]
    assert transaction.encode() not in run("transactions", "list", "--older-than", "3600").stdout
    assert transaction.encode() in run("transactions", "list", "--prefix", name[:-1]).stdout
    assert transaction.encode() not in run("transactions", "list", "--prefix", name + "x").stdout
    described = run("transactions", "describe", transaction).stdout.decode().splitlines()
    assert described[1].split()[:5] == [transaction, name, epoch, "open", "-"]
    assert described[-1].split() == [name, "0", "0"]
    levels = {f"{name}-{level}": {"share.isolation.level": f"read_{level}"} for level in ("committed", "uncommitted")}
    for group, config in levels.items():
        httpx.patch(
            f"{stack.url}/v1/share-groups/{group}/config", json={"config": config}, timeout=60
        ).raise_for_status()
        when_loaded(
            lambda group=group: httpx.post(
                f"{stack.url}/v1/share-groups/{group}/fetch", json={"topics": [name], "max_wait_ms": 0}, timeout=60
            )
        ).raise_for_status()
    described = run("transactions", "describe", transaction).stdout.decode().splitlines()
    assert described[-2].split() == ["blocked-group", "topic", "partition"]
    assert described[-1].split() == [f"{name}-committed", name, "0"]
    assert b"aborted" in run("transactions", "abort", transaction).stderr
    assert json.loads(run("transactions", "abort", transaction, "--json").stdout)["reason"] == "administrator"
    assert b"administrator" in run("transactions", "describe", transaction).stdout
    assert transaction.encode() not in run("transactions", "list").stdout
    ended = run("transactions", "list", "--state", "aborted", "--prefix", name).stdout.decode().splitlines()
    assert ended[1].split()[:5] == [transaction, name, epoch, "aborted", "administrator"]
    for state, found in (("aborted", [transaction]), ("committed", [])):
        answer = json.loads(run("transactions", "list", "--state", state, "--transactional-id", name, "--json").stdout)
        assert [each["transaction_id"] for each in answer.get("ended", [])] == found
    assert b"--limit" not in run("transactions", "list", "--state", "aborted", "--limit", "1", "--prefix", name).stderr


def test_an_unknown_transaction_is_refused(run: Run) -> None:
    unknown = str(uuid.uuid4())
    for command in ("describe", "abort"):
        assert json.loads(run("transactions", command, unknown, "--json", code=REFUSED).stderr)["kafka_code"] == 105


def test_lines_are_produced_in_one_transaction_or_not_at_all(run: Run, stack: Stack, name: str, tmp_path: Path) -> None:
    def committed() -> list[object]:
        records = httpx.get(
            f"{stack.url}/v1/topics/{name}/partitions/0/records",
            params={"offset": 0, "isolation_level": "read_committed"},
            timeout=60,
        ).json()["records"]
        return [record["value"] for record in records]

    lines = tmp_path / "lines"
    lines.write_text("1\n2\n")
    assert b"2 records" in run("produce", name, str(lines), "--json-lines", "--transaction").stdout
    assert committed() == [1, 2]
    lines.write_text("3\n{\n")
    refused = run("produce", name, str(lines), "--json-lines", "--transaction", code=REFUSED)
    assert (refused.stdout, b"the transaction was not committed" in refused.stderr) == (b"", True)
    lines.write_text("4\n")
    late = run("produce", name, str(lines), "--transaction", "--transaction-timeout", "100000", code=REFUSED)
    assert b"timeout_ms must be from 1" in late.stderr
    assert committed() == [1, 2]
    (partition,) = httpx.get(f"{stack.url}/v1/topics/{name}", timeout=60).json()["partitions"]
    assert partition["last_stable_offset"] == partition["log_end_offset"], "nothing stays open"


INTERRUPTIBLE: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}


def stable(client: httpx.Client, name: str) -> bool:
    (partition,) = ask(client, "GET", f"/v1/topics/{name}")["partitions"]
    return bool(partition["last_stable_offset"] == partition["log_end_offset"])


def test_an_interrupt_aborts_the_transaction(start: Popen, client: httpx.Client, name: str) -> None:
    process = start("produce", name, "--transaction", **INTERRUPTIBLE)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nhalf a li")
    process.stdin.flush()
    wait_until(lambda: len(client.get(f"/v1/topics/{name}/partitions/0/records").json().get("records", ())) == 2)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (INTERRUPTED, b"")
    assert b"interrupted: the transaction was not committed" in stderr
    assert stable(client, name), "it is aborted: nobody waits for its time-out"


@contextlib.contextmanager
def held(database: str) -> Iterator[Callable[[int], None]]:
    """Hold the rows of all transactions, so that their ends wait. Yields: waits until so many do."""
    with asyncio.Runner() as runner:
        admin = runner.run(asyncpg.connect(database))
        watcher = runner.run(asyncpg.connect(database))
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        runner.run(admin.execute("BEGIN; SELECT FROM log.transactions FOR UPDATE"))
        try:
            yield lambda count: wait_until(lambda: runner.run(watcher.fetchval(waiting)) >= count)
        finally:
            runner.run(admin.execute("ROLLBACK"))
            runner.run(admin.close())
            runner.run(watcher.close())


def begin_to_commit(start: Popen, client: httpx.Client, name: str) -> "subprocess.Popen[bytes]":
    """Produce two lines; the command waits for more of its input."""
    process = start("produce", name, "--transaction", **INTERRUPTIBLE)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\n")
    process.stdin.flush()
    wait_until(lambda: len(client.get(f"/v1/topics/{name}/partitions/0/records").json().get("records", ())) == 2)
    return process


def test_an_interrupted_commit_that_happened_is_told(
    start: Popen, client: httpx.Client, name: str, database: str
) -> None:
    process = begin_to_commit(start, client, name)
    assert process.stdin is not None
    with held(database) as until_waiting:
        process.stdin.close()
        until_waiting(1)
        process.send_signal(signal.SIGINT)
        until_waiting(2)  # the abort waits behind the commit
    assert process.wait(DEADLINE_S) == 0, "all of it was done"
    assert process.stdout is not None
    assert process.stdout.read() == f"2 records to {name} (partition 0: 2, offsets 0 to 1)\n".encode()
    assert stable(client, name)


def test_an_interrupted_commit_whose_outcome_is_not_known_is_named(
    start: Popen, client: httpx.Client, name: str, database: str
) -> None:
    process = begin_to_commit(start, client, name)
    assert process.stdin is not None
    with held(database) as until_waiting:
        process.stdin.close()
        until_waiting(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == INTERRUPTED
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read() == b""
    found = re.search(rb"it is not known what became of transaction ([0-9a-f-]{36});", process.stderr.read())
    assert found is not None
    path = f"/v1/transactions/{found[1].decode()}"
    wait_until(lambda: ask(client, "GET", path)["state"] == "committed")

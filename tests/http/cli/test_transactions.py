"""`sharequeue transactions`: list, describe, and an operator's abort."""

import json
import uuid
from pathlib import Path

import httpx

from sharequeue.stack.stack import Stack
from tests.http.cli.conftest import REFUSED, Run


def test_an_operator_finds_and_aborts_a_transaction(run: Run, stack: Stack, name: str) -> None:
    begun = httpx.post(f"{stack.url}/v1/transactions", json={"transactional_id": name}).json()
    transaction, epoch = begun["transaction_id"], str(begun["producer_epoch"])
    httpx.post(
        f"{stack.url}/v1/topics/{name}/records",
        json={"records": [{"value": 1}]},
        headers={"Transaction-Id": transaction},
    ).raise_for_status()
    (row,) = [line.split() for line in run("transactions").stdout.decode().splitlines() if name in line]
    assert (row[:3], row[4:]) == ([transaction, name, epoch], ["60.0", "1"])
    listed = json.loads(run("transactions", "list", "--transactional-id", name, "--json").stdout)["transactions"]
    assert [each["transaction_id"] for each in listed] == [transaction]
    assert transaction.encode() not in run("transactions", "list", "--older-than", "3600").stdout
    described = run("transactions", "describe", transaction).stdout.decode().splitlines()
    assert described[1].split()[:5] == [transaction, name, epoch, "open", "-"]
    assert described[-1].split() == [name, "0", "0"]
    assert b"aborted" in run("transactions", "abort", transaction).stderr
    assert json.loads(run("transactions", "abort", transaction, "--json").stdout)["reason"] == "administrator"
    assert b"administrator" in run("transactions", "describe", transaction).stdout
    assert transaction.encode() not in run("transactions", "list").stdout


def test_an_unknown_transaction_is_refused(run: Run) -> None:
    unknown = str(uuid.uuid4())
    for command in ("describe", "abort"):
        assert json.loads(run("transactions", command, unknown, "--json", code=REFUSED).stderr)["kafka_code"] == 105


def test_lines_are_produced_in_one_transaction_or_not_at_all(run: Run, stack: Stack, name: str, tmp_path: Path) -> None:
    def committed() -> list[object]:
        records = httpx.get(
            f"{stack.url}/v1/topics/{name}/partitions/0/records",
            params={"offset": 0, "isolation_level": "read_committed"},
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
    (partition,) = httpx.get(f"{stack.url}/v1/topics/{name}").json()["partitions"]
    assert partition["last_stable_offset"] == partition["log_end_offset"], "nothing stays open"

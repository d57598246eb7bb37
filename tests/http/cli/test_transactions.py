"""`sharequeue transactions`: list, describe, and an operator's abort."""

import json
import uuid

import httpx

from sharequeue.stack.stack import Stack
from tests.http.calls import when_loaded
from tests.http.cli.conftest import REFUSED, Run


def test_an_operator_finds_and_aborts_a_transaction(run: Run, stack: Stack, name: str) -> None:
    begun = httpx.post(f"{stack.url}/v1/transactions", json={"transactional_id": name}, timeout=60).json()
    transaction, epoch = begun["transaction_id"], str(begun["producer_epoch"])
    httpx.post(
        f"{stack.url}/v1/topics/{name}/records",
        json={"records": [{"value": 1}]},
        headers={"Transaction-Id": transaction},
        timeout=60,
    ).raise_for_status()
    (row,) = [line.split() for line in run("transactions", "list").stdout.decode().splitlines() if name in line]
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

"""What docs/kafka.md shows and says: the stack beside a broker, by the command of the page."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.http.calls import wait_until
from tests.kafka_log.brokers import NEWEST, ROOT, Brokers, jars
from tests.system.test_readme import PRINTED_URL, blocks, matches

TOOLS: Final = {
    "kafka-topics.sh": "TopicCommand",
    "kafka-console-producer.sh": "ConsoleProducer",
    "kafka-console-consumer.sh": "consumer.ConsoleConsumer",
}


@pytest.fixture
def gateway(kafka: Brokers, tmp_path: Path) -> Iterator[httpx.Client]:
    (command,) = re.findall(r"^```\n(sharequeue up .*)\n```", (ROOT / "docs/kafka.md").read_text(), re.MULTILINE)
    name, *arguments = command.replace("127.0.0.1:9092", kafka.address).split()
    ports = [part for service in ("gateway", "coordinator", "share-coordinator") for part in (f"--{service}-port", "0")]
    up = subprocess.Popen(
        [Path(sys.executable).parent / name, *arguments, *ports, "--data-dir", tmp_path / "data", "--json"],
        stdout=subprocess.PIPE,
    )
    try:
        assert up.stdout is not None
        with httpx.Client(base_url=json.loads(up.stdout.readline())["gateways"][0], timeout=60) as client:
            yield client
    finally:
        up.send_signal(signal.SIGTERM)
        up.wait(60)


def test_the_tour_prints_what_it_shows(kafka: Brokers, gateway: httpx.Client, tmp_path: Path) -> None:
    """Kafka's own tools write and read, from the jars that the broker is started with."""
    java = f'java -Dorg.slf4j.simpleLogger.defaultLogLevel=error -XX:TieredStopAtLevel=1 -cp "{jars(NEWEST)}/*"'
    for name, tool in TOOLS.items():
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nexec {java} org.apache.kafka.tools.{tool} "$@"\n')
        script.chmod(0o755)
    url = str(gateway.base_url).rstrip("/")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    found = blocks((ROOT / "docs/kafka.md").read_text())
    assert [language for language, _ in found] == ["sh", *["sh", "json"] * 4]
    gateway.delete("/v1/topics/orders")  # of another test on this broker
    wait_until(lambda: gateway.get("/v1/topics/orders").status_code == 404)
    for (language, command), (kind, shown) in pairwise([*found, ("sh", "")]):
        if language == "sh":
            played = command.replace("127.0.0.1:9092", kafka.address).replace(PRINTED_URL, url)
            shell = ["bash", "-ec", played]
            run = subprocess.run(shell, env=environment, check=False, capture_output=True, text=True)
            assert run.returncode == 0, f"{command}\n{run.stderr}"
            assert kind == "sh" or matches(shown, "".join(run.stdout.splitlines())), f"{command}\n{run.stdout}"


def call(gateway: httpx.Client, path: str, body: Any, status: int = 200, **headers: str) -> Any:
    response = gateway.post(path, json=body, headers=headers)
    assert response.status_code == status, response.text
    return response.json()


def fetch(gateway: httpx.Client, group: str) -> list[Any]:
    body = {"topics": ["page"], "member_id": "m", "max_wait_ms": 10_000}
    batches = call(gateway, f"/v1/share-groups/{group}/fetch", body)["batches"]
    return [record["value"] for batch in batches for record in batch["records"]]


def test_a_dead_letter_is_sent_back_for_every_group(gateway: httpx.Client) -> None:
    assert gateway.get("/v1").json() == {
        "record_log": "kafka",
        "capabilities": ["dead_letters", "idempotency_keys"],
    }
    wait_until(lambda: gateway.get("/readyz").json()["dependencies"]["kafka"] == "ok")
    call(gateway, "/v1/topics", {"name": "page", "partitions": 1}, 201)
    call(gateway, "/v1/topics/page/scheduled", {"records": [{"value": 1, "delay_ms": 1}]}, 501)
    once = [
        call(gateway, "/v1/topics/page/records", {"records": [{"value": "once"}]}, **{"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert once[0] == once[1]
    assert fetch(gateway, "g") == ["once"]
    reject = {"topic": "page", "partition": 0, "first_offset": 0, "last_offset": 0, "type": "reject", "reason": "bad"}
    call(gateway, "/v1/share-groups/g/acknowledge", {"member_id": "m", "acknowledgements": [reject]})
    letters = wait_until(lambda: gateway.get("/v1/share-groups/g/dead-letters").json()["dead_letters"])
    assert [(letter["offset"], letter["reason"]) for letter in letters] == [(0, "bad")]
    refused = call(gateway, "/v1/share-groups/g/dead-letters/redrive", {}, 501)
    assert refused["capability"] == "redrive_to_group"
    assert call(gateway, "/v1/share-groups/g/dead-letters/redrive", {"to": "source"})["matched"] == 1
    assert fetch(gateway, "g") == ["once"]
    assert gateway.get("/v1/share-groups/g/dead-letters").json()["dead_letters"] == []

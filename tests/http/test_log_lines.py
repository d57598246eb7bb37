"""The lines that a gateway logs about work that goes wrong: enough to see it, and few."""

import json
from pathlib import Path
from typing import Any

import pytest

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until

pytestmark = pytest.mark.both_forms


@pytest.fixture
def log_file(shared_stack: Stack) -> Path:
    return shared_stack.service("gateway").log_file


def lines(log_file: Path, message: str, **named: str) -> list[dict[str, Any]]:
    found = [line for line in map(json.loads, log_file.read_text().splitlines()) if line["message"] == message]
    return [line for line in found if named.items() <= line.items()]


def test_dead_letters_have_a_line_with_group_topic_cause_and_reason(
    gateway: Gateway, log_file: Path, name: str
) -> None:
    gateway.produce(name, *range(30))
    gateway.acquire(name, name)
    for offset in range(30):
        gateway.settle(name, name, offset, offset, "reject", reason="no such account")
    (line,) = wait_until(lambda: lines(log_file, "dead letters written", group_id=name))
    assert line["count"] >= 1
    assert (line["topic"], line["cause"], line["reason"]) == (name, "rejected", "no such account")
    wait_until(lambda: gateway.window(name, name) == (30, []))
    assert len(lines(log_file, "dead letters written", group_id=name)) == 1, "the others are counted for a minute"


def test_locks_that_end_have_a_line(gateway: Gateway, log_file: Path, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=1000)
    gateway.produce(name, "one")
    gateway.acquire(name, name)
    (line,) = wait_until(lambda: lines(log_file, "locks ended: workers died, or need a longer lock", group_id=name))
    assert (line["count"], line["topic"], line["level"]) == (1, name, "warning")

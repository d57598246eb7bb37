"""The examples run as their users run them, and notice when something is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import httpx

from sharequeue.stack.stack import Stack

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights.py"
ROWS = 3000


def run_flights(stack: Stack, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FLIGHTS), "--url", stack.url, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def table_of(stdout: str) -> dict[str, list[str]]:
    """The numbers of each line of the table, by the line's first word."""
    lines = [line.split() for line in stdout.splitlines()]
    return {words[0]: words[1:] for words in lines if words and words[0] in ("produced", "accepting", "releasing")}


def test_the_flights_example_counts_every_flight(stack: Stack, client: httpx.Client, name: str) -> None:
    done = run_flights(stack, "--rows", str(ROWS), "--topic", name)
    assert done.returncode == 0, done.stderr
    assert "they agree" in done.stdout
    table = table_of(done.stdout)
    assert [line[0] for line in table.values()] == [str(ROWS)] * 3
    assert len({line[1] for line in table.values()}) == 1
    assert re.fullmatch("[0-9a-f]{16}", table["produced"][1])
    assert table["accepting"][2:5] == [str(ROWS), "0", "0"]
    delivered, released, lag = map(int, table["releasing"][2:5])
    assert delivered == ROWS + released
    assert 0.05 * ROWS < released < 0.2 * ROWS
    assert lag == 0
    partitions = client.get(f"/v1/topics/{name}").json()["partitions"]
    assert sum(partition["log_end_offset"] for partition in partitions) == ROWS
    assert sum(partition["log_end_offset"] > 0 for partition in partitions) > 1, "keys spread over partitions"

"""The examples run as their users run them, and notice when something is wrong."""

import importlib.util
import random
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import httpx
import pytest

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


@pytest.fixture(scope="module")
def flights() -> ModuleType:
    spec = importlib.util.spec_from_file_location("flights", FLIGHTS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_a_row_too_many_is_noticed(stack: Stack, client: httpx.Client, name: str) -> None:
    foreign = {"records": [{"value": {"carrier": "XX"}, "key": "XX"}]}
    client.post("/v1/topics", json={"name": name, "partitions": 4}).raise_for_status()
    client.post(f"/v1/topics/{name}/records", json=foreign).raise_for_status()
    done = run_flights(stack, "--rows", "50", "--topic", name)
    assert done.returncode == 1
    assert "they DO NOT agree" in done.stderr
    assert table_of(done.stdout)["accepting"][0] == "51"


def test_an_unreachable_gateway_is_reported() -> None:
    command = [sys.executable, str(FLIGHTS), "--url", "http://127.0.0.1:1", "--rows", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "Connection refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_tally_knows_rows_but_not_their_order(flights: ModuleType, seed: int) -> None:
    rows = [{"carrier": "AA", "flight": number} for number in range(50)]
    tallies = []
    for order in range(3):
        shuffled = rows.copy()
        random.Random(seed + order).shuffle(shuffled)
        tally = flights.Tally()
        for row in shuffled:
            tally.add(row["carrier"], dict(reversed(row.items())) if order else row)
        tallies.append(tally)
    assert all(tally.agrees_with(tallies[0]) for tally in tallies)
    for changed in ({"carrier": "AA", "flight": 50}, {"carrier": "AA", "flight": "0"}, {"carrier": "AA"}):
        other = flights.Tally()
        for row in [changed, *rows[1:]]:
            other.add(row["carrier"], row)
        assert not other.agrees_with(tallies[0])


def test_the_data_set_is_whole(flights: ModuleType) -> None:
    rows = flights.flights()
    first = next(rows)
    assert (first["carrier"], first["flight"], first["dep_delay"], first["time_hour"]) == (
        "UA",
        1545,
        2,
        "2013-01-01T10:00:00Z",
    )
    assert next(row for row in rows if row["dep_time"] is None)["arr_delay"] is None, "NA is null"
    with flights.open_data() as file:
        assert sum(1 for _ in file) == 1 + flights.ALL_ROWS

"""The job `report`: it counts traffic that a test has made, as JSON, Parquet, Markdown and HTML."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from sharequeue_pipeline.jobs.report_tables import Sums, duration, quantile, tables

from sharequeue.cli import main
from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession, pipeline: Pipeline) -> Run:
    """Runs a job in this process, on the running session. `code`: the expected exit code."""

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["pipeline", *arguments, "--url", pipeline.url])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return invoke


def traffic(gateway: Gateway, topic: str, group: str) -> None:
    """20 records in 2 partitions, half of them ten minutes old: 14 accepted, 2 rejected, 4 released, then accepted."""
    gateway.create_topic(topic, 2)
    gateway.produce(topic, *range(10), partition=0, timestamp_ms=int(time.time() * 1000) - 600_000)
    gateway.produce(topic, *range(10), partition=1)
    for partition in range(2):
        wanted = [{"topic": topic, "partitions": [partition]}]
        assert len(gateway.fetch(group, topic_partitions=wanted)["batches"]) == 1
        assert gateway.settle(group, topic, 0, 6, "accept", partition=partition) == "applied"
        assert gateway.settle(group, topic, 7, 7, "reject", partition=partition) == "applied"
        assert gateway.settle(group, topic, 8, 9, "release", partition=partition) == "applied"
        assert gateway.fetch(group, topic_partitions=wanted)["batches"]
        assert gateway.settle(group, topic, 8, 9, "accept", partition=partition) == "applied"


def test_a_report_has_the_same_counts_in_every_form(
    run: Run, gateway: Gateway, spark: SparkSession, name: str, tmp_path: Path
) -> None:
    traffic(gateway, name, f"{name}|g")
    gateway.produce(f"{name}-quiet", 1)
    report = json.loads(run("report", "--out", str(tmp_path), "--json").stdout)
    (row,) = [row for row in report["By topic and group"] if row["topic"] == name]
    assert row["group"] == f"{name}|g"
    counts = {"produced": 20, "delivered": 24, "accepted": 18, "released": 4, "rejected": 2, "expired": 0}
    assert {column: row[column] for column in counts} == counts
    assert re.fullmatch(r"1[01]\.\d min", row["p99"])
    by_hour = [row for row in report["By hour"] if row["topic"] == name]
    assert {column: sum(row[column] for row in by_hour) for column in counts} == counts
    deliveries = [row for row in report["Deliveries by delivery count"] if row["topic"] == name]
    assert [(row["delivery count"], row["records"]) for row in deliveries] == [(1, 20), (2, 4)]
    (quiet,) = [row for row in report["By topic and group"] if row["topic"] == f"{name}-quiet"]
    assert (quiet["group"], quiet["produced"]) == ("–", 1)
    frame = spark.read.parquet(str(tmp_path / "activity")).where(f"topic = '{name}'")
    assert frame.selectExpr("sum(produced)", "sum(accepted)").first() == (20, 18)
    assert {row.partition for row in frame.select("partition").collect()} == {0, 1}
    markdown = (tmp_path / "report.md").read_text()
    assert f"| {name} | {name}\\|g | 20 | 24 | 18 | 4 | 2 | 0 |" in markdown
    images = re.findall(r"\]\((plots/[\w-]+\.png)\)", markdown)
    assert len(images) >= 3
    assert all((tmp_path / image).read_bytes().startswith(b"\x89PNG") for image in images)
    page = (tmp_path / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(images)
    assert f"<td>{name}|g</td>" in page


def test_a_report_of_one_group_or_of_nothing(run: Run, gateway: Gateway, name: str, tmp_path: Path) -> None:
    traffic(gateway, name, name)
    arguments = ("report", "--out", str(tmp_path), "--json")
    report = json.loads(run(*arguments, "--group", name).stdout)
    assert {row["group"] for row in report["By topic and group"]} == {name}
    past = ("--from", "2020-01-01T00:00", "--to", "2020-01-03T00:00")
    report = json.loads(run(*arguments, *past).stdout)
    assert set(map(len, report.values())) == {0}
    assert "Nothing." in (tmp_path / "report.md").read_text()


def test_faults_are_one_line(run: Run, pipeline: Pipeline, tmp_path: Path) -> None:
    out = ("report", "--out", str(tmp_path))
    assert "must be a time like 2026-11-21T08:00, not 'x'" in run(*out, "--from", "x", code=2).stderr
    assert "--from must be before --to" in run(*out, "--from", "2026-01-02", "--to", "2026-01-01", code=2).stderr
    pipeline.url = "http://127.0.0.1:9"
    refused = run(*out, "--timeout", "1", code=3).stderr
    assert refused.startswith("sharequeue: COORDINATOR_NOT_AVAILABLE: cannot reach http://127.0.0.1:9")
    assert refused.count("\n") == 1


def sums(**given: Any) -> Sums:
    return Sums(*(given.get(field, {}) for field in Sums._fields))


@pytest.mark.parametrize(
    ("buckets", "share", "expected"),
    [
        ({}, 0.5, None),
        ({(10, 20): 4}, 0.5, 15),
        ({(0, 1): 1, (100, 200): 1}, 0.5, 1),
        ({(0, 1): 98, (100, 200): 2}, 0.99, 150),
        ({(100, 200): 1, (0, 10): 1}, 1.0, 200),
    ],
)
def test_quantiles(buckets: dict[tuple[int, int], int], share: float, expected: float | None) -> None:
    found = quantile(buckets, share)
    assert found == (expected if expected is None else pytest.approx(expected))


def test_durations_have_a_unit() -> None:
    assert [duration(ms) for ms in (None, 0.4, 999, 1500, 90_000, 5_400_000, 2e8)] == [
        "–",
        "0 ms",
        "999 ms",
        "1.5 s",
        "1.5 min",
        "1.5 h",
        "2.3 d",
    ]


def test_a_topic_without_groups_and_a_group_without_records_have_rows() -> None:
    first, *_ = tables(sums(produced={"a": 3}, counts={("b", "g"): {"accepted": 2}}))
    assert [tuple(row[:3]) for row in first.rows] == [("a", "–", 3), ("b", "g", 0)]

"""The job `report`: it counts traffic that a test has made, as JSON, Parquet, Markdown and HTML."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from sharequeue_pipeline.jobs.reporting.figures import HOUR_MS, GroupFigures, Others, Report, TopicFigures
from sharequeue_pipeline.jobs.reporting.page import page
from sharequeue_pipeline.jobs.reporting.reading import LAG_SCHEMA, Scope, figures

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


def traffic(gateway: Gateway, topic: str, group: str, reason: str = "no stock for {}") -> None:
    """20 records in 2 partitions, half of them ten minutes old: 14 accepted, 2 rejected, 4 released, then accepted."""
    gateway.create_topic(topic, 2)
    gateway.produce(topic, *range(10), partition=0, timestamp_ms=int(time.time() * 1000) - 600_000)
    gateway.produce(topic, *range(10), partition=1, key="<k>")
    for partition in range(2):
        wanted = [{"topic": topic, "partitions": [partition]}]
        assert len(gateway.fetch(group, topic_partitions=wanted)["batches"]) == 1
        assert gateway.settle(group, topic, 0, 6, "accept", partition=partition) == "applied"
        why = {"reason": reason.format(17 + partition)}
        assert gateway.settle(group, topic, 7, 7, "reject", partition=partition, **why) == "applied"
        assert gateway.settle(group, topic, 8, 9, "release", partition=partition) == "applied"
        assert gateway.fetch(group, topic_partitions=wanted)["batches"]
        assert gateway.settle(group, topic, 8, 9, "accept", partition=partition) == "applied"


def read(run: Run, *arguments: str) -> Report:
    """The report as `--json` prints it: nothing but what `Report` says, and nothing missing."""
    printed = run("report", "--json", *arguments).stdout
    report = msgspec.json.decode(printed, type=Report)
    assert msgspec.to_builtins(report, str_keys=True) == json.loads(printed)
    return report


def of(report: Report, topic: str) -> TopicFigures:
    (found,) = [entry for entry in report.topics if entry.topic == topic]
    return found


def test_a_report_has_the_same_counts_in_every_form(
    run: Run, gateway: Gateway, spark: SparkSession, name: str, tmp_path: Path
) -> None:
    group = f"{name}|<g>"
    traffic(gateway, name, group, "<script>{}</script>")
    gateway.produce(f"{name}-quiet", 1)
    gateway.produce(name, "waits", partition=1)
    report = read(run, "--out", str(tmp_path), "--top", "500")
    topic = of(report, name)
    assert topic.produced == 21
    (figures,) = topic.groups
    counts = {"delivered": 24, "accepted": 18, "released": 4, "rejected": 2, "expired": 0}
    assert figures.group == group
    assert {column: getattr(figures, column) for column in counts} == counts
    assert (figures.deliveries, figures.dead_letters) == ({1: 20, 2: 4}, {"rejected": 2})
    assert figures.lag is not None
    assert (figures.lag.records, figures.lag.unknown_partitions, figures.lag.open_dead_letters) == (1, 0, 2)
    assert figures.time_to_accept is not None
    assert 560_000 < figures.time_to_accept.p99_ms < 760_000
    assert {column: sum(getattr(step, column) for step in figures.steps) for column in counts} == counts
    assert sum(step.dead_letters for step in figures.steps) == 2
    quiet = of(report, f"{name}-quiet")
    assert (quiet.groups, quiet.produced) == ([], 1)
    (reason,) = [entry for entry in report.reasons if entry.topic == name]
    assert (reason.group, reason.cause, reason.reason, reason.records) == (group, "rejected", "<script>#</script>", 2)
    assert {(sample.partition, sample.offset, sample.delivery_count, sample.key, sample.value, sample.reason) for sample in reason.samples} == {
        (0, 7, 1, None, "7", "<script>17</script>"),
        (1, 7, 1, "<k>", "7", "<script>18</script>"),
    }  # fmt: skip
    assert sum(step.produced for step in report.steps) == report.produced >= 22
    assert report.others is None
    frame = spark.read.parquet(str(tmp_path / "activity")).where(f"topic = '{name}'")
    assert frame.selectExpr("sum(produced)", "sum(accepted)").first() == (21, 18)
    assert {row.partition for row in frame.select("partition").collect()} == {0, 1}
    assert msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report) == report
    markdown = (tmp_path / "report.md").read_text()
    shown = re.escape(name.replace("_", "\\_"))
    assert re.search(rf"\| {shown} \| {shown}\\\|&lt;g&gt; \| 21 \| 24 \| 18 \| 4 \| 2 \| 0 \| 2 \| 1 \|", markdown)
    document = (tmp_path / "report.html").read_text()
    assert f"<bdi>{name}|&lt;g&gt;</bdi>" in document
    assert "&lt;script&gt;17&lt;/script&gt;" in document
    assert "<script" not in document


def test_a_report_of_one_group_or_of_nothing(run: Run, gateway: Gateway, name: str, tmp_path: Path) -> None:
    traffic(gateway, name, name)
    gateway.produce(f"{name}-other", 1)
    report = read(run, "--out", str(tmp_path), "--group", name)
    assert [(topic.topic, topic.produced, [group.group for group in topic.groups]) for topic in report.topics] == [
        (name, 20, [name])
    ]
    assert (report.produced, report.group_count, report.only_group) == (20, 1, name)
    past = ("--from", "2020-01-01T00:00", "--to", "2020-01-03T00:00")
    report = read(run, "--out", str(tmp_path), "--topic", f"{name}-other", *past)
    assert (report.topics, report.steps, report.produced) == ([], [], 0)
    assert "Nothing was counted" in (tmp_path / "report.html").read_text()


def test_a_group_that_stopped_before_the_period_is_named_with_its_lag(
    run: Run, gateway: Gateway, name: str, tmp_path: Path
) -> None:
    traffic(gateway, name, name)
    gateway.produce(name, *range(5), partition=0)
    past = ("--from", "2020-01-01T00:00", "--to", "2020-01-03T00:00")
    report = read(run, "--out", str(tmp_path), "--topic", name, *past)
    (group,) = of(report, name).groups
    assert (group.delivered, group.lag and group.lag.records) == (0, 5)
    assert "fetched nothing, and 5 records wait" in (tmp_path / "report.html").read_text()


def test_faults_are_one_line(run: Run, pipeline: Pipeline, tmp_path: Path) -> None:
    out = ("report", "--out", str(tmp_path))
    assert "must be a time like 2026-11-21T08:00, not 'x'" in run(*out, "--from", "x", code=2).stderr
    assert "--from must be before --to" in run(*out, "--from", "2026-01-02", "--to", "2026-01-01", code=2).stderr
    assert "501 is not in the range 1<=x<=500" in run(*out, "--top", "501", code=2).stderr
    pipeline.url = "http://127.0.0.1:9"
    refused = run(*out, "--timeout", "1", code=3).stderr
    assert refused.startswith("sharequeue: COORDINATOR_NOT_AVAILABLE: cannot reach http://127.0.0.1:9")
    assert refused.count("\n") == 1


def test_ten_thousand_topics_are_a_page_of_the_largest(spark: SparkSession) -> None:
    """Topic n has n records, of which its group has accepted all but one; every thousandth has a dead letter."""
    from_ms = 1_795_219_200_000
    topics = spark.range(1, 10_001).selectExpr(
        "id", "format_string('t%05d', id) AS topic", "format_string('id-%05d', id) AS topic_id"
    )
    hour = f"timestamp_millis({from_ms} + (id % 24) * {HOUR_MS}) AS hour"
    place = ("topic", "topic_id", "0 AS partition")
    zeros = [f"0L AS {name}" for name in ("accepted", "released", "rejected", "expired")]
    empty = [f"array() AS {name}" for name in ("deliveries", "times_to_accept", "dead_letters")]
    produced = topics.selectExpr(
        hour, "CAST(NULL AS STRING) AS group_id", *place, "id AS produced", "0L AS delivered", *zeros, *empty
    )
    used = topics.selectExpr(
        *(hour, "'g' AS group_id", *place, "0L AS produced", "id AS delivered", "id - 1 AS accepted", *zeros[1:]),
        "array(named_struct('delivery_count', 1, 'records', id)) AS deliveries",
        "array(named_struct('from_ms', 10L, 'below_ms', 11L, 'records', id)) AS times_to_accept",
        "IF(id % 1000 = 0, array(named_struct('cause', 'rejected', 'records', 1L)), array()) AS dead_letters",
    )
    names = [column.split(" ")[0] for column in LAG_SCHEMA.split(", ")]
    lag = topics.selectExpr("'g'", "topic", "topic_id", "1L", "0L", "0L", "0L").toDF(*names)
    frame = produced.union(used).cache()
    report = figures(
        frame, lag, Scope(from_ms, from_ms + 24 * HOUR_MS, None, None, 10), from_ms
    )  # fmt: skip
    frame.unpersist()
    total = 10_000 * 10_001 // 2
    assert (report.topic_count, report.group_count, report.produced) == (10_000, 10_000, total)
    assert (report.total.delivered, report.total.accepted) == (total, total - 10_000)
    assert (report.total.deliveries, report.total.dead_letters) == ({1: total}, {"rejected": 10})
    assert report.total.lag is not None
    assert report.total.lag.records == 10_000
    named = [topic.topic for topic in report.topics]
    assert named == [f"t{n:05}" for n in range(10_000, 10_000 - len(named), -1)]
    assert sum(len(topic.groups) for topic in report.topics) <= 10
    rest = 10_000 - len(named)
    assert isinstance(report.others, Others)
    assert report.others.topics == rest
    assert report.others.produced == rest * (rest + 1) // 2
    assert report.others.dead_letters + sum(group.dead for _, group in report.pairs) == 10
    assert report.others.lag + sum(group.lag.records for _, group in report.pairs if group.lag) == 10_000
    assert all(isinstance(group, GroupFigures) and group.time_to_accept for _, group in report.pairs)
    assert len(page(report)) < 200_000

"""The job `redrive`: each dead letter once, in bounded calls and at a rate. A dry run only counts."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec import UNSET
from pyspark.sql import SparkSession
from sharequeue_pipeline import PipelineError, dead_letters, read_dead_letters, redrive_dead_letters
from sharequeue_pipeline.dead_letters import Pace, RedriveCounts, redrive

from sharequeue.cli import main
from sharequeue.protocol.messages.groups import RedriveResult
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until

Run = Callable[..., Any]


def invoke(url: str, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["pipeline", "redrive", *arguments, "--url", url])
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture
def run(stack: Stack) -> Run:
    """Runs the job with `--json`. Returns: its report."""

    def job(*arguments: str) -> Any:
        return json.loads(invoke(stack.url, *arguments, "--json").stdout)

    return job


def die(gateway: Gateway, group: str, topic: str, count: int, reason: str = "") -> None:
    """Append `count` records and reject them all."""
    (first, *_) = gateway.produce(topic, *range(count))
    assert gateway.acquire(group, topic) == [f"{first}-{first + count - 1}×1"]
    fields = {"reason": reason} if reason else {}
    letters = _dead(gateway, group)
    assert gateway.settle(group, topic, first, first + count - 1, "reject", **fields) == "applied"
    wait_until(lambda: _dead(gateway, group) >= letters + count)


def _dead(gateway: Gateway, group: str) -> int:
    response = gateway.http.get(f"/v1/topics/dlq.{group}")
    return sum(p["log_end_offset"] for p in response.json()["partitions"]) if response.status_code == 200 else 0


def test_many_calls_redrive_each_dead_letter_once(
    run: Run, gateway: Gateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "AT_ONCE", 7)
    gateway.create_topic(name)
    die(gateway, name, name, 30)
    assert run(name, "--max-records", "9") == {"redriven": 9, "skipped": 0}
    assert run(name) == {"redriven": 21, "skipped": 0}
    assert run(name) == {"redriven": 0, "skipped": 0}
    fetched = gateway.fetch(name, name)["batches"]
    values = [record["value"] for batch in fetched for record in batch["records"]]
    assert sorted(values) == list(range(30))
    assert {batch["delivery_count"] for batch in fetched} == {1}


def test_a_dry_run_counts_and_filters_apply(run: Run, gateway: Gateway, name: str, spark: SparkSession) -> None:
    gateway.create_topic(name)
    die(gateway, name, name, 5, "no such customer")
    die(gateway, name, name, 3)
    report = run(name, "--dry-run")
    assert report["matched"] == 8
    (row,) = report["dead_letters"]
    assert (row["topic"], row["cause"], row["records"]) == (name, "Offset rejected by client.", 8)
    (row,) = run(name, "--dry-run", "--message", "customer")["dead_letters"]
    assert row["records"] == 5
    assert run(name, "--dry-run", "--min-delivery-count", "2") == {"matched": 0, "dead_letters": []}
    assert run(name, "--dry-run", "--before", "2020-01-01")["matched"] == 0
    assert gateway.log_ends(name) == [8]
    assert run(name, "--message", "customer", "--to", "source") == {"redriven": 5, "skipped": 0}
    assert gateway.log_ends(name) == [13]
    assert run(name, "--dry-run")["matched"] == 3


def test_a_program_reads_dead_letters_with_their_reasons_and_redrives_some(
    spark: SparkSession, stack: Stack, gateway: Gateway, name: str
) -> None:
    with pytest.raises(PipelineError, match=f"the group '{name}' has no dead letters"):
        read_dead_letters(spark, name, url=stack.url)
    gateway.create_topic(name)
    die(gateway, name, name, 3, "no such customer")
    die(gateway, name, name, 2, "too old")
    rows = read_dead_letters(spark, name, url=stack.url, value_format="string").orderBy("offset").collect()
    shown = [(row.topic, row.partition, row.offset, row.delivery_count, row.reason, row.value) for row in rows]
    assert shown == [
        (name, 0, offset, 1, "no such customer" if offset < 3 else "too old", str(offset % 3)) for offset in range(5)
    ]
    assert {row.cause for row in rows} == {"Offset rejected by client."}
    assert {row.reasons for row in rows} == {None}
    assert [row.dead_letter_offset for row in rows] == list(range(5))
    filters: dict[str, Any] = {"topic": name, "message": "customer", "min_delivery_count": 1}
    assert read_dead_letters(spark, name, url=stack.url, **filters).count() == 3
    long_ago = datetime(2020, 1, 1)
    assert read_dead_letters(spark, name, url=stack.url, before=long_ago).count() == 0
    assert redrive_dead_letters(name, url=stack.url, before=long_ago) == RedriveCounts(0, 0)
    assert redrive_dead_letters(name, url=stack.url, **filters, max_records=2) == RedriveCounts(2, 0)
    assert redrive_dead_letters(name, url=stack.url, **filters, to="source") == RedriveCounts(1, 0)
    assert gateway.log_ends(name)[0] == 5 + 3


def test_a_program_reads_the_reasons_of_earlier_deliveries(
    spark: SparkSession, stack: Stack, gateway: Gateway, name: str
) -> None:
    gateway.create_topic(name)
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 0, "release", reason="busy", delay_ms=0) == "applied"
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 0, "reject", reason="closed") == "applied"
    wait_until(lambda: _dead(gateway, name) == 1)
    (row,) = read_dead_letters(spark, name, url=stack.url).collect()
    assert [reason.reason for reason in row.reasons] == ["busy", "closed"]
    assert abs(row.reasons[0].at - datetime.now()) < timedelta(hours=1)
    assert row.reasons[0].at <= row.reasons[1].at <= row.timestamp


def test_skipped_dead_letters_do_not_stop_the_others(
    run: Run, gateway: Gateway, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first calls find only dead letters that are skipped."""
    monkeypatch.setattr(dead_letters, "AT_ONCE", 2)
    gateway.configure(name, errors_deadletterqueue_copy_record_enable=False)
    gateway.create_topic(name)
    die(gateway, name, name, 5)
    gateway.delete_records(name, 5)
    die(gateway, name, name, 4)
    assert run(name) == {"redriven": 4, "skipped": 5}


def test_faults_are_one_line(stack: Stack, name: str) -> None:
    line = invoke(stack.url, name, "--topic", f"{name}-no", code=1).stderr
    assert "UNKNOWN_TOPIC_OR_PARTITION" in line
    assert line.count("\n") == 1
    assert "0 dead letters" in invoke(stack.url, name).stderr
    away = CliRunner().invoke(main, ["pipeline", "redrive", name, "--url", "http://127.0.0.1:9", "--timeout", "1"])
    assert away.exit_code == 3
    assert away.stderr.count("\n") == 1


def test_the_rate_is_kept() -> None:
    """The clock moves only when the job sleeps."""
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    left = [95]
    asked = []

    def call(most: int, page_token: str | None) -> RedriveResult:
        assert page_token == (str(left[0]) if asked else None)
        asked.append(most)
        taken = min(most, left[0])
        left[0] -= taken
        following = str(left[0]) if left[0] else UNSET
        return RedriveResult(matched=taken, redriven=taken, next_page_token=following)

    *_, done = redrive(call, None, Pace(10, now=lambda: now[0], sleep=sleep))
    assert done == RedriveCounts(95, 0)
    assert max(asked) == 10
    assert now[0] - 100 == pytest.approx(9.0)  # no pause after the last five

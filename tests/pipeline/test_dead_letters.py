"""`read_dead_letters`: the dead letters of a group as rows, with their reasons."""

from datetime import datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from sharequeue_pipeline import PipelineError, read_dead_letters

from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until


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


def test_a_program_reads_dead_letters_with_their_reasons(
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
    assert good(gateway.http.post(f"/v1/share-groups/{name}/dead-letters/redrive", json={}))["redriven"] == 5
    assert read_dead_letters(spark, name, url=stack.url).count() == 5, "redriven ones stay"


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

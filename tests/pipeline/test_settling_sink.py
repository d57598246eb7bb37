"""From a share group to a topic: one transaction makes the rows of a micro-batch visible and settles its records."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as f

from tests.http.calls import LONG_MS, Gateway
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.proxy import Instead, Proxy
from tests.pipeline.test_source import produce, settled
from tests.pipeline.test_transactional_sink import _of_earlier_tests, committed, copy, ended, open_transactions

__all__ = ["_of_earlier_tests"]


def waiting(waits: Path) -> Callable[[str], Column]:
    """A column of numbers whose tasks wait while there is a file. They note in it that they do."""

    @f.udf("int")
    def number(value: str) -> int:
        if waits.exists():
            waits.write_text("begun")
            wait_for(lambda: not waits.exists(), "the test goes on", 100)
        return int(value)

    return number


def test_records_are_settled_when_their_rows_become_visible(
    pipeline: Pipeline, proxy: Proxy, gateway: Gateway, name: str
) -> None:
    """The source accepts a batch when Spark asks for the next one: here it never does. The answer of the commit is
    lost, and its repeat gets the same."""
    commits = []

    def lose_an_answer(method: str, path: str, headers: dict[str, str]) -> Instead | None:
        commits.extend([path] if path.endswith("/commit") else [])
        return Instead(503, {"Retry-After": "0"}, after=True) if commits == [path] else None

    proxy.rule = lose_an_answer
    produce(gateway, f"{name}-in", 20)
    gateway.create_topic(name, 2)
    rows = pipeline.stream(topics=f"{name}-in", group=name, valueFormat="string")
    query = copy(
        pipeline, rows.where("value != '7'").selectExpr("CAST(value AS INT) AS value"), name, processingTime="1 hour"
    )
    wait_for(lambda: committed(gateway, name), "the first batch")
    assert settled(gateway, name, f"{name}-in")
    wait_for(lambda: query.recentProgress, "Spark's commit")
    assert len(commits) == 2
    query.stop()
    produce(gateway, f"{name}-in", 2, first=20)
    ended(copy(pipeline, rows.where("value < '0'").selectExpr("CAST(value AS INT) AS value"), name))
    assert sorted(committed(gateway, name)) == [number for number in range(20) if number != 7]
    assert settled(gateway, name, f"{name}-in"), "also records without rows"
    assert open_transactions(gateway) == []


def test_a_batch_whose_locks_ended_is_refused_as_a_whole(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """Another member gets a record, so the query writes none of its rows. Its next run has the others."""
    produce(gateway, f"{name}-in", 10)
    gateway.create_topic(name, 2)
    gateway.configure(name, share_record_lock_duration_ms=1000)
    waits = pipeline.directory / "waits"
    waits.touch()
    stream = pipeline.stream(topics=f"{name}-in", group=name, valueFormat="string", lockRenew="false")
    values = stream.select(waiting(waits)("value").alias("value"))
    failing = copy(pipeline, values, name)
    wait_for(waits.read_text, "a task has begun")
    other = gateway.fetch(name, f"{name}-in", max_records=1, max_wait_ms=LONG_MS)
    (taken,) = other["batches"]
    assert gateway.settle(name, f"{name}-in", taken["first_offset"], taken["last_offset"], "accept") == "applied"
    waits.unlink()
    with pytest.raises(Exception, match=r"INVALID_TXN_STATE.*nothing is settled"):
        failing.awaitTermination(120)
    assert committed(gateway, name) == []
    gateway.configure(name, share_record_lock_duration_ms=120_000)
    ended(copy(pipeline, values, name))
    assert len(committed(gateway, name)) == 9
    assert settled(gateway, name, f"{name}-in")
    assert open_transactions(gateway) == []


def test_a_query_with_state_is_given_its_records_again(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """A batch that runs again after its commit would lack them in its state. So the source accepts them later."""
    produce(gateway, f"{name}-in", 20)
    gateway.create_topic(name, 2)
    rows = pipeline.stream(topics=f"{name}-in", group=name, valueFormat="string").dropDuplicates(["value"])
    query = copy(pipeline, rows.selectExpr("CAST(value AS INT) AS value"), name, processingTime="1 hour")
    wait_for(lambda: len(committed(gateway, name)) == 20 and query.recentProgress, "the first batch")
    assert not settled(gateway, name, f"{name}-in")
    query.stop()
    wait_for(lambda: settled(gateway, name, f"{name}-in"), "the batch is accepted")

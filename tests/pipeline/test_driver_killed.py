"""A driver that is killed or stopped within a batch: which records a restart reads, and which others get."""

from typing import Any

from pyspark.sql import DataFrame

from tests.http.calls import Gateway, good
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_source import produce, settled


def test_a_late_restart_leaves_out_records_that_others_took(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    gateway.configure(name, share_record_lock_duration_ms=1000)
    produce(gateway, name, 40)
    stream = pipeline.stream(group=name, topics=name, maxRecordsPerTrigger=30)
    stuck = pipeline.start(stream.selectExpr("value", "java_method('java.lang.Thread', 'sleep', 600000L)"))
    wait_for((pipeline.directory / "checkpoint/offsets/0").exists, "a batch is planned")
    stuck.stop()
    gateway.configure(name, share_record_lock_duration_ms=60_000)
    taken: list[dict[str, Any]] = []
    while len([record for batch in taken for record in batch["records"]]) < 20:
        taken += gateway.fetch(name, name, max_records=20, max_wait_ms=20_000)["batches"]
        good(gateway.try_acknowledge(name, [{**batch, "type": "accept"} for batch in taken]))
    others = {record["offset"]: batch["delivery_count"] for batch in taken for record in batch["records"]}
    again: dict[int, list[int]] = {}

    def see(frame: DataFrame, batch: int) -> None:
        again[batch] = [row.offset for row in frame.collect()]

    writer = stream.writeStream.foreachBatch(see).option("checkpointLocation", str(pipeline.directory / "checkpoint"))
    query = pipeline.started(writer.start())
    wait_for(lambda: settled(gateway, name, name), "all records are settled")
    assert again[0] == []
    assert sorted([*others, *(offset for offsets in again.values() for offset in offsets)]) == list(range(40))
    assert 2 in others.values()
    wait_for(
        lambda: any('"lost": 1' in entry["sources"][0]["endOffset"] for entry in query.recentProgress),
        "progress counts the lost range",
    )

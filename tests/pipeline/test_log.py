"""Reading the log by offsets without a group, `mode=log`: batches and streams, whole and in part."""

import json

import pytest
from pyspark.errors import PySparkException

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.test_source import numbers, produce


def test_a_batch_reads_the_log_or_a_part_of_it(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 100, partitions=2)
    frame = pipeline.read(topics=name, parallelism=5)
    assert frame.rdd.getNumPartitions() == 5
    assert numbers(frame) == list(range(100))
    assert {row.delivery_count for row in frame.select("delivery_count").distinct().collect()} == {None}
    part = pipeline.read(
        topics=name,
        mode="log",
        startingOffsets=f'{{"{name}":{{"0":-2,"1":45}}}}',
        endingOffsets=f'{{"{name}":{{"0":5,"1":-1}}}}',
    )
    assert numbers(part) == sorted([*range(0, 10, 2), *range(91, 100, 2)])
    assert gateway.http.get(f"/v1/share-groups/{name}/offsets").status_code == 404


def test_a_stream_continues_from_its_checkpoint(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 90, partitions=3)
    stream = pipeline.stream(topics=name, mode="log", maxRecordsPerTrigger=40)
    pipeline.drain(stream)
    sizes = [entry["numInputRows"] for entry in pipeline.queries[0].recentProgress if entry["numInputRows"]]
    assert sum(sizes) == 90
    assert max(sizes) <= 42  # a share of each partition, rounded up
    produce(gateway, name, 30, partitions=3, first=90)
    pipeline.drain(stream)
    assert numbers(pipeline.out()) == list(range(120))


def test_a_stream_whose_unread_records_were_deleted_fails(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """With failOnDataLoss=false it reads on, and its offset counts what it did not read."""
    produce(gateway, name, 50)
    pipeline.drain(pipeline.stream(topics=name, mode="log"))
    produce(gateway, name, 50, first=50)
    gateway.delete_records(name, 80)
    again = pipeline.start(pipeline.stream(topics=name, mode="log"))
    expected = f"{name}-0: the offsets 50 to 79 were deleted before they were read; set failOnDataLoss=false"
    with pytest.raises(PySparkException, match=expected):
        again.awaitTermination(60)
    assert numbers(pipeline.out()) == list(range(50))
    pipeline.drain(pipeline.stream(topics=name, mode="log", failOnDataLoss=False))
    assert numbers(pipeline.out()) == [*range(50), *range(80, 100)]
    assert json.loads(pipeline.queries[-1].recentProgress[-1]["sources"][0]["endOffset"])["lost"] == 30


def test_a_read_begins_and_ends_at_times(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    """Timestamps do not ascend: as in Kafka, the first record that reaches the time counts."""
    gateway.create_topic(name, 2)
    for partition, times in ((0, (1000, 5000, 2000, 7000)), (1, (3000, 3000))):
        for number, time_ms in enumerate(times):
            gateway.produce(name, 10 * partition + number, partition=partition, timestamp_ms=time_ms)
    later = pipeline.read(topics=name, startingTimestamp=2000)
    assert numbers(later) == [1, 2, 3, 10, 11]
    part = pipeline.read(
        topics=name,
        startingOffsetsByTimestamp=f'{{"{name}":{{"0":0,"1":3001}}}}',
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp=5001,
    )
    assert numbers(part) == [0, 1, 2]
    stream = pipeline.stream(topics=name, mode="log", startingTimestamp=3000)
    pipeline.drain(stream)
    assert numbers(pipeline.out()) == [1, 2, 3, 10, 11]
    with pytest.raises(PySparkException, match=f"no record of {name}-1 has the timestamp 3001 or a later one"):
        pipeline.read(topics=name, startingTimestamp=3001).count()


def test_progress_has_the_log_ends(pipeline: Pipeline, gateway: Gateway, name: str) -> None:
    produce(gateway, name, 90, partitions=3)
    pipeline.drain(pipeline.stream(topics=name, mode="log", maxRecordsPerTrigger=40))
    first = pipeline.queries[0].recentProgress[0]["sources"][0]
    assert json.loads(first["latestOffset"]) == {"log": {name: {"0": 30, "1": 30, "2": 30}}}
    assert sum(json.loads(first["endOffset"])["log"][name].values()) <= 42

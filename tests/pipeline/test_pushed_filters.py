"""Spark pushes filters down to a batch read of the log, and reads only what may pass."""

import pytest

from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline
from tests.pipeline.proxy import Proxy
from tests.pipeline.test_source import numbers, produce


@pytest.mark.parametrize(
    ("where", "expected", "partitions"),
    [
        ("partition = 1 AND offset >= 45", [91, 93, 95, 97, 99], {"1"}),
        ("timestamp >= timestamp_millis(7000)", [8, 9], {"0", "1"}),
        ("value IS NOT NULL AND partition > 4", [], set()),
    ],
)
def test_spark_reads_only_what_may_pass(
    pipeline: Pipeline, gateway: Gateway, name: str, where: str, expected: list[int], partitions: set[str]
) -> None:
    if "timestamp" in where:
        gateway.create_topic(name, 2)
        for number in range(10):
            gateway.produce(name, number, partition=number % 2, timestamp_ms=number * 1000 if number != 7 else 0)
    else:
        produce(gateway, name, 100, partitions=2)
    with Proxy(pipeline.url).running() as proxy:
        pipeline.url = proxy.url
        assert numbers(pipeline.read(topics=name).where(where)) == expected
        reads = [path.split("/")[5] for method, path, _ in proxy.requests if path.split("?")[0].endswith("/records")]
    assert set(reads) == partitions

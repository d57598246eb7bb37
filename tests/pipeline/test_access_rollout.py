"""A query writes in transactions while its gateway changes from `off` over `optional` to `required`. It has a key from
the beginning, which a gateway with `off` does not read: nothing is written twice, and nothing is refused."""

from pathlib import Path

import httpx
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sharequeue.stack.stack import temporary_stack
from tests.http.access import ADMIN, Access
from tests.http.calls import Gateway
from tests.pipeline.conftest import Pipeline, wait_for
from tests.pipeline.test_source import produce
from tests.pipeline.test_transactional_sink import committed, copy

USER = "User:query"
EACH = 40
"""Records that are produced in each mode."""


def until_written(query: StreamingQuery, gateway: Gateway, topic: str, count: int) -> None:
    wait_for(lambda: query.exception() or len(committed(gateway, topic)) >= count, f"{count} records", 300)
    assert query.exception() is None
    assert sorted(committed(gateway, topic)) == list(range(count))


@pytest.mark.soak
def test_a_query_lives_while_keys_come_to_be_required(
    spark: SparkSession, tmp_path: Path, database_url: str, redis_url: str, name: str
) -> None:
    stores, settings = {"postgres_url": database_url, "redis_url": redis_url}, {"SHAREQUEUE_GATEWAY_SUPER_USERS": ADMIN}
    with temporary_stack(tmp_path / "data", **stores, settings=settings) as stack:
        access = Access(stack, tmp_path / "data")
        key = access.key(USER)
        for kind in ("TOPIC", "TRANSACTIONAL_ID"):  # the transactional id is the id of the query
            for operation in ("READ", "WRITE") if kind == "TOPIC" else ("WRITE",):
                access.allow(USER, operation, kind, "*")
        login = {"Authorization": f"Bearer {access.key(ADMIN)}"}
        with httpx.Client(base_url=stack.url, timeout=40, headers=login) as http:
            gateway, pipeline = Gateway(http), Pipeline(spark, stack.url, tmp_path)
            gateway.create_topic(name, 2)
            produce(gateway, f"{name}-in", EACH)
            rows = pipeline.stream(topics=f"{name}-in", mode="log", valueFormat="string", token=key)
            query = copy(pipeline, rows.selectExpr("CAST(value AS INT) AS value"), name, "200 milliseconds", token=key)
            for number, mode in enumerate(("off", "optional", "required")):
                service = stack.service("gateway")
                if service.environment.get("SHAREQUEUE_GATEWAY_AUTHENTICATION", "off") != mode:
                    service.environment["SHAREQUEUE_GATEWAY_AUTHENTICATION"] = mode
                    service.stop()
                    service.start()
                    wait_for(service.ready, f"the gateway in mode {mode}")
                if number:
                    produce(gateway, f"{name}-in", EACH, first=number * EACH)
                until_written(query, gateway, name, (number + 1) * EACH)
            assert httpx.get(f"{stack.url}/v1/topics", timeout=40).status_code == 401
            query.stop()
        access.close()

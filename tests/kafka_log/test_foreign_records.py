"""A share group over HTTP reads what any Kafka producer writes, and any Kafka consumer what is produced over HTTP."""

import asyncio
import base64
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import LONG_MS, Gateway, Json, wait_until
from tests.kafka_log.brokers import Brokers
from tests.kafka_log.clusters import cluster_of, foreign
from tests.kafka_log.on_kafka import ON_KAFKA

assert not ON_KAFKA, "this folder starts its own brokers"


@pytest.fixture(scope="module")
def stack(
    kafka: Brokers,
    tmp_path_factory: pytest.TempPathFactory,
    new_database: Callable[[], str],
    new_redis: Callable[[], str],
) -> Iterator[Stack]:
    stores = {"postgres_url": new_database(), "redis_url": new_redis(), "kafka": kafka.address}
    with temporary_stack(tmp_path_factory.mktemp("stack"), **stores) as stack:
        yield stack


@pytest.fixture
def on_kafka(stack: Stack) -> Iterator[Gateway]:
    with httpx.Client(base_url=stack.url, timeout=40) as http:
        yield Gateway(http)


def records(fetched: Json) -> list[Json]:
    return [record for batch in fetched["batches"] for record in batch["records"]]


def write(kafka: Brokers, name: str, *values: bytes) -> None:
    async def play() -> None:
        async with cluster_of(kafka) as cluster, foreign(kafka, compression_type="lz4") as producer:
            if not await cluster.topics([name]):
                await cluster.create_topic(name, 1)
            for value in values:
                await producer.send_and_wait(name, value, b"key", headers=[("a", b"1"), ("a", b"2")])

    asyncio.run(play())


def test_a_topic_of_the_cluster_is_fetched_at_once(kafka: Brokers, on_kafka: Gateway, name: str) -> None:
    write(kafka, name, b'{"n": 1}', b"plain")
    first, second = records(on_kafka.fetch(name, name, max_wait_ms=LONG_MS))
    assert (first["key"], first["value"], first["headers"]) == ("key", {"n": 1}, {"a": "2"})
    assert [base64.b64decode(each) for each in first["headers_base64"]["a"]] == [b"1", b"2"]
    assert base64.b64decode(second["value_base64"]) == b"plain"
    assert on_kafka.settle(name, name, 0, 0, "accept") == "applied"
    assert on_kafka.settle(name, name, 1, 1, "release") == "applied"
    assert on_kafka.acquire(name, name) == ["1-1×2"]


def test_a_fetch_that_waits_wakes_up_for_a_foreign_record(
    kafka: Brokers, on_kafka: Gateway, name: str, background: object
) -> None:
    write(kafka, name)
    assert on_kafka.acquire(name, name) == []
    with contextlib.ExitStack() as ends:
        waiting = background.submit(on_kafka.fetch, name, name, max_wait_ms=LONG_MS)  # type: ignore[attr-defined]
        ends.callback(waiting.cancel)
        write(kafka, name, b"1")
        assert [record["value"] for record in records(waiting.result(60))] == [1]


def test_what_is_produced_over_http_is_read_by_a_kafka_consumer(kafka: Brokers, on_kafka: Gateway, name: str) -> None:
    on_kafka.create_topic(name)
    on_kafka.produce(name, {"n": 1}, key="k", headers={"h": "1"})
    sent = {"records": [{"value_base64": base64.b64encode(b"\xff").decode()}]}
    assert on_kafka.http.post(f"/v1/topics/{name}/records", json=sent).status_code == 200

    async def consume() -> list[tuple[object, ...]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=kafka.address)
        await consumer.start()
        try:
            consumer.assign([TopicPartition(name, 0)])
            await consumer.seek_to_beginning()
            found = [await consumer.getone() for _ in range(2)]
        finally:
            await consumer.stop()
        return [(each.key, each.value, dict(each.headers).get("h")) for each in found]

    assert asyncio.run(consume()) == [(b"k", b'{"n":1}', b"1"), (None, b"\xff", None)]
    (raw,) = [record for record in records(on_kafka.fetch(name, name)) if "value_base64" in record]
    assert (raw["value_base64"], raw.get("headers", {})) == (base64.b64encode(b"\xff").decode(), {})


def test_what_the_log_lacks_is_refused_by_name(on_kafka: Gateway, name: str) -> None:
    service = on_kafka.http.get("/v1").json()
    assert service["record_log"] == "kafka"
    assert "transactions" not in service["capabilities"]
    refused = on_kafka.http.post("/v1/transactions", json={"timeout_ms": 60_000})
    assert (refused.status_code, refused.json()["code"], refused.json()["capability"]) == (
        501,
        "UNSUPPORTED_VERSION",
        "transactions",
    )


def test_while_the_broker_is_silent_all_say_that_it_is_kafka(
    kafka: Brokers, stack: Stack, on_kafka: Gateway, name: str, background: Any
) -> None:
    on_kafka.create_topic(name)
    on_kafka.produce(name, 1)
    http = on_kafka.http
    kafka.pause(1)
    try:
        records_of = f"/v1/topics/{name}/records"
        asked = [
            background.submit(http.post, records_of, json={"records": [{"value": 2}]}),
            background.submit(
                http.post, records_of, json={"records": [{"value": 3}]}, headers={"idempotency-key": "k"}
            ),
            background.submit(http.get, f"/v1/topics/{name}"),
        ]
        fetching = background.submit(on_kafka.try_fetch, name, name)
        for port in (on_kafka.port, stack._ports["group coordinator"][0]):
            ready = httpx.get(f"http://127.0.0.1:{port}/readyz").json()
            assert kafka.address in ready["dependencies"]["kafka"]
        answers = [each.result(60) for each in asked]
        assert [(answer.status_code, kafka.address in answer.json()["detail"]) for answer in answers] == [
            (503, True)
        ] * 3
        assert (answers[0].json()["code"], answers[0].json()["definite"]) == ("REQUEST_TIMED_OUT", False)
        assert kafka.address in fetching.result(60).text
    finally:
        kafka.resume(1)
    wait_until(lambda: on_kafka.http.get("/readyz").json()["status"] == "ready")

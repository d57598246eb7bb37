"""The number of share-partitions that a gateway leads is limited; idle ones make room."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.calls import HANG_S, LONG_MS, Gateway, problem, ranges, wait_until, woken

LIMIT = 3


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {
        "SHAREQUEUE_GATEWAY_MAX_SHARE_PARTITIONS": str(LIMIT),
        "SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "300",
    }


def test_a_share_partition_above_the_limit_is_refused_until_there_is_room(own_gateway: Gateway, name: str) -> None:
    gateway = own_gateway
    gateway.create_topic(name, partitions=LIMIT)
    for partition in range(LIMIT):
        gateway.produce(name, partition, partition=partition)
    assert len(gateway.acquire(f"{name}-a", name)) == LIMIT

    response = gateway.try_fetch(f"{name}-b", name)
    refused = problem(response, 429, "THROTTLING_QUOTA_EXCEEDED", 89)
    assert (refused["limit"], refused["retriable"], refused["definite"]) == (LIMIT, True, True)
    assert int(response.headers["retry-after"]) >= 1

    for partition in range(LIMIT):
        assert gateway.settle(f"{name}-a", name, 0, 0, "accept", partition=partition) == "applied"
    wait_until(lambda: gateway.try_fetch(f"{name}-b", name).json().get("errors") == [])
    for partition in range(LIMIT):
        assert gateway.settle(f"{name}-b", name, 0, 0, "accept", partition=partition) == "applied"


def test_a_fetch_waits_for_the_partitions_that_can_be_loaded(
    own_gateway: Gateway, background: ThreadPoolExecutor, name: str
) -> None:
    gateway = own_gateway
    gateway.create_topic(name, partitions=LIMIT)
    gateway.create_topic(f"{name}-more")
    for partition in range(LIMIT):
        gateway.produce(name, partition, partition=partition)
    wait_until(lambda: gateway.try_fetch(name, name).json().get("errors") == [])
    assert sum(len(found["batches"]) for found in gateway.in_flight(name)) == LIMIT

    both = [name, f"{name}-more"]
    with woken(gateway):
        answer = background.submit(gateway.fetch, name, topics=both, member="m2", max_wait_ms=LONG_MS)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        gateway.produce(name, "late", partition=1)
        found = answer.result(HANG_S)
    assert ranges(found) == ["1:1-1×1"]
    assert [(fault["topic"], fault["kafka_code"]) for fault in found["errors"]] == [(f"{name}-more", 89)]

"""The number of share-partitions that a gateway leads is limited; idle ones make room."""

import pytest

from tests.http.calls import Gateway, problem, wait_until

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

"""A fetch over many partitions that several gateways lead finds a record in any of them, wherever it was appended."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sharequeue_gateway.delivery.delayed_fetch import LOADED_AT_ONCE

from tests.cluster.calls import fetch, make_topic, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import HANG_S, LONG_MS, Gateway, woken

PARTITIONS = 4 * LOADED_AT_ONCE


def partitions_of(answer: dict) -> list[int]:
    return [batch["partition"] for batch in answer["batches"]]


@pytest.mark.soak
def test_a_record_in_any_partition_of_a_wide_topic_is_found(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """A waiting fetch finds it at once; fetches that do not wait find it once all partitions are loaded."""
    make_topic(clients[0], name, PARTITIONS)
    last = PARTITIONS - 1
    produce(clients[1], name, last, 1)
    assert partitions_of(fetch(clients[0], f"{name}-a", topics=[name], max_wait_ms=LONG_MS)) == [last]
    answers = [fetch(clients[0], f"{name}-b", topics=[name], max_wait_ms=0) for _ in range(5)]
    assert [partition for answer in answers for partition in partitions_of(answer)] == [last]
    with woken(*map(Gateway, clients)), ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, clients[0], f"{name}-b", topics=[name], max_wait_ms=LONG_MS)
        cluster.wait_until_waiting()
        produce(clients[2], name, 1, 1)
        assert partitions_of(poll.result(HANG_S)) == [1]

"""Records that one gateway deletes take no room in the windows that other gateways lead."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.cluster.calls import fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import HANG_S, LONG_MS, Gateway, woken


@pytest.fixture
def full(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> list[Gateway]:
    """A group whose window is full of delayed records. Returns: the leader first, then the other gateways."""
    gateways = [Gateway(client) for client in clients]
    gateways[0].configure(name, share_partition_max_record_locks=8, share_partition_max_delayed_records=0)
    leader = cluster.leader_of(name, make_topic(clients[0], name, 1), 0)
    gateways.sort(key=lambda gateway: str(gateway.http.base_url).rstrip("/") != leader.url)
    produce(gateways[0].http, name, 0, 8)
    assert gateways[0].acquire(name, name) == ["0-7×1"]
    assert gateways[0].settle(name, name, 0, 7, "release", delay_ms=3_600_000) == "applied"
    produce(gateways[1].http, name, 0, 1)
    return gateways


def test_a_fetch_that_waits_is_woken_when_another_gateway_deletes_what_is_in_the_way(
    cluster: GatewayCluster, full: list[Gateway], name: str
) -> None:
    with woken(full[0]), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fetch, full[0].http, name, topics=[name], max_wait_ms=LONG_MS)
        cluster.wait_until_waiting()
        full[1].delete_records(name, 8)
        assert places(waiting.result(HANG_S)) == {(0, 8)}


def test_a_fetch_that_does_not_wait_finds_the_new_record_after_records_were_deleted(
    full: list[Gateway], name: str
) -> None:
    assert full[2].acquire(name, name) == []
    full[1].delete_records(name, 8)
    assert full[2].acquire(name, name) == ["8-8×1"]

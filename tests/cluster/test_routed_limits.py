"""Limits of a fetch and of a gateway hold over all leaders."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.calls import fetch, make_topic
from tests.cluster.conftest import NewCluster
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import HANG_S, LONG_MS, Gateway, woken

PARTITIONS = 6
RECORDS = 20
SIZE = 1000


@pytest.fixture(scope="module")
def stack(new_cluster: NewCluster) -> Iterator[Stack]:
    with new_cluster(SHAREQUEUE_GATEWAY_MAX_WAITING_FETCHES="1") as stack:
        yield stack


def elsewhere(cluster: GatewayCluster, leader: ServiceProcess) -> ServiceProcess:
    return next(gateway for gateway in cluster.gateways if gateway is not leader)


def test_max_bytes_holds_over_all_leaders(clients: list[httpx.Client], name: str) -> None:
    """Partitions that this gateway leads count too. One record of each partition may exceed the limit."""
    make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        records = [{"value": "x" * SIZE, "partition": partition}] * RECORDS
        assert clients[0].post(f"/v1/topics/{name}/records", json={"records": records}).status_code == 200
    for turn in range(9):
        answer = fetch(
            clients[turn % 3],
            f"{name}-{turn}",
            topics=[name],
            max_bytes=RECORDS * SIZE,
            acquire_mode="record_limit",
            max_wait_ms=0,
        )
        values = [record["value"] for batch in answer["batches"] for record in batch["records"]]
        assert RECORDS - PARTITIONS <= len(values) <= RECORDS + PARTITIONS


def test_a_fetch_that_waits_at_another_gateway_is_counted(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = make_topic(clients[0], name, 1)
    leader = cluster.leader_of(name, topic_id, 0)
    entry = elsewhere(cluster, leader)
    through, other = (httpx.Client(base_url=gateway.url, timeout=40) for gateway in (entry, leader))
    with through, other, woken(Gateway(through), Gateway(other)), ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, through, name, topics=[name], max_wait_ms=LONG_MS)
        cluster.wait_until_waiting_at(leader)
        refused = through.post(f"/v1/share-groups/{name}/fetch", json={"topics": [name], "max_wait_ms": 0})
        assert (refused.status_code, refused.json()["code"]) == (429, "THROTTLING_QUOTA_EXCEEDED")
        produced = other.post(f"/v1/topics/{name}/records", json={"records": [{"value": 1}]})
        assert produced.status_code == 200
        assert len(poll.result(HANG_S)["batches"]) == 1
        assert fetch(through, name, topics=[name], max_wait_ms=0)["batches"] == []

"""A group that was deleted by force stays deleted: no poll that waits at any gateway creates it again."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sharequeue.stack.stack import ServiceProcess
from tests.cluster.calls import fetch, make_topic
from tests.cluster.gateways import GatewayCluster
from tests.http.calls import HANG_S, LONG_MS, Gateway, woken


def leaders_of(cluster: GatewayCluster, group: str, topic_id: str, partitions: int) -> list[ServiceProcess]:
    return [cluster.leader_of(group, topic_id, partition) for partition in range(partitions)]


@pytest.mark.parametrize("leaders", [1, 2])
def test_a_poll_at_a_gateway_that_leads_nothing_does_not_recreate_a_deleted_group(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str, leaders: int
) -> None:
    topic_id = make_topic(clients[0], name, leaders)
    entry = cluster.gateways[0]
    groups = (f"{name}-{number}" for number in itertools.count())
    group = next(
        group
        for group in groups
        if len({id(leader) for leader in leaders_of(cluster, group, topic_id, leaders)} - {id(entry)}) == leaders
        and entry not in leaders_of(cluster, group, topic_id, leaders)
    )
    with woken(*map(Gateway, clients)), ThreadPoolExecutor(1) as pool:
        poll = pool.submit(fetch, clients[0], group, topics=[name], max_wait_ms=LONG_MS)
        for leader in leaders_of(cluster, group, topic_id, leaders):
            cluster.wait_until_waiting_at(leader)
        deleted = clients[1].delete(f"/v1/share-groups/{group}", params={"force": "true"})
        assert deleted.status_code == 204, deleted.text
        assert poll.result(HANG_S)["batches"] == []
    for client in clients:
        assert client.get(f"/v1/share-groups/{group}/offsets").status_code == 404

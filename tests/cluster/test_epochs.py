"""A share-partition whose state knows a higher leader epoch than its leader has: as after an epoch that came late."""

import asyncio

import httpx

from sharequeue.coordinators import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.internal import (
    LeaderEpochResponse,
    MetadataChangesQuery,
    MetadataChangesResponse,
    NextLeaderEpochRequest,
    PartitionState,
    ShareStateRequest,
    TopicState,
)
from sharequeue.protocol.shards import CLUSTER
from sharequeue.stack import Stack
from tests.cluster.calls import acknowledgements_of, fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster

RECORDS = 4


async def read_with_a_higher_epoch(stack: Stack, group: str, topic_id: str) -> None:
    """As a gateway does that was given an epoch and then lost partition 0 to another one."""
    token = (stack._data_dir / "cluster.token").read_text().strip()
    group_coordinator = CoordinatorClient(stack.service("group coordinator").url, "group", cluster_token=token)
    share_coordinator = CoordinatorClient(stack.service("share coordinator").url, "share", cluster_token=token)
    try:
        changes: MetadataChangesResponse = await group_coordinator.call(
            apis.METADATA_CHANGES, MetadataChangesQuery(since=0, max_wait_ms=0), key=CLUSTER
        )
        request = NextLeaderEpochRequest(node_id="gateway-0", generation=changes.generation)
        given: LeaderEpochResponse = await group_coordinator.call(apis.NEXT_LEADER_EPOCH, request, key=CLUSTER)
        state = PartitionState(partition=0, leader_epoch=given.leader_epoch)
        read = ShareStateRequest(group_id=group, topics=[TopicState(topic_id=topic_id, partitions=[state])])
        answer = await share_coordinator.state(apis.READ_STATE, read)
        assert answer.results[0].partitions[0].error_code == 0
    finally:
        await group_coordinator.close()
        await share_coordinator.close()


def test_a_leader_that_is_fenced_although_it_leads_takes_a_higher_epoch(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = make_topic(clients[0], name, 1)
    produce(clients[0], name, 0, RECORDS)
    held = fetch(clients[0], name, topics=[name], member_id="m", max_records=1, max_wait_ms=5000)
    asyncio.run(read_with_a_higher_epoch(stack, name, topic_id))
    body = {"member_id": "m", "acknowledgements": acknowledgements_of(held, "accept")}
    response = clients[0].post(f"/v1/share-groups/{name}/acknowledge", json=body)
    assert response.json()["results"][0]["status"] == "applied", response.text
    rest = fetch(clients[1], name, topics=[name], max_wait_ms=5000)
    assert places(rest) == {(0, offset) for offset in range(1, RECORDS)}

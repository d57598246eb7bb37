"""A share-partition whose state or locks have a higher leader epoch than its leader:
as after an epoch that came late."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from redis import Redis

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import (
    LeaderEpochResponse,
    MetadataChangesQuery,
    MetadataChangesResponse,
    NextLeaderEpochRequest,
)
from sharequeue.protocol.messages.share_state import PartitionState
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack
from tests.cluster.calls import acknowledge, acknowledgements_of, fetch, make_topic, places, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.database import redis_keys

RECORDS = 4


@asynccontextmanager
async def coordinators(stack: Stack) -> AsyncIterator[tuple[CoordinatorClient, ShareStateClient]]:
    """Clients of the group coordinator and of the share coordinator."""
    token = (stack._data_dir / "cluster.token").read_text().strip()
    group_coordinator = CoordinatorClient(stack.service("group coordinator").url, "group", cluster_token=token)
    share_coordinator = ShareStateClient(stack.service("share coordinator").url, cluster_token=token)
    try:
        yield group_coordinator, share_coordinator
    finally:
        await group_coordinator.close()
        await share_coordinator.close()


async def higher_epoch(group_coordinator: CoordinatorClient) -> int:
    """A leader epoch above all that were given, as a gateway gets it."""
    changes: MetadataChangesResponse = await group_coordinator.call(
        apis.METADATA_CHANGES, MetadataChangesQuery(since=0, max_wait_ms=0), key=CLUSTER
    )
    request = NextLeaderEpochRequest(node_id="gateway-0", generation=changes.generation)
    given: LeaderEpochResponse = await group_coordinator.call(apis.NEXT_LEADER_EPOCH, request, key=CLUSTER)
    return given.leader_epoch


async def read_with_a_higher_epoch(stack: Stack, group: str, topic_id: str) -> None:
    """Raise the epoch as a gateway would that got an epoch and then lost partition 0 to another one."""
    async with coordinators(stack) as (group_coordinator, share_coordinator):
        state = PartitionState(partition=0, leader_epoch=await higher_epoch(group_coordinator))
        (result,) = (await share_coordinator.state(apis.READ_STATE, group, {topic_id: [state]})).values()
        assert result.error_code == 0


async def given_epoch(stack: Stack) -> int:
    async with coordinators(stack) as (group_coordinator, _):
        return await higher_epoch(group_coordinator)


def test_a_fenced_leader_that_still_leads_takes_a_higher_epoch(
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


def test_a_renewal_is_answered_once_redis_has_it(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """Redis refuses the leader's write, so the renewal in the leader's memory does not keep the lock."""
    topic_id = make_topic(clients[0], name, 1)
    produce(clients[0], name, 0, RECORDS)
    held = fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=5000)
    locks = redis_keys(stack).locks(SharePartitionKey(name, topic_id, 0))

    def deadline_ms(redis: Redis) -> int:
        deadline: int = json.loads(redis.hget(locks, f"0-{RECORDS - 1}"))[2]
        return deadline

    assert stack._redis_url is not None
    with Redis.from_url(stack._redis_url) as redis:
        acquired_ms = deadline_ms(redis)
        redis.hset(locks, "epoch", asyncio.run(given_epoch(stack)))
        acknowledge(clients[0], name, held, "renew")
        assert deadline_ms(redis) > acquired_ms

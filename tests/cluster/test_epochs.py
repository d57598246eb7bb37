"""A share-partition whose locks have a higher leader epoch than its leader: as after an epoch that came late."""

import asyncio
import json

import httpx
from redis import Redis

from sharequeue.ownership.coordinator_client import CoordinatorClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.cluster import (
    LeaderEpochResponse,
    MetadataChangesQuery,
    MetadataChangesResponse,
    NextLeaderEpochRequest,
)
from sharequeue.protocol.shards import CLUSTER
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack
from tests.cluster.calls import acknowledge, fetch, make_topic, produce
from tests.cluster.gateways import GatewayCluster
from tests.http.database import redis_keys

RECORDS = 4


async def given_epoch(stack: Stack) -> int:
    """A leader epoch above all that were given, as a gateway gets it."""
    token = (stack._data_dir / "cluster.token").read_text().strip()
    coordinator = CoordinatorClient(stack.service("group coordinator").url, "group", cluster_token=token)
    try:
        changes: MetadataChangesResponse = await coordinator.call(
            apis.METADATA_CHANGES, MetadataChangesQuery(since=0, max_wait_ms=0), key=CLUSTER
        )
        request = NextLeaderEpochRequest(node_id="gateway-0", generation=changes.generation)
        given: LeaderEpochResponse = await coordinator.call(apis.NEXT_LEADER_EPOCH, request, key=CLUSTER)
        return given.leader_epoch
    finally:
        await coordinator.close()


def test_a_renewal_is_answered_once_redis_has_it(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    """Redis refuses the leader's write, so the renewal in the leader's memory does not keep the lock."""
    topic_id = make_topic(clients[0], name, 1)
    produce(clients[0], name, 0, RECORDS)
    held = fetch(clients[0], name, topics=[name], member_id="m", max_wait_ms=5000)
    key, keys = SharePartitionKey(name, topic_id, 0), redis_keys(stack)

    def locks(redis: Redis) -> str:
        return keys.locks(key, int(redis.get(keys.leader(key))))

    def deadline_ms(redis: Redis) -> int:
        (lock,) = json.loads(redis.lindex(locks(redis), -1))
        assert lock[:2] == [0, RECORDS - 1]
        return int(lock[4])

    assert stack._redis_url is not None
    with Redis.from_url(stack._redis_url) as redis:
        acquired_ms = deadline_ms(redis)
        epoch = asyncio.run(given_epoch(stack))
        redis.rename(locks(redis), keys.locks(key, epoch))
        redis.set(keys.leader(key), epoch)
        acknowledge(clients[0], name, held, "renew")
        assert deadline_ms(redis) > acquired_ms

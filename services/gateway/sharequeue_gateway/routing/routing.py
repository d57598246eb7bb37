"""Finds the gateway that leads each share-partition of a request, and the one that keeps a member's share session."""

import itertools
from collections.abc import Iterable
from typing import Any, Final

from sharequeue.protocol.errors import KAFKA_CODES, FencedLeaderEpoch, NotLeaderOrFollower
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import KnownTopic, Partitions
from sharequeue_gateway.routing.gateway_client import ANSWER_S, GatewayClient
from sharequeue_http.application.endpoint import Call, Handler
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import CoordinatorNotAvailable, RequestTimedOut

MOVED: Final = frozenset(
    KAFKA_CODES[fault.error]
    for fault in (NotLeaderOrFollower, RequestTimedOut, CoordinatorNotAvailable, FencedLeaderEpoch)
)
"""Errors after which the new leader is looked for: leadership moved, or the leader does not answer."""

FEW: Final = 16
"""Of so many partitions a call of one leader goes past this room."""


class Routing:
    """Splits requests by leader. `gateways` calls the leaders."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.gateways = GatewayClient(cluster)

    def split(self, group_id: str, partitions: Partitions) -> dict[Node, list[tuple[KnownTopic, int]]]:
        """Partitions by the gateway that leads them."""
        led: dict[Node, list[tuple[KnownTopic, int]]] = {}
        for topic, partition in partitions:
            led.setdefault(self.leader_of(group_id, topic, partition), []).append((topic, partition))
        return led

    def leads_these(self, group_id: str, partitions: Iterable[tuple[KnownTopic | None, int]]) -> bool:
        """Tell whether this gateway leads these partitions, which are few and of known topics."""
        named = list(itertools.islice(partitions, FEW + 1))
        return len(named) <= FEW and all(
            topic is not None and self.cluster.leads(SharePartitionKey(group_id, topic.topic_id, partition))
            for topic, partition in named
        )

    def leader_of(self, group_id: str, topic: KnownTopic, partition: int) -> Node:
        return self.cluster.leader_of(SharePartitionKey(group_id, topic.topic_id, partition))

    async def answered(self, leader: Node, api: Api, call: Call, here: Handler, answer_s: float = ANSWER_S) -> Any:
        """The answer of a leader to a client's call: `here`, or that of another gateway, which `api` asks once."""
        if leader == self.cluster.me:
            return await here(call)
        return await self.gateways.call(leader, api, call.request, answer_s, **call.path)

    def home_elsewhere(self, group_id: str, member_id: str) -> Node | None:
        """The gateway that keeps a member's share session; None if it is this one."""
        home = self.cluster.generation.home_of(group_id, member_id)
        return None if home == self.cluster.me else home

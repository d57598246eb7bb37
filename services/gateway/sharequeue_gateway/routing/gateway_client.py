"""The calls to other gateways: those that lead share-partitions, and those that keep share sessions.

Each call raises the ApiError of the other gateway; or CoordinatorNotAvailable or RequestTimedOut (not definite) if that
gateway does not answer.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from sharequeue.protocol import apis
from sharequeue.protocol.messages import leaders as messages
from sharequeue.protocol.messages.in_flight import InFlightQuery, ListInFlightResponse
from sharequeue.protocol.messages.records import TopicPartitions
from sharequeue.protocol.types import LeftLocks, SharePartitionKey
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Node
from sharequeue_gateway.cluster.metadata import Partitions
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_http.answer import JSON, Answer
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError

LeftBy = dict[SharePartitionKey, list[LeftLocks]]
"""By share-partition: the locks that each of several gateways knew."""

ANSWER_S: Final = 12.0
"""The time that another gateway has to answer, besides the wait that the request allows."""
YIELD_S: Final = 2.0
GONE_YIELD_S: Final = 0.75
"""The same for a gateway that has left the generation. It answers within milliseconds, or it is dead or paused."""


def by_topic(partitions: Partitions) -> list[TopicPartitions]:
    """Partitions in the form of a request."""
    named: dict[str, list[int]] = {}
    for topic, partition in partitions:
        named.setdefault(topic.name, []).append(partition)
    return [TopicPartitions(topic=name, partitions=indexes) for name, indexes in named.items()]


class GatewayClient:
    """Calls other gateways of the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _relay(
        self,
        node: Node,
        api: Api,
        group_id: str,
        request: Any,
        wait_s: float = 0.0,
        headers: Mapping[str, str] | None = None,
    ) -> Coroutine[Any, Any, tuple[bytes, Mapping[str, str]]]:
        """Call a gateway once about a group; the answer stays bytes. `wait_s`: for how long the request may wait."""
        return self._cluster.client(node).relay(
            api, request, path={"group": group_id}, headers=headers, deadline_s=wait_s + ANSWER_S, retry=False
        )

    async def call(self, node: Node, api: Api, request: Any, deadline_s: float = ANSWER_S, **path: str) -> Any:
        """Call a gateway once. Returns: its message."""
        return await self._cluster.client(node).call(api, request, path=path, deadline_s=deadline_s, retry=False)

    async def in_session(
        self, node: Node, api: Api, group_id: str, request: Any, principal: str, wait_s: float = 0.0
    ) -> Answer:
        """The answer to a client's call in a share session that `node` keeps. `principal`: the client's; empty if it
        needs no key."""
        caller = {messages.PRINCIPAL: quote(principal, safe="")} if principal else None
        body, headers = await self._relay(node, api, group_id, request, wait_s, caller)
        failed = headers.get("acknowledge-failed")
        return Answer(body, headers=(JSON,) if failed is None else (JSON, (b"acknowledge-failed", failed.encode())))

    async def release(self, node: Node, group_id: str, member_id: str, partitions: Partitions) -> None:
        request = messages.ReleaseMemberRequest(member_id=member_id, topic_partitions=by_topic(partitions))
        await self._cluster.client(node).call(apis.RELEASE_AT_LEADER, request, path={"group": group_id})

    async def fetch(
        self, node: Node, group_id: str, request: messages.LeaderFetchRequest
    ) -> tuple[bytes, Mapping[str, str]]:
        """Returns: a LeaderFetchResponse, and the headers of the answer."""
        return await self._relay(node, apis.FETCH_FROM_LEADER, group_id, request, request.asked.wait_ms / 1000)

    async def await_records(self, node: Node, group_id: str, partitions: Partitions, seconds: float) -> bool:
        """Wait until there may be records, or the time is over. Returns: whether the group was reset or deleted."""
        request = messages.AwaitRecordsRequest(topic_partitions=by_topic(partitions), max_wait_ms=int(seconds * 1000))
        _, headers = await self._relay(node, apis.AWAIT_RECORDS, group_id, request, seconds)
        return messages.ENDED in headers

    async def held(self, node: Node, group_id: str, request: messages.HeldRequest) -> bytes:
        """Returns: a LeaderFetchResponse."""
        body, _ = await self._relay(node, apis.HELD_AT_LEADER, group_id, request, request.max_wait_ms / 1000)
        return body

    async def transaction_ended(self, node: Node, transaction_id: str, keys: Sequence[SharePartitionKey]) -> None:
        request = messages.SharePartitions(share_partitions=list(keys))
        await self.call(node, apis.TRANSACTION_ENDED, request, transaction=transaction_id)

    async def in_flight(self, node: Node, group_id: str, query: InFlightQuery) -> ListInFlightResponse:
        answer: ListInFlightResponse = await self._cluster.client(node).call(
            apis.IN_FLIGHT_AT_LEADER, query, path={"group": group_id}
        )
        return answer

    async def take_from_former(self, keys: Sequence[SharePartitionKey]) -> LeftBy:
        """Have the former leaders of these finish their writes and yield. A gateway that does not answer is fenced
        later.

        Returns: the locks that they knew.
        """
        by_node: dict[Node, list[SharePartitionKey]] = {}
        for key in keys:
            former = self._cluster.former_leader_of(key)
            if former is not None:
                by_node.setdefault(former, []).append(key)
        return await self._take_all(by_node)

    async def take_from_others(self, keys: Sequence[SharePartitionKey]) -> LeftBy:
        """As `take_from_former`, at all others: without Redis, the last leader may never have loaded the locks."""
        return await self._take_all(dict.fromkeys(self._cluster.others_lately(), keys) if keys else {})

    async def have_loaded(self, leds: Sequence[LedSharePartition]) -> None:
        """Have the new leaders load these: a load asks this gateway for the locks that it keeps."""
        wanted: dict[tuple[Node, str], dict[str, list[int]]] = {}
        for led in leds:
            topics = wanted.setdefault((self._cluster.leader_of(led.key), led.key.group_id), {})
            topics.setdefault(led.topic_name, []).append(led.key.partition)

        async def load(node: Node, group_id: str, topics: Mapping[str, list[int]]) -> None:
            named = [TopicPartitions(topic=name, partitions=partitions) for name, partitions in topics.items()]
            request = messages.AwaitRecordsRequest(topic_partitions=named, max_wait_ms=0)
            with contextlib.suppress(ApiError):  # that gateway may not know the new generation yet
                await self.call(node, apis.AWAIT_RECORDS, request, YIELD_S, group=group_id)

        await asyncio.gather(*(load(*place, topics) for place, topics in wanted.items()))

    async def _take_all(self, by_node: Mapping[Node, Sequence[SharePartitionKey]]) -> LeftBy:
        answers = await asyncio.gather(*(self._take(node, keys) for node, keys in by_node.items()))
        left: LeftBy = {}
        for key, locks in itertools.chain.from_iterable(answers):
            left.setdefault(key, []).append(locks)
        return left

    async def _take(self, node: Node, keys: Sequence[SharePartitionKey]) -> list[tuple[SharePartitionKey, LeftLocks]]:
        deadline_s = YIELD_S if node in self._cluster.generation.nodes else GONE_YIELD_S
        request = messages.SharePartitions(share_partitions=list(keys))
        answer: messages.YieldResponse | None
        answer = await self._cluster.asked(node, apis.YIELD_SHARE_PARTITIONS, request, deadline_s)
        if answer is None:
            self._cluster.gone(node)
            return []
        return answer.held

"""Unloads a share-partition at a gateway that goes on leading it, while an acknowledgement is under way."""

import asyncio
import http.client
import json
from contextlib import closing

from sharequeue.protocol import apis
from sharequeue.protocol.messages.leaders import SharePartitions
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack
from sharequeue_http.calling.caller import Client
from tests.http.calls import Gateway, acknowledge_range


def unload(stack: Stack, key: SharePartitionKey) -> None:
    """As a gateway asks for it that is about to lead; this one goes on leading after all."""
    token = (stack._data_dir / "cluster.token").read_text().strip()

    async def call() -> None:
        client = Client(stack.url, cluster_token=token)
        try:
            await client.call(apis.YIELD_SHARE_PARTITIONS, SharePartitions(share_partitions=[key]))
        finally:
            await client.close()

    asyncio.run(call())


class Accepting:
    """One record accepted by member m1, in a call whose answer is not waited for yet. The gateway has begun it."""

    def __init__(self, stack: Stack, gateway: Gateway, group: str, topic: str, offset: int) -> None:
        accept = acknowledge_range(topic, offset, offset, "accept", delivery_count=1)
        self._connection = http.client.HTTPConnection(stack.url.removeprefix("http://"), timeout=60)
        self._connection.request(
            "POST",
            f"/v1/share-groups/{group}/acknowledge",
            json.dumps({"member_id": "m1", "acknowledgements": [accept]}),
            {"Content-Type": "application/json"},
        )
        for _ in range(3):
            gateway.metrics()  # the gateway begins requests in the order in which they arrive

    def status(self) -> str:
        """What became of it."""
        with closing(self._connection):
            answer = json.load(self._connection.getresponse())
        return answer["results"][0]["status"]  # type: ignore[no-any-return]

"""A request split by owner where no owner answers: one of them may have acted, so the failure is not definite."""

import asyncio

import pytest

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.messages.cluster import ShardOwner, ShardsResponse
from sharequeue.protocol.messages.share_state import PartitionState, SharePartitionState
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError

NOBODY = "http://127.0.0.1:1"


@pytest.mark.parametrize("first", [0, 1], ids=["the one that hangs up first", "the one that is away first"])
async def test_a_failure_is_definite_only_if_every_owners_failure_is(first: int) -> None:
    """Of two owners one refuses connections, the other takes the request and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /v1/shards"):
            owners = [ShardOwner(shard=n, node_id=str(n), url=(url, NOBODY)[n ^ first], owner_epoch=1) for n in (0, 1)]
            body = encode(ShardsResponse(shards=owners, count=2))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body))
            writer.write(body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = ShareStateClient(url)
    topic_id = "00000000-0000-4000-8000-000000000000"
    states = [
        SharePartitionState("g", topic_id, PartitionState(partition=n, state_epoch=1, leader_epoch=1, start_offset=0))
        for n in range(20)
    ]
    try:
        with pytest.raises(ApiError) as failed:
            await client.write(states, deadline_s=1)
        assert not failed.value.definite
    finally:
        await client.close()
        server.close()

"""State writes whose answers are errors or nonsense: rows PW-013 and LD-035."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.persister import MOST_WRITES, Persister, persist_error

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.messages.cluster import ShardOwner, ShardsResponse
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.forms.codec import encode
from sharequeue_http.forms.errors import ApiError
from tests.core.share_partition_driver import fetched
from tests.core.write_events import Unheard


@pytest.mark.parametrize(
    ("answered", "passed_on"),
    [(14, 15), (15, 15), (16, 15), (69, 69), (3, 3), (42, 42), (74, 6), (124, 6), (-1, -1), (99, -1)],
)
def test_pw_013_ld_035_the_leader_passes_on_the_share_coordinators_error(answered: int, passed_on: int) -> None:
    error = persist_error(answered, "why")
    assert KAFKA_CODES[error.error] == passed_on
    assert "why" in error.detail
    assert error.definite == (passed_on not in (15, -1)), "a write that was answered 14, 15 or 16 may be durable"


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[str]:
    """Something that answers every request with `body`; yields its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def written(url: str) -> ApiError | None:
    """The outcome of one write."""
    d = fetched("[0-9]", hold_writes=True)
    d.ack("0-9 Acc")
    client = ShareStateClient(url)
    persister = Persister(client, deadline_ms=1000)
    running = asyncio.create_task(persister.run(Unheard()))
    try:
        led = LedSharePartition(SharePartitionKey("g", "0" * 32, 0), d.machine, "t", d.now_ms)
        return await asyncio.wait_for(persister.submit(led, d.writes[0]).outcome, 60)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


@pytest.mark.parametrize("body", [b'{"groups":[]}', b"{}", b"not JSON"])
async def test_pw_013_an_unreadable_answer_is_unknown_server_error(body: bytes) -> None:
    async with answering(body) as url:
        error = await written(url)
    assert error is not None
    assert KAFKA_CODES[error.error] == -1


async def test_pw_013_an_unreachable_share_coordinator_is_not_available() -> None:
    """The write is sent again after the deadline, so its failure is not definite."""
    async with answering(b"") as url:
        pass
    error = await written(url)
    assert error is not None
    assert (KAFKA_CODES[error.error], error.definite) == (15, False)


async def test_writes_of_very_many_share_partitions_are_sent_in_parts() -> None:
    """Each part stops the loop twice: when its request is built, and when its writes end."""
    count = 2 * MOST_WRITES + 1
    sent: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        body = await reader.readexactly(int(length or b"0"))
        if b'"state_epoch"' in body:
            sent.append(body.count(b'"state_epoch"'))
        owners = [ShardOwner(shard=0, node_id="me", url=url, owner_epoch=1)]
        answered = encode(ShardsResponse(shards=owners, count=1)) if not body else b"{}"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n")
        writer.write(b"content-length: %d\r\n\r\n" % len(answered))
        writer.write(answered)
        await writer.drain()
        writer.close()

    d = fetched("[0-9]", hold_writes=True)
    d.ack("0-9 Acc")
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = ShareStateClient(url)
    persister = Persister(client, deadline_ms=30_000)
    async with server:
        pending = [
            persister.submit(
                LedSharePartition(SharePartitionKey("g", "0" * 32, partition), d.machine, "t", d.now_ms), d.writes[0]
            )
            for partition in range(count)
        ]
        running = asyncio.create_task(persister.run(Unheard()))
        try:
            await asyncio.wait_for(asyncio.gather(*(write.outcome for write in pending)), 60)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()
    assert (sum(sent), max(sent)) == (count, MOST_WRITES)

"""A write under way while a second share coordinator takes over."""

import asyncio

import msgspec

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.messages.cluster import ShardOwner, ShardsResponse
from sharequeue.protocol.messages.share_state import (
    PartitionState,
    PartitionStateResult,
    SharePartitionResult,
    SharePartitionState,
    ShareStateResponse,
)
from sharequeue.protocol.shards import shard_of, share_key
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.forms.errors import CoordinatorNotAvailable
from tests.shell.coordinator_wire import CoordinatorWire

SHARDS = 2
KEY = SharePartitionKey("g", "id-1", 0)
WRITE = [SharePartitionState("g", "id-1", PartitionState(partition=0))]
DONE = PartitionStateResult(partition=0, error_code=0, error_message=None)
WRITTEN = ShareStateResponse(results=[SharePartitionResult("g", "id-1", DONE)])


def test_a_repeated_write_goes_to_the_owner_that_took_over_during_the_call() -> None:
    """One share coordinator was known when the call began. It keeps a shard, and is paused from then on."""

    async def work() -> None:
        async with CoordinatorWire().listening() as one, CoordinatorWire().listening() as other:
            first, second = sorted((one, other), key=lambda wire: wire.url)
            owned = shard_of(share_key(KEY), SHARDS)
            alone = [ShardOwner(shard=shard, node_id="a", url=first.url, owner_epoch=1) for shard in range(SHARDS)]
            first.shards = ShardsResponse(shards=alone, count=SHARDS)
            client = ShareStateClient(first.url, deadline_s=20)
            await client.learn()
            writing = asyncio.create_task(client.write(WRITE))
            lost = await first.expect(apis.WRITE_STATE)
            moved = ShardOwner(shard=owned, node_id="b", url=second.url, owner_epoch=2)
            first.shards = second.shards = ShardsResponse(shards=[alone[1 - owned], moved], count=SHARDS)
            lost.set_result(None)
            await second.answer(apis.WRITE_STATE, WRITTEN)
            assert [result.error_code for result in await writing] == [0]
            await client.close()

    asyncio.run(work())


def test_an_answer_that_cannot_be_read_leaves_the_writes_of_the_other_owner_durable() -> None:
    async def work() -> None:
        async with CoordinatorWire().listening() as one, CoordinatorWire().listening() as other:
            wires = (one, other)
            shards = [ShardOwner(shard=n, node_id=f"{n}", url=wires[n].url, owner_epoch=1) for n in range(SHARDS)]
            one.shards = other.shards = ShardsResponse(shards=shards, count=SHARDS)
            client = ShareStateClient(one.url, deadline_s=20)
            await client.learn()
            of_shard = {shard_of(share_key(SharePartitionKey("g", "id-1", n)), SHARDS): n for n in range(20)}
            states = [SharePartitionState("g", "id-1", PartitionState(partition=of_shard[n])) for n in range(SHARDS)]
            task = asyncio.create_task(client.write(states))
            done = PartitionStateResult(partition=of_shard[0], error_code=0, error_message=None)
            answer = ShareStateResponse(results=[SharePartitionResult("g", "id-1", done)])
            await one.answer(apis.WRITE_STATE, answer)
            await other.answer(apis.WRITE_STATE, msgspec.Raw(b'{"results":[['))
            unknown = KAFKA_CODES[CoordinatorNotAvailable.error]
            assert [result.error_code for result in await task] == [0, unknown]
            await client.close()

    asyncio.run(work())

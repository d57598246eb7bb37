"""Large states are read in pages, between services: the whole state, of one moment, or an error."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from sharequeue.ownership.share_state_client import MOST_BEGUN, ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.apis import Api
from sharequeue.protocol.errors import CoordinatorNotAvailable
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.types import Reason, SharePartitionKey, StateAnnotation, StateBatch
from sharequeue.stack.stack import Stack

TOKEN = "a token of the cluster that only its services know"
COUNT = 12_000


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {f"SHAREQUEUE_{service}_CLUSTER_TOKEN": TOKEN for service in ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")}


class Client(ShareStateClient):
    """A client that does something after each of the first answers to a read."""

    interrupts = 0
    pages = 0
    widest = 0

    async def state(
        self,
        api: Api,
        group_id: str,
        wanted: Mapping[str, Iterable[PartitionState]],
        *,
        deadline_s: float | None = None,
    ) -> dict[SharePartitionKey, PartitionStateResult]:
        found = await super().state(api, group_id, wanted, deadline_s=deadline_s)
        if api is apis.READ_STATE:
            self.pages += 1
            sizes = [len(result.state_batches or ()) for result in found.values()]
            self.widest = max(self.widest, sum(sizes))
            if self.interrupts:
                self.interrupts -= 1
                for key in found:
                    await write(self, key, 10 * COUNT + 2 * self.pages, 1)
        return found


async def write(client: ShareStateClient, key: SharePartitionKey, first: int, count: int) -> None:
    offsets = range(first, first + 2 * count, 2)
    request = PartitionState(
        partition=key.partition,
        state_epoch=1,
        leader_epoch=9,
        start_offset=0,
        delivery_complete_count=0,
        state_batches=[StateBatch(offset, offset, 0, 1) for offset in offsets],
        annotations=[StateAnnotation(o, o, 1, 10**12 + 100 * o, Reason(f"reason {o % 50}")) for o in offsets],
    )
    (result,) = (await client.state(apis.WRITE_STATE, key.group_id, {key.topic_id: [request]})).values()
    assert result.error_code == 0, result.error_message


@pytest.fixture
def keys(client: Any, name: str) -> list[SharePartitionKey]:
    created = client.post("/v1/topics", json={"name": name, "partitions": 3})
    assert created.status_code == 201, created.text
    return [SharePartitionKey(f"g:{name}", created.json()["topic_id"], partition) for partition in range(3)]


async def filled(client: ShareStateClient, keys: list[SharePartitionKey]) -> None:
    for key in keys:
        request = PartitionState(partition=key.partition, state_epoch=1, start_offset=0)
        await client.state(apis.INITIALIZE_STATE, key.group_id, {key.topic_id: [request]})
    for first in range(0, 2 * COUNT, 8000):
        await write(client, keys[0], first, 4000)
    await write(client, keys[1], 0, 1)


def reader(stack: Stack) -> Client:
    return Client(stack.service("share coordinator").url, cluster_token=TOKEN)


def test_pages_make_the_whole_state(stack: Stack, keys: list[SharePartitionKey]) -> None:
    async def run() -> None:
        client = reader(stack)
        try:
            await filled(client, keys)
            states = await client.read(keys[0].group_id, keys, 10)
            assert client.pages > 3
            assert client.widest < 8000
            offsets = range(0, 2 * COUNT, 2)
            assert states[keys[0]].state_batches == [StateBatch(offset, offset, 0, 1) for offset in offsets]
            annotations = states[keys[0]].annotations or []
            assert [note.available_at_ms for note in annotations] == [10**12 + 100 * offset for offset in offsets]
            assert states[keys[1]].state_batches == [StateBatch(0, 0, 0, 1)]
            assert states[keys[2]].state_batches == []
            whole = PartitionState(partition=0, leader_epoch=10)
            (unpaged,) = (await client.state(apis.READ_STATE, keys[0].group_id, {keys[0].topic_id: [whole]})).values()
            assert unpaged.state_batches == states[keys[0]].state_batches
            assert unpaged.next_offset is None, "a caller that knows no pages gets everything"
            fenced = await client.read(keys[0].group_id, keys[:1], 9)
            assert fenced[keys[0]].error_code == 74
        finally:
            await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("interrupts", [1, 3, 10**9])
def test_a_state_written_while_it_is_read_is_read_again_or_refused(
    stack: Stack, keys: list[SharePartitionKey], interrupts: int
) -> None:
    async def run() -> None:
        client = reader(stack)
        try:
            await filled(client, keys)
            client.interrupts = interrupts
            states = await client.read(keys[0].group_id, keys[:1], 9)
            client.interrupts = 0
            if interrupts > MOST_BEGUN:
                assert states[keys[0]].error_code == CoordinatorNotAvailable.error.kafka_code
                assert "changes while it is read" in (states[keys[0]].error_message or "")
            else:
                batches = states[keys[0]].state_batches or []
                assert len(batches) == COUNT + interrupts
                assert batches == sorted(set(batches))
        finally:
            await client.close()

    asyncio.run(run())

"""Large states are read in pages, between services, and restored when all are there: the whole state, of one moment,
or an error."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from sharequeue_gateway.leader.loading.paged_state import MOST_BEGUN, restored_from_pages
from sharequeue_gateway.share_partition.machine import SharePartition

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import CoordinatorLoadInProgress
from sharequeue.protocol.messages.share_state import PartitionState, PartitionStateResult
from sharequeue.protocol.types import Reason, SharePartitionKey
from sharequeue.slices import Slices
from sharequeue.stack.stack import Stack
from tests.core.states import StateAnnotation, written

TOKEN = "a token of the cluster that only its services know"
COUNT = 16_000


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {f"SHAREQUEUE_{service}_CLUSTER_TOKEN": TOKEN for service in ("GATEWAY", "COORDINATOR", "SHARE_COORDINATOR")}


class Client(ShareStateClient):
    """A client that does something after each of the first answers to a read."""

    interrupts = 0
    pages = 0
    widest = 0

    async def read(
        self, group_id: str, wanted: Iterable[SharePartitionKey], leader_epoch: int, from_offset: int = 0
    ) -> dict[SharePartitionKey, PartitionStateResult]:
        found = await super().read(group_id, wanted, leader_epoch, from_offset)
        self.pages += 1
        self.widest = max(self.widest, sum(len(result.batches) for result in found.values()))
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
        state=written([], [StateAnnotation(o, o, 1, 10**12 + 100 * o, Reason(f"reason {o % 50}")) for o in offsets]),
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


async def restored(client: ShareStateClient, key: SharePartitionKey, leader_epoch: int) -> SharePartition:
    page = (await client.read(key.group_id, [key], leader_epoch))[key]
    assert page.error_code == 0, page.error_message
    machine, _ = await restored_from_pages(
        client,
        key,
        page,
        ShareGroupConfig(dead_letter_topic_name=""),
        start_offset=page.start_offset or 0,
        leader_epoch=leader_epoch,
        locks=[],
        now_ms=0,
        slices=Slices(),
    )
    return machine


@pytest.mark.soak
def test_pages_make_the_whole_state(stack: Stack, keys: list[SharePartitionKey]) -> None:
    async def run() -> None:
        client = reader(stack)
        try:
            await filled(client, keys)
            machine = await restored(client, keys[0], 10)
            assert client.pages > 3
            assert client.widest < 8000
            runs = list(machine.runs)
            offsets = range(0, 2 * COUNT, 2)
            assert [(run.first, run.last, run.delivery_count) for run in runs] == [
                (offset, offset, 1) for offset in offsets
            ]
            assert [run.available_at_ms for run in runs] == [10**12 + 100 * offset for offset in offsets]
            assert [str(run.reason.reason) for run in runs if run.reason] == [
                f"reason {offset % 50}" for offset in offsets
            ]
            assert [run.first for run in (await restored(client, keys[1], 10)).runs] == [0]
            assert not (await restored(client, keys[2], 10)).runs
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
            if interrupts > MOST_BEGUN:
                with pytest.raises(CoordinatorLoadInProgress, match="changes while it is read"):
                    await restored(client, keys[0], 9)
            else:
                offsets = [run.first for run in (await restored(client, keys[0], 9)).runs]
                assert len(offsets) == COUNT + interrupts
                assert offsets == sorted(set(offsets))
        finally:
            await client.close()

    asyncio.run(run())


def test_a_state_that_is_reset_while_it_is_read_is_refused(stack: Stack, keys: list[SharePartitionKey]) -> None:
    """The locks that were read belong to the earlier state."""

    async def run() -> None:
        client = reader(stack)
        try:
            await filled(client, keys)
            page = (await client.read(keys[0].group_id, keys[:1], 9))[keys[0]]
            reset = PartitionState(partition=0, state_epoch=2, start_offset=0)
            await client.state(apis.INITIALIZE_STATE, keys[0].group_id, {keys[0].topic_id: [reset]})
            config = ShareGroupConfig(dead_letter_topic_name="")
            with pytest.raises(CoordinatorLoadInProgress):
                await restored_from_pages(
                    client, keys[0], page, config, start_offset=0, leader_epoch=9, locks=[], now_ms=0, slices=Slices()
                )
        finally:
            await client.close()

    asyncio.run(run())

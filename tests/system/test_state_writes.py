"""The persister against a real share coordinator: a former leader writes nothing,
and an unknown outcome stays unknown."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.persister import Persister
from sharequeue_gateway.share_partition.machine import SharePartition
from sharequeue_gateway.share_partition.runs import StateWrite

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.configs import ShareGroupConfig
from sharequeue.protocol.errors import KAFKA_CODES
from sharequeue.protocol.state import StateBatch, StateBatches
from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import Stack, temporary_stack
from tests.core.states import Stored
from tests.core.write_events import Unheard
from tests.http.calls import wait_until, when_loaded


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state-writes")


@pytest.fixture(scope="module")
def own_stack(data_dir: Path) -> Iterator[Stack]:
    """A stack with stores of its own, which the last test breaks."""
    with temporary_stack(data_dir) as stack:
        yield stack


@pytest.fixture
def key(own_stack: Stack, name: str) -> SharePartitionKey:
    """A share-partition that is initialised."""
    with httpx.Client(base_url=own_stack.url, timeout=40) as http:
        topic = http.post("/v1/topics", json={"name": name}).json()
        fetch = {"topics": [name], "max_wait_ms": 0}
        assert when_loaded(lambda: http.post(f"/v1/share-groups/{name}/fetch", json=fetch)).status_code == 200
    return SharePartitionKey(name, topic["topic_id"], 0)


@asynccontextmanager
async def persisting(
    stack: Stack, data_dir: Path, deadline_ms: int = 60_000
) -> AsyncIterator[tuple[ShareStateClient, Persister]]:
    token = (data_dir / "cluster.token").read_text().strip()
    client = ShareStateClient(stack.service("share coordinator").url, cluster_token=token)
    persister = Persister(client, deadline_ms=deadline_ms)
    loop = asyncio.create_task(persister.run(Unheard()))
    try:
        yield client, persister
    finally:
        loop.cancel()
        await asyncio.wait([loop])
        await client.close()


async def read(client: ShareStateClient, key: SharePartitionKey, leader_epoch: int) -> Stored:
    """The persisted state; the read fences lower leader epochs from then on."""
    found = Stored()
    offset: int | None = 0
    while offset is not None:
        result = (await client.read(key.group_id, [key], leader_epoch, offset))[key]
        found = found.with_page(result)
        offset = result.next_offset
    return found


def led(key: SharePartitionKey, leader_epoch: int) -> LedSharePartition:
    machine = SharePartition(ShareGroupConfig(), 0, state_epoch=1_000, leader_epoch=leader_epoch)
    return LedSharePartition(key, machine, "orders", now_ms=0)


def accepting(first_offset: int, last_offset: int) -> StateWrite:
    write = StateWrite(0, 0)
    write.delivery_complete_count = last_offset - first_offset + 1
    write.state = StateBatches([StateBatch(first_offset, last_offset, 2, 1)])
    return write


@pytest.mark.parametrize("late_first", [True, False])
def test_a_late_write_of_an_earlier_leader_keeps_its_epoch(
    own_stack: Stack, data_dir: Path, key: SharePartitionKey, late_first: bool
) -> None:
    """Both are sent in one request, as when a retry meets the first write after the share-partition was loaded
    again."""

    async def run() -> None:
        async with persisting(own_stack, data_dir) as (client, persister):
            await read(client, key, 1_001)
            writes = [(led(key, 1_000), accepting(5, 9)), (led(key, 1_001), accepting(20, 24))]
            outcomes = [persister.submit(*write).outcome for write in (writes if late_first else reversed(writes))]
            late, current = await asyncio.gather(*(outcomes if late_first else reversed(outcomes)))
            assert late is not None
            assert KAFKA_CODES[late.error] == 6
            assert current is None
            state = await read(client, key, 1_001)
            assert state.state_batches() == [StateBatch(20, 24, 2, 1)]

    asyncio.run(run())


def _requests(url: str) -> float:
    """How many requests with state writes the share coordinator has answered."""
    counts = f'sharequeue_http_request_seconds_count{{operation="{apis.WRITE_STATE.operation_id}"'
    lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(counts))


# Last, because it breaks the stack


def test_after_an_attempt_with_an_unknown_outcome_no_failure_is_definite(
    own_stack: Stack, data_dir: Path, key: SharePartitionKey
) -> None:
    """The first try is answered 15, which may hide a commit; the next one cannot connect."""
    share_coordinator = own_stack.service("share coordinator")

    async def run() -> None:
        async with persisting(own_stack, data_dir, deadline_ms=3_000) as (client, persister):
            await read(client, key, 1_001)
            before = _requests(share_coordinator.url)
            assert own_stack.postgres is not None
            own_stack.postgres.kill()
            outcome = persister.submit(led(key, 1_001), accepting(5, 9)).outcome
            await asyncio.to_thread(wait_until, lambda: _requests(share_coordinator.url) > before)
            await asyncio.to_thread(share_coordinator.kill)
            error = await outcome
            assert error is not None
            assert not error.definite

    asyncio.run(run())

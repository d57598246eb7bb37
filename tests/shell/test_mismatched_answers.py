"""A share coordinator that answers for share-partitions other than the requested ones: the answer is rejected."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sharequeue_gateway.leader.led_share_partition import LedSharePartition
from sharequeue_gateway.leader.persister import Persister

from sharequeue.ownership.share_state_client import ShareStateClient
from sharequeue.protocol import apis
from sharequeue.protocol.messages.share_state import (
    PartitionState,
    PartitionStateResult,
    SharePartitionResult,
    ShareStateResponse,
)
from sharequeue.protocol.types import SharePartitionKey
from sharequeue_http.forms.api import Api
from sharequeue_http.forms.errors import ApiError, RequestTimedOut
from tests.core.share_partition_driver import fetched
from tests.core.write_events import Unheard
from tests.shell.coordinator_wire import CoordinatorWire

WANTED = {"t1": (0, 1), "t2": (0,)}
RIGHT = [("t1", [0, 1]), ("t2", [0])]
WRONG = {
    "another topic": [("t1", [0, 1]), ("t3", [0])],
    "topics in another order": [("t2", [0]), ("t1", [0, 1])],
    "another partition": [("t1", [0, 2]), ("t2", [0])],
    "partitions in another order": [("t1", [1, 0]), ("t2", [0])],
    "a partition less": [("t1", [0]), ("t2", [0])],
    "a topic more": [("t1", [0, 1]), ("t2", [0]), ("t2", [1])],
    "nothing": [],
}


def run(work: Callable[[CoordinatorWire, ShareStateClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with CoordinatorWire().listening() as coordinator:
            client = ShareStateClient(coordinator.url)
            try:
                await work(coordinator, client)
            finally:
                await client.close()

    asyncio.run(main())


def answer(answered: list[tuple[str, list[int]]], group_id: str = "g") -> ShareStateResponse:
    return ShareStateResponse(
        results=[
            SharePartitionResult(
                group_id, topic_id, PartitionStateResult(partition=n, error_code=0, error_message=None)
            )
            for topic_id, partitions in answered
            for n in partitions
        ]
    )


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("api", [apis.READ_STATE, apis.DELETE_STATE], ids=lambda api: api.operation_id)
def test_an_answer_about_other_share_partitions_is_an_error(api: Api, wrong: list[tuple[str, list[int]]]) -> None:
    async def work(coordinator: CoordinatorWire, client: ShareStateClient) -> None:
        states = {topic_id: [PartitionState(partition=n) for n in wanted] for topic_id, wanted in WANTED.items()}
        calling = asyncio.create_task(client.state(api, "g", states))
        await coordinator.answer(api, answer(wrong))
        with pytest.raises(ApiError, match="other share-partitions") as refused:
            await calling
        assert not refused.value.definite
        again = asyncio.create_task(client.state(api, "g", states))
        await coordinator.answer(api, answer(RIGHT))
        assert [key.topic_id for key in await again] == ["t1", "t1", "t2"]

    run(work)


@pytest.mark.parametrize("known", [False, True], ids=["owners not known", "one owner"])
@pytest.mark.parametrize(
    ("group_id", "wrong"),
    [("h", [("t1", [0])]), ("g", [("t2", [0])]), ("g", [("t1", [1])]), ("g", [("t1", [0, 0])]), ("g", [])],
    ids=["group", "topic", "partition", "twice", "nothing"],
)
def test_a_write_answered_for_another_share_partition_has_an_unknown_outcome(
    group_id: str, wrong: list[tuple[str, list[int]]], known: bool
) -> None:
    """The share-partition is then loaded again, which shows whether the write happened."""

    async def work(coordinator: CoordinatorWire, client: ShareStateClient) -> None:
        if known:
            await client.learn()
        d = fetched("[0-9]", hold_writes=True)
        d.ack("0-9 Acc")
        persister = Persister(client, deadline_ms=10_000)
        running = asyncio.create_task(persister.run(Unheard()))
        led = LedSharePartition(SharePartitionKey("g", "t1", 0), d.machine, "t", d.now_ms)
        outcome = persister.submit(led, d.writes[0]).outcome
        await coordinator.answer(apis.WRITE_STATE, answer(wrong, group_id))
        error = await asyncio.wait_for(outcome, 60)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert isinstance(error, RequestTimedOut)
        assert not error.definite

    run(work)

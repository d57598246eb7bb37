"""A consumer follows the gateway that leads most of its partitions."""

import asyncio
from collections.abc import Sequence

import pytest

from sharequeue.client.following import FollowingClient
from sharequeue.protocol.messages.records import PartitionLeader
from sharequeue_http.calling.login import Login

HOME, A, B = "http://home:1", "http://a:1", "http://b:1"


def answer(led: dict[int, str | None]) -> tuple[list[tuple[str, int]], list[PartitionLeader]]:
    """The partitions of an answer, and the leaders that it names; None: the gateway that was asked leads it."""
    leaders = [
        PartitionLeader(topic="t", partition=partition, node_id=url, url=url)
        for partition, url in led.items()
        if url is not None
    ]
    return [("t", partition) for partition in led], leaders


@pytest.mark.parametrize(
    ("answers", "follows"),
    [
        ([{0: None}], HOME),
        ([{0: A}], A),
        ([{0: A}, {0: None}], A),
        ([{0: A}, {0: HOME}], HOME),
        ([{0: A}, {0: B}], B),
        ([{0: None, 1: A}], HOME),
        ([{0: None, 1: A, 2: A}], A),
        ([{0: None}, {1: A}, {2: A}], A),
        ([{0: A}, {1: B}, {2: HOME}, {1: B}], A),
        ([{}], HOME),
    ],
)
def test_a_client_follows_the_leader_of_most_partitions(answers: Sequence[dict[int, str | None]], follows: str) -> None:
    async def run() -> str:
        client = FollowingClient(HOME, login=Login())
        for led in answers:
            client.learn(*answer(led))
        url = client.base_url
        await client.close()
        return url

    assert asyncio.run(run()) == follows


def test_a_client_that_fetches_other_topics_forgets_the_old_leaders() -> None:
    async def run() -> None:
        client = FollowingClient(HOME, login=Login())
        client.learn(*answer({0: A, 1: A}))
        client.forget()
        client.learn(*answer({2: B}))
        assert client.base_url == B
        await client.close()

    asyncio.run(run())

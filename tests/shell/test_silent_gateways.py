"""A gateway asks others that do not answer, and ends its calls to those that have left."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from sharequeue_gateway.cluster.cluster import GIVE_UP_S, Cluster
from sharequeue_gateway.cluster.generation import Generation, Node
from sharequeue_gateway.routing.gateway_client import GatewayClient

from sharequeue.protocol import apis
from sharequeue.protocol.errors import NotLeaderOrFollower
from sharequeue.protocol.messages.cluster import GatewayGeneration, RenewGatewayResponse
from sharequeue.protocol.types import SharePartitionKey
from tests.shell.turned_loop import TurnedLoop, run


def test_a_gateway_that_does_not_answer_has_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each `/readyz` asks it while a dependency is missing, and needs no key."""
    caplog.set_level(logging.INFO)
    coordinator: Any = None

    async def ask() -> None:
        cluster = Cluster(coordinator, "a", "http://127.0.0.1:2", cluster_token="a-token-of-this-test")
        for _ in range(3):
            assert await cluster.asked(Node("b", "http://127.0.0.1:1"), apis.READYZ, None, 1.0) is None

    asyncio.run(ask())
    assert [record.message for record in caplog.records] == ["another gateway does not answer"]


class Unaware:
    """A client of a gateway that does not know the newest generation."""

    asked = 0

    async def call(self, *_: Any, **__: Any) -> None:
        self.asked += 1
        raise NotLeaderOrFollower("b does not lead this share-partition")


def test_a_next_leader_that_does_not_know_of_it_yet_has_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """It has answered, and is asked again, by a gateway that stops while Redis is away."""
    caplog.set_level(logging.INFO)
    led: Any = SimpleNamespace(key=SharePartitionKey("g", "id-1", 0), topic_name="orders")
    other: Any = Unaware()

    async def stop() -> None:
        coordinator: Any = None
        cluster = Cluster(coordinator, "a", "http://127.0.0.1:2", cluster_token="a-token-of-this-test")
        cluster.follow(Generation(1, (Node("b", "http://127.0.0.1:1"),)))
        cluster._clients["http://127.0.0.1:1"] = other
        await GatewayClient(cluster).have_loaded([led])

    asyncio.run(stop())
    assert (other.asked, caplog.records) == (1, [])


class Stand:
    """In the place of the group coordinator, and of what hears of a new generation."""

    gateways: list[Node]
    number = 0

    async def call(self, *_: Any, **__: Any) -> RenewGatewayResponse:
        generation = GatewayGeneration(number=self.number, previous=self.number - 1, gateways=self.gateways)
        return RenewGatewayResponse(lease_ms=3000, generation=generation)

    async def generation_changed(self, *, missed: bool) -> None:
        assert not missed


def test_each_gateway_that_leaves_has_its_own_time_to_answer() -> None:
    """Two leave one after the other: the calls to the second one do not end with those to the first."""

    async def leave(loop: TurnedLoop) -> None:
        stand: Any = Stand()
        cluster = Cluster(stand, "a", "http://127.0.0.1:1", cluster_token="a-token-of-this-test")
        first, second = Node("b", "http://127.0.0.1:2"), Node("c", "http://127.0.0.1:3")
        running = asyncio.create_task(cluster.run(stand))
        clients = cluster.client(first), cluster.client(second)

        async def known(*others: Node) -> None:
            stand.gateways, stand.number = [cluster.me, *others], stand.number + 1
            cluster.look_again()
            await loop.turn(0)
            assert cluster.others() == [*others]

        def open_ones() -> list[bool]:
            return [cluster._clients.get(client.base_url) is client for client in clients]

        await known(first, second)
        await known(second)
        await loop.turn(GIVE_UP_S - 0.5)
        await known()
        await loop.turn(1)
        assert open_ones() == [False, True]
        await loop.turn(GIVE_UP_S)
        assert open_ones() == [False, False]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await cluster.close()

    run(leave)

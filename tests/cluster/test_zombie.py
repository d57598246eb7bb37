"""A gateway that is paused past its lease and wakes up can settle nothing: not even by what it decided from memory."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from sharequeue.stack import ServiceProcess, Stack
from tests.cluster.calls import acknowledge, acknowledgements_of, fetch, places, produce
from tests.cluster.gateways import GatewayCluster

PARTITIONS = 6
RECORDS = 4
LOCK_MS = 4000
ALONE_S = 1.0
"""How long the gateway that woke is without the group coordinator."""


class Zombie:
    """A gateway that leads some partitions of a topic, whose records one member holds, and is paused."""

    def __init__(self, stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> None:
        coordinator = stack.service("group coordinator").process
        assert coordinator is not None
        self._coordinator = coordinator.pid
        topic_id = cluster.make_spread_topic(clients[0], name, PARTITIONS)
        leaders = [cluster.leader_of(name, topic_id, partition) for partition in range(PARTITIONS)]
        self.gateway: ServiceProcess = next(leader for leader in leaders if leader is not cluster.gateways[0])
        self.client = clients[cluster.gateways.index(self.gateway)]
        self.partitions = [partition for partition, leader in enumerate(leaders) if leader is self.gateway]
        self.wanted = [{"topic": name, "partitions": self.partitions}]
        self._cluster = cluster
        self._clients = clients
        self._name = name

    def hold(self) -> dict:
        """Every record the gateway leads, held by the member m."""
        for partition in self.partitions:
            produce(self._clients[0], self._name, partition, RECORDS)
        held = fetch(self._clients[0], self._name, topic_partitions=self.wanted, member_id="m", max_wait_ms=5000)
        while len(places(held)) < RECORDS * len(self.partitions):
            more = fetch(self._clients[0], self._name, topic_partitions=self.wanted, member_id="m", max_wait_ms=5000)
            held["batches"] += more["batches"]
        return held

    @contextmanager
    def paused(self) -> Iterator[None]:
        """As long as the block takes, which is to wait `until_replaced`; afterwards it knows all gateways.

        It wakes up for a moment without anybody to tell it that it was replaced.
        """
        assert self.gateway.process is not None
        os.kill(self.gateway.process.pid, signal.SIGSTOP)
        try:
            yield
            os.kill(self._coordinator, signal.SIGSTOP)
            os.kill(self.gateway.process.pid, signal.SIGCONT)
            time.sleep(ALONE_S)
        finally:
            os.kill(self.gateway.process.pid, signal.SIGCONT)
            os.kill(self._coordinator, signal.SIGCONT)
        self._cluster.wait_until_known(self._cluster.gateways)

    def until_replaced(self) -> None:
        """Wait until the others lead in its place."""
        self._cluster.wait_until_known([gateway for gateway in self._cluster.gateways if gateway is not self.gateway])

    def loads_refused(self) -> int:
        """How often it tried to load share-partitions of the group that others lead, as its log says."""
        lines = map(json.loads, self.gateway._log_file.read_text().splitlines())
        refused = [line for line in lines if line["message"] == "cannot load share-partition"]
        return sum(line["group_id"] == self._name for line in refused)

    def stands(self) -> dict[int, tuple[int, int]]:
        """(start offset, lag) of each of the partitions, asked of a gateway that was never paused."""
        answer = self._clients[0].get(f"/v1/share-groups/{self._name}/offsets").json()
        return {
            entry["partition"]: (entry["start_offset"], entry["lag"])
            for topic in answer["topics"]
            for entry in topic["partitions"]
            if entry["partition"] in self.partitions
        }


@pytest.fixture
def zombie(
    request: pytest.FixtureRequest, stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> Zombie:
    """The parameter is the duration of locks."""
    settings = {"share.record.lock.duration.ms": getattr(request, "param", LOCK_MS), "share.delivery.count.limit": 1}
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json=settings).status_code == 200
    return Zombie(stack, cluster, clients, name)


def dead_letters(client: httpx.Client, group: str) -> list[dict]:
    response = client.get(f"/v1/topics/dlq.{group}/partitions/0/records")
    return [] if response.status_code == 404 else response.json()["records"]


def states(client: httpx.Client, group: str) -> set[tuple[str, str | None, int]]:
    """(state, member, delivery count) of all that is in flight."""
    in_flight = client.get(f"/v1/share-groups/{group}/in-flight").json()["partitions"]
    return {
        (batch["delivery_state"], batch.get("member_id"), batch["delivery_count"])
        for partition in in_flight
        for batch in partition["batches"]
    }


def test_locks_that_end_in_its_memory_move_nothing(zombie: Zombie, clients: list[httpx.Client], name: str) -> None:
    """It believes that the only delivery of each record is over: it would dead-letter them and move the start offset.

    The holder has renewed its locks where they are led now.
    """
    held = zombie.hold()
    known_to_zombie_ms = max(batch["lock_expires_at_ms"] for batch in held["batches"])
    before = zombie.stands()
    with zombie.paused():
        zombie.until_replaced()
        acknowledge(clients[0], name, held, "renew")
        while time.time() * 1000 <= known_to_zombie_ms:
            time.sleep(0.05)
            if time.time() * 1000 > known_to_zombie_ms - LOCK_MS / 4:
                acknowledge(clients[0], name, held, "renew")
    acknowledge(clients[0], name, held, "renew")
    assert zombie.stands() == before
    assert states(clients[0], name) == {("ACQUIRED", "m", 1)}
    acknowledge(clients[0], name, held)
    assert {lag for _, lag in zombie.stands().values()} == {0}
    assert dead_letters(clients[0], name) == []


def test_what_it_settles_after_it_woke_is_refused_or_so_already(
    zombie: Zombie, clients: list[httpx.Client], name: str
) -> None:
    """A reject lies in the socket of the paused gateway; the holder accepts the same records elsewhere."""
    held = zombie.hold()
    body = {"member_id": "m", "acknowledgements": acknowledgements_of(held, "reject")}
    with ThreadPoolExecutor(1) as pool:
        with zombie.paused():
            zombie.until_replaced()
            path = f"/v1/share-groups/{name}/acknowledge"
            stale = pool.submit(zombie.client.post, path, json=body)
            time.sleep(0.2)  # it lies in the socket of the paused process
            acknowledge(clients[0], name, held, "accept")
            stood = zombie.stands()
        results = stale.result(30).json()["results"]
    assert {result["status"] for result in results} <= {"failed", "ignored"}
    assert zombie.stands() == stood
    assert {lag for _, lag in stood.values()} == {0}
    assert dead_letters(clients[0], name) == []


@pytest.mark.parametrize("zombie", [60_000], indirect=True)
def test_what_it_renews_after_it_woke_is_not_renewed(zombie: Zombie, clients: list[httpx.Client], name: str) -> None:
    """It remembers locks that live; the records are finished where they are led now.

    The renewal is there before anybody asks it to let go. See also the renewal in test_epochs.
    """
    held = zombie.hold()
    body = {"member_id": "m", "acknowledgements": acknowledgements_of(held, "renew")}
    assert zombie.client.get("/livez").status_code == 200, "the connection is there before it is paused"
    with ThreadPoolExecutor(1) as pool:
        with zombie.paused():
            stale = pool.submit(zombie.client.post, f"/v1/share-groups/{name}/acknowledge", json=body)
            zombie.until_replaced()
            acknowledge(clients[0], name, held, "accept")
        results = stale.result(30).json()["results"]
    assert {result["status"] for result in results} <= {"failed", "ignored"}


@pytest.mark.parametrize("zombie", [60_000], indirect=True)
def test_a_holder_is_heard_through_it(zombie: Zombie, clients: list[httpx.Client], name: str) -> None:
    """As far as it remembers nobody holds these records; who leads now knows better."""
    fetch(zombie.client, name, topic_partitions=zombie.wanted, member_id="m", max_wait_ms=0)
    with ThreadPoolExecutor(1) as pool:
        with zombie.paused():
            zombie.until_replaced()
            held = zombie.hold()
            body = {"member_id": "m", "acknowledgements": acknowledgements_of(held, "accept")}
            sent = pool.submit(zombie.client.post, f"/v1/share-groups/{name}/acknowledge", json=body)
            time.sleep(0.2)  # as above
        results = sent.result(30).json()["results"]
    assert {result["status"] for result in results} == {"applied"}
    assert {lag for _, lag in zombie.stands().values()} == {0}


@pytest.mark.parametrize("zombie", [1000], indirect=True)
def test_what_is_due_there_is_tried_once(zombie: Zombie) -> None:
    """Who leads now asked it to let go, and all it knows is that something of it is due: it does not try without end."""
    zombie.hold()
    with zombie.paused():
        zombie.until_replaced()
    assert zombie.loads_refused() <= len(zombie.partitions)

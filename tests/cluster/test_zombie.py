"""A gateway that was paused past its lease can settle nothing when it wakes, not even by decisions from its memory."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.cluster.calls import acknowledge, acknowledgements_of, dead_letters, fetch
from tests.cluster.gateways import GatewayCluster
from tests.cluster.zombie import Zombie

LOCK_MS = 10_000
LONG_LOCK_MS = 60_000
"""No test waits for the end of such a lock."""


@pytest.fixture
def zombie(
    request: pytest.FixtureRequest, stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> Zombie:
    """The parameter is the duration of locks."""
    lock_ms = getattr(request, "param", LONG_LOCK_MS)
    settings = {"share.record.lock.duration.ms": str(lock_ms), "share.delivery.count.limit": "1"}
    assert clients[0].patch(f"/v1/share-groups/{name}/config", json={"config": settings}).status_code == 200
    return Zombie(stack, cluster, clients, name)


def states(client: httpx.Client, group: str) -> set[tuple[str, str | None, int]]:
    """(state, member, delivery count) of all that is in flight."""
    in_flight = client.get(f"/v1/share-groups/{group}/in-flight").json()["partitions"]
    return {
        (batch["delivery_state"], batch.get("member_id"), batch["delivery_count"])
        for partition in in_flight
        for batch in partition["batches"]
    }


@pytest.mark.parametrize("zombie", [LOCK_MS], indirect=True)
def test_locks_that_end_in_a_zombies_memory_change_nothing(
    zombie: Zombie, clients: list[httpx.Client], name: str
) -> None:
    """The zombie believes that the only delivery of each record has ended:
    it would dead-letter them and move the start offset.

    The holder has renewed its locks at the new leader.
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


def test_a_zombies_late_acknowledgement_changes_nothing(zombie: Zombie, clients: list[httpx.Client], name: str) -> None:
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


def test_a_zombie_forwards_an_acknowledgement_to_the_new_leader(
    zombie: Zombie, clients: list[httpx.Client], name: str
) -> None:
    """In its memory nobody holds these records; the new leader knows the holder."""
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
def test_a_zombie_tries_its_due_locks_once(zombie: Zombie) -> None:
    """The new leader asked it to let go, and it still knows that locks are due:
    it does not try to end them again and again."""
    zombie.hold()
    with zombie.paused():
        zombie.until_replaced()
    assert zombie.loads_refused() <= len(zombie.partitions)

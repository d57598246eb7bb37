"""A gateway that is paused while it writes dead letters, and goes on when another one has written and archived them."""

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from sharequeue.stack.stack import Stack
from tests.cluster.calls import acknowledge, dead_letters, fetch, produce
from tests.cluster.conftest import NewCluster
from tests.cluster.gateways import GatewayCluster
from tests.cluster.zombie import RECORDS, Zombie
from tests.http.calls import wait_until
from tests.http.database import locked, sql


@pytest.fixture(scope="module")
def stack(new_cluster: NewCluster) -> Iterator[Stack]:
    """Gateways remember one batch alone: what they copy to dead letters they read from the database."""
    with new_cluster(SHAREQUEUE_GATEWAY_RECORD_CACHE_BYTES="1") as stack:
        yield stack


@pytest.fixture
def database(stack: Stack) -> str:
    url: str = stack.service("gateway").environment["SHAREQUEUE_GATEWAY_DATABASE_URL"]
    return url


def test_it_writes_none_of_them_again(
    stack: Stack, cluster: GatewayCluster, clients: list[httpx.Client], database: str, name: str
) -> None:
    """It has read the records that died and is about to append them; their keys are gone when it does."""
    zombie = Zombie(stack, cluster, clients, name)
    partition = zombie.partitions[0]
    wanted = [{"topic": name, "partitions": [partition]}]
    for _ in range(2):  # it remembers the second batch
        produce(clients[0], name, partition, RECORDS)
    acquired: list[dict] = []
    while not acquired or acquired[-1]["last_offset"] < 2 * RECORDS - 1:
        acquired += fetch(clients[0], name, topic_partitions=wanted, member_id="m", max_wait_ms=5000)["batches"]
    first = {"member_id": "m", "batches": [{**acquired[0], "last_offset": RECORDS - 1}]}

    with ExitStack() as reading:
        waits = reading.enter_context(locked(database, "log.record_batches"))
        acknowledge(clients[0], name, first, "reject")
        wait_until(waits)
        with zombie.paused():
            reading.close()  # what it read lies in its socket
            zombie.until_replaced()
            fetch(clients[0], name, topic_partitions=wanted, member_id="m", max_wait_ms=0)
            wait_until(lambda: zombie.stands()[partition] == (RECORDS, RECORDS), 30)
            wait_until(lambda: not sql(database, "SELECT FROM log.dead_letter_keys WHERE group_id = $1", name))
        wait_until(lambda: zombie.said("dead letters left to another gateway") == 1)
    died = [int(letter["headers"]["__dlq.errors.offset"]) for letter in dead_letters(clients[0], name)]
    assert sorted(died) == list(range(RECORDS))

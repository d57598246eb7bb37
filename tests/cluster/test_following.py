"""A consumer that follows leaders fetches from the leader of its partitions, and survives the loss of that gateway."""

import asyncio
import re
import signal
from typing import NamedTuple

import httpx
import pytest

from sharequeue.client import Record, ShareConsumer
from sharequeue.stack.stack import ServiceProcess
from tests.cluster.calls import make_topic, produce
from tests.cluster.gateways import GatewayCluster

LOCK_MS = 3_600_000
"""No record may wait for the end of a forgotten lock."""
SERVED = re.compile(
    r'^sharequeue_http_request_seconds_count\{operation="(?:fetchRecords|acknowledgeRecords)",status="200"\} (\S+)$',
    re.MULTILINE,
)


class Led(NamedTuple):
    """A topic of one partition, for the group of its name; `asked` does not lead it."""

    topic: str
    leader: ServiceProcess
    asked: ServiceProcess


@pytest.fixture
def led(cluster: GatewayCluster, clients: list[httpx.Client], name: str) -> Led:
    leader = cluster.leader_of(name, make_topic(clients[0], name, 1), 0)
    asked = next(gateway for gateway in cluster.gateways if gateway is not leader)
    with httpx.Client(base_url=asked.url, timeout=30) as client:
        config = {"config": {"share.record.lock.duration.ms": str(LOCK_MS)}}
        assert client.patch(f"/v1/share-groups/{name}/config", json=config).status_code == 200
        produce(client, name, 0, 100)
    return Led(name, leader, asked)


def consumer_of(led: Led, topics: tuple[str, ...] = (), *, follow_leaders: bool = True) -> ShareConsumer:
    return ShareConsumer(led.asked.url, led.topic, topics, max_records=10, follow_leaders=follow_leaders)


async def values(consumer: ShareConsumer, count: int) -> list[int]:
    """The records of as many polls as it takes to get `count`; they are accepted."""
    records: list[Record] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await consumer.poll()
    (await consumer.commit()).raise_failures()
    return [record.value for record in records]


def served(gateway: ServiceProcess) -> int:
    """Fetches and acknowledgements that clients made at a gateway."""
    return sum(int(float(number)) for number in SERVED.findall(httpx.get(f"{gateway.url}/metrics", timeout=10).text))


@pytest.mark.parametrize("follow_leaders", [True, False])
@pytest.mark.parametrize("as_member", [True, False])
def test_after_the_first_answer_a_consumer_fetches_from_the_leader(
    led: Led, follow_leaders: bool, as_member: bool
) -> None:
    async def run() -> tuple[int, int]:
        async with consumer_of(led, () if as_member else (led.topic,), follow_leaders=follow_leaders) as consumer:
            if as_member:
                consumer.subscribe([led.topic])
            assert await values(consumer, 10) == list(range(10))
            before = served(led.asked), served(led.leader)
            assert await values(consumer, 90) == list(range(10, 100))
            return served(led.asked) - before[0], served(led.leader) - before[1]

    at_asked, at_leader = asyncio.run(run())
    assert (at_asked == 0, at_leader == 0) == ((True, False) if follow_leaders else (False, True))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "left"])
def test_a_consumer_survives_the_loss_of_its_leader(led: Led, how: signal.Signals) -> None:
    async def run() -> None:
        async with consumer_of(led, (led.topic,)) as consumer:
            first = await values(consumer, 20)
            held = await consumer.poll()  # accepted through the leader of that time
            led.leader.process.send_signal(how)
            rest = await values(consumer, 100 - len(first) - len(held))
            assert sorted(first + [record.value for record in held] + rest) == list(range(100))
            assert all(record.delivery_count == 1 for record in held)

    asyncio.run(run())
    led.leader.process.wait(60)

"""Gateways whose machines' clocks are an hour apart: locks and delays end by PostgreSQL's clock, whoever leads."""

import time
from collections.abc import Iterator

import httpx
import pytest

from tests.cluster.calls import acknowledge, fetch, make_topic, produce
from tests.cluster.conftest import NewCluster
from tests.cluster.gateways import GatewayCluster
from tests.wrong_clocks import set_clocks

DELAY_MS = 6000
CLOCK_MS = 50
PARTITIONS = 6


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch, new_cluster: NewCluster) -> Iterator[GatewayCluster]:
    """Three gateways: an hour ahead, right, an hour behind."""
    set_clocks(monkeypatch, {"gateway-0": 1, "gateway-2": -1})
    with new_cluster() as stack:
        cluster = GatewayCluster(stack)
        cluster.start()
        yield cluster


@pytest.mark.soak
def test_a_delay_moves_between_wrong_clocks_and_ends_on_time(wrong: GatewayCluster, name: str) -> None:
    with httpx.Client(base_url=wrong.gateways[1].url, timeout=40) as right:
        topic_id = make_topic(right, name, PARTITIONS)
        for partition in range(PARTITIONS):
            produce(right, name, partition, 1)
        led = {wrong.leader_of(name, topic_id, partition).name for partition in range(PARTITIONS)}
        held: dict = {"member_id": "m", "batches": []}
        while len(held["batches"]) < PARTITIONS:
            held["batches"] += fetch(right, name, topics=[name], member_id="m", max_wait_ms=5000)["batches"]
        releases = [
            {field: batch[field] for field in ("topic", "partition", "first_offset", "last_offset", "delivery_count")}
            | {"type": "release", "delay_ms": DELAY_MS}
            for batch in held["batches"]
        ]
        released_s = time.monotonic()
        body = {"member_id": "m", "acknowledgements": releases}
        assert right.post(f"/v1/share-groups/{name}/acknowledge", json=body).json()["failed_count"] == 0
        for gateway in (wrong.gateways[0], wrong.gateways[2]):
            if gateway.name in led:
                gateway.kill()
        wrong.wait_until_known([gateway for gateway in wrong.gateways if gateway.alive()])
        seen = 0
        while seen < PARTITIONS:
            answer = fetch(right, name, topics=[name], member_id="n", max_wait_ms=30_000)
            waited_ms = (time.monotonic() - released_s) * 1000
            assert answer["batches"], "the delay did not end"
            assert waited_ms >= DELAY_MS - CLOCK_MS
            seen += len(answer["batches"])
            acknowledge(right, name, answer)

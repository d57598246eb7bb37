"""What was never begun is known to each leader: over a crash, with a lock and without one."""

import httpx

from tests.cluster.calls import acknowledge, fetch, make_topic, produce
from tests.cluster.gateways import GatewayCluster


def counts(answer: dict) -> list[tuple[int, int, int]]:
    return [(batch["first_offset"], batch["delivery_count"], batch["attempt"]) for batch in answer["batches"]]


def test_a_crash_forgets_nothing_that_was_forgiven(
    cluster: GatewayCluster, clients: list[httpx.Client], name: str
) -> None:
    topic_id = make_topic(clients[0], name, 1)
    produce(clients[0], name, 0, 2)
    for _ in range(2):
        held = fetch(clients[0], name, topics=[name], member_id="m", max_records=1, max_wait_ms=5000)
        release = {
            "topic": name,
            "partition": 0,
            "first_offset": 0,
            "last_offset": 0,
            "type": "release",
            "begun": False,
        }
        body = {"member_id": "m", "acknowledgements": [release]}
        assert clients[0].post(f"/v1/share-groups/{name}/acknowledge", json=body).json()["failed_count"] == 0
    held = fetch(clients[0], name, topics=[name], member_id="m", max_records=1, max_wait_ms=5000)
    assert counts(held) == [(0, 3, 1)]
    leader = cluster.leader_of(name, topic_id, 0)
    leader.kill()
    others = [gateway for gateway in cluster.gateways if gateway is not leader]
    cluster.wait_until_known(others)
    alive = clients[cluster.gateways.index(others[0])]
    listed = alive.get(f"/v1/share-groups/{name}/in-flight").json()["partitions"][0]["batches"]
    assert [(b["first_offset"], b["delivery_count"], b["attempt"]) for b in listed if b["first_offset"] == 0] == [
        (0, 3, 1)
    ]
    acknowledge(alive, name, held, "release")
    again = fetch(alive, name, topics=[name], member_id="n", max_wait_ms=5000)
    assert counts(again)[0] == (0, 4, 2)
    acknowledge(alive, name, again)

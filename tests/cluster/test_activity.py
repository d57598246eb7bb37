"""The counts of several gateways add up; any of them answers the sum."""

import time

import httpx

from tests.cluster.calls import acknowledge, fetch, make_topic, places, produce

PARTITIONS = 6
SECONDS = 60
"""Gateways write their counts every five seconds; a busy machine is late."""


def test_counts_of_all_gateways_add_up(clients: list[httpx.Client], name: str) -> None:
    make_topic(clients[0], name, PARTITIONS)
    for partition in range(PARTITIONS):
        produce(clients[partition % 3], name, partition, 20)
    taken = 0
    while taken < PARTITIONS * 20:
        answer = fetch(clients[taken % 3], name, topics=[name], max_wait_ms=1000, max_records=17)
        taken += len(places(answer))
        acknowledge(clients[0], name, answer)
    deadline = time.monotonic() + SECONDS
    while True:
        entries = clients[1].get("/v1/reports/activity", params={"topic": name}).json()["activity"]
        counts = {field: sum(entry[field] for entry in entries) for field in ("produced", "delivered", "accepted")}
        if counts == dict.fromkeys(counts, PARTITIONS * 20):
            break
        assert time.monotonic() < deadline, counts
        time.sleep(0.2)
    timed = sum(bucket["records"] for entry in entries for bucket in entry["times_to_accept"])
    assert timed == PARTITIONS * 20
    assert {entry["partition"] for entry in entries if "group_id" in entry} == set(range(PARTITIONS))

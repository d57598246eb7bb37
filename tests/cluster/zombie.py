"""A gateway that is paused past its lease and wakes up."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.calls import fetch, places, produce
from tests.cluster.gateways import GatewayCluster

PARTITIONS = 6
RECORDS = 4
ALONE_S = 1.0
"""How long the woken gateway has no group coordinator."""


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

        It wakes up for a moment in which nobody can tell it that it was replaced.
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
        """How often it tried to load share-partitions of the group that others lead."""
        return self.said("cannot load share-partition")

    def said(self, message: str) -> int:
        """How often its log has a message about the group."""
        lines = map(json.loads, self.gateway.log_file.read_text().splitlines())
        return sum(line["message"] == message and line["group_id"] == self._name for line in lines)

    def stands(self) -> dict[int, tuple[int, int]]:
        """(start offset, lag) of each of the partitions, asked of a gateway that was never paused."""
        answer = self._clients[0].get(f"/v1/share-groups/{self._name}/offsets").json()
        return {
            entry["partition"]: (entry["start_offset"], entry["lag"])
            for topic in answer["topics"]
            for entry in topic["partitions"]
            if entry["partition"] in self.partitions
        }

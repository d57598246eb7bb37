"""The gateways of a stack as the tests of the cluster see them."""

import re

import httpx
from sharequeue_gateway.cluster.generation import Generation, Node

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack.stack import ServiceProcess, Stack
from tests.cluster.calls import make_topic
from tests.http.calls import wait_until

WAITING = re.compile(r"^sharequeue_waiting_fetches (\S+)$", re.MULTILINE)


class GatewayCluster:
    """All gateways of a stack; their node ids are `gateway-0`, `gateway-1` and so on."""

    def __init__(self, stack: Stack) -> None:
        self.gateways = [service for service in stack.services if service.name.startswith("gateway")]

    def start(self) -> None:
        """Start the gateways that do not run, and wait until all know each other."""
        for gateway in self.gateways:
            if not gateway.running():
                gateway.start()
        self.wait_until_known(self.gateways)

    @property
    def nodes(self) -> dict[str, ServiceProcess]:
        """Gateways by node id."""
        return {f"gateway-{index}": gateway for index, gateway in enumerate(self.gateways)}

    def wait_until_known(self, gateways: list[ServiceProcess]) -> None:
        """Wait until each of these gateways knows exactly these."""
        wanted = {node_id for node_id, gateway in self.nodes.items() if gateway in gateways}
        wait_until(lambda: all(set(self.known_to(gateway)) == wanted for gateway in gateways))

    @staticmethod
    def known_to(gateway: ServiceProcess) -> list[str]:
        """Node ids of the gateways that a gateway knows; none while it does not answer."""
        try:
            answer = httpx.get(f"{gateway.url}/readyz", timeout=30, verify=False).json()
        except (httpx.HTTPError, ValueError):
            return []
        known: list[str] = answer.get("gateways", [])
        return known

    def wait_until_waiting(self, there: bool = True) -> None:
        """Wait until some fetch waits at any gateway that answers; with False, until none does."""
        wait_until(lambda: (self._waiting() > 0) is there)

    def wait_until_waiting_at(self, gateway: ServiceProcess) -> None:
        """Wait until some fetch waits at this gateway."""
        wait_until(lambda: self._waiting_at(gateway))

    def _waiting(self) -> int:
        return sum(self._waiting_at(gateway) for gateway in self.gateways if gateway.running())

    @staticmethod
    def _waiting_at(gateway: ServiceProcess) -> int:
        text = httpx.get(f"{gateway.url}/metrics", timeout=30, verify=False).text
        return sum(int(float(number)) for number in WAITING.findall(text))

    def leader_of(self, group: str, topic_id: str, partition: int) -> ServiceProcess:
        """The leader of a share-partition while all gateways live."""
        nodes = tuple(Node(node_id, gateway.url) for node_id, gateway in self.nodes.items())
        leader = Generation(1, nodes).leader_of(SharePartitionKey(group, topic_id, partition))
        return self.nodes[leader.node_id]

    def make_spread_topic(self, client: httpx.Client, name: str, partitions: int) -> str:
        """A topic of which at least two gateways lead something, in the group of its name. Returns: its id."""
        while True:
            topic_id = make_topic(client, name, partitions)
            if len({self.leader_of(name, topic_id, partition).name for partition in range(partitions)}) > 1:
                return topic_id
            assert client.delete(f"/v1/topics/{name}").status_code == 204

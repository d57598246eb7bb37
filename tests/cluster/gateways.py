"""More gateways beside the one of a stack, as processes."""

import socket
import time
from pathlib import Path

import httpx
from sharequeue_gateway.leadership import Generation, Node

from sharequeue.protocol.types import SharePartitionKey
from sharequeue.stack import ServiceProcess, Stack

READY_S = 20


class GatewayCluster:
    """The gateways of a stack, the first one being the stack's own."""

    def __init__(self, stack: Stack, log_dir: Path) -> None:
        self._first = stack.service("gateway")
        self._log_dir = log_dir
        self.gateways: list[ServiceProcess] = [self._first]

    def start(self, count: int) -> None:
        """Start gateways until there are `count`, and wait until all know each other."""
        for gateway in self.gateways:
            if not gateway.alive():
                gateway.start()
        while len(self.gateways) < count:
            index = len(self.gateways)
            port = _free_port()
            environment = {
                **self._first._environment,
                "SHAREQUEUE_GATEWAY_PORT": str(port),
                "SHAREQUEUE_GATEWAY_NODE_ID": f"gateway-{index}",
            }
            log_file = self._log_dir / f"gateway-{index}.log"
            gateway = ServiceProcess(f"gateway {index}", "sharequeue_gateway", port, environment, log_file)
            gateway.start()
            self.gateways.append(gateway)
        self.wait_until_known(self.gateways)

    def stop(self) -> None:
        for gateway in self.gateways[1:]:
            gateway.stop()
        if not self._first.alive():
            self._first.start()

    @property
    def nodes(self) -> dict[str, ServiceProcess]:
        """Gateways by node id."""
        return {f"gateway-{index}": gateway for index, gateway in enumerate(self.gateways)}

    def wait_until_known(self, gateways: list[ServiceProcess]) -> None:
        """Wait until each of these knows exactly these."""
        deadline = time.monotonic() + READY_S
        wanted = {node_id for node_id, gateway in self.nodes.items() if gateway in gateways}
        for gateway in gateways:
            while set(self.known_to(gateway)) != wanted:
                assert time.monotonic() < deadline, f"{gateway.name} knows {self.known_to(gateway)}, not {wanted}"
                time.sleep(0.05)

    @staticmethod
    def known_to(gateway: ServiceProcess) -> list[str]:
        """Node ids of the gateways that a gateway knows; none while it does not answer."""
        try:
            answer = httpx.get(f"{gateway.url}/readyz", timeout=5).json()
        except (httpx.HTTPError, ValueError):
            return []
        return answer.get("gateways", [])

    def leader_of(self, group: str, topic_id: str, partition: int) -> ServiceProcess:
        """Who leads a share-partition while all gateways live."""
        nodes = tuple(Node(node_id, gateway.url) for node_id, gateway in self.nodes.items())
        leader = Generation(1, nodes).leader_of(SharePartitionKey(group, topic_id, partition))
        return self.nodes[leader.node_id]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

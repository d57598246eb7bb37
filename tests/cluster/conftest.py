"""A stack with three gateways."""

from collections.abc import Iterator

import httpx
import pytest

from sharequeue.stack import Stack
from tests.cluster.gateways import GatewayCluster

LEASE_MS = 1500


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS": str(LEASE_MS)}


@pytest.fixture(scope="module")
def running(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayCluster]:
    """The stack's gateway and two more."""
    cluster = GatewayCluster(stack, tmp_path_factory.mktemp("gateways"))
    try:
        cluster.start(3)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(running: GatewayCluster) -> GatewayCluster:
    """Three gateways that know each other, whatever the test before did to them."""
    running.start(3)
    return running


@pytest.fixture
def clients(cluster: GatewayCluster) -> Iterator[list[httpx.Client]]:
    """An HTTP client of each gateway."""
    clients = [httpx.Client(base_url=gateway.url, timeout=40) for gateway in cluster.gateways]
    yield clients
    for client in clients:
        client.close()

"""A stack with three gateways."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from sharequeue.stack import Stack
from tests.cluster.gateways import GatewayCluster
from tests.conftest import NewDatabase

LEASE_MS = 1500


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS": str(LEASE_MS)}


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory,
    new_database: NewDatabase,
    new_redis: Callable[[], str],
    stack_settings: dict[str, str],
) -> Iterator[Stack]:
    data_dir = tmp_path_factory.mktemp("stack")
    stack = Stack(data_dir, gateways=3, postgres_url=new_database(), redis_url=new_redis(), settings=stack_settings)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def cluster(stack: Stack) -> GatewayCluster:
    """Three gateways that know each other, whatever the test before did to them."""
    cluster = GatewayCluster(stack)
    cluster.start()
    return cluster


@pytest.fixture
def clients(cluster: GatewayCluster) -> Iterator[list[httpx.Client]]:
    """An HTTP client of each gateway."""
    clients = [httpx.Client(base_url=gateway.url, timeout=40, verify=False) for gateway in cluster.gateways]
    yield clients
    for client in clients:
        client.close()

"""A stack with three gateways."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import httpx
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.cluster.gateways import GatewayCluster
from tests.cluster.settling import settling_stack
from tests.conftest import NewDatabase

LEASE = "SHAREQUEUE_COORDINATOR_GATEWAY_LEASE_MS"
LEASE_MS = 1500


NewCluster = Callable[..., AbstractContextManager[Stack]]


@pytest.fixture(scope="session")
def new_cluster(
    tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase, new_redis: Callable[[], str]
) -> NewCluster:
    """Starts a stack with three gateways for a while, with further settings as they are given."""

    def start(**settings: str) -> AbstractContextManager[Stack]:
        stores = {"postgres_url": new_database(), "redis_url": new_redis()}
        return temporary_stack(
            tmp_path_factory.mktemp("stack"), **stores, gateways=3, settings={LEASE: str(LEASE_MS), **settings}
        )

    return start


@pytest.fixture(scope="package")
def stack(new_cluster: NewCluster) -> Iterator[Stack]:
    """One stack for all modules here with default settings; tests use their own topics and groups."""
    with new_cluster() as stack:
        yield stack


@pytest.fixture(scope="module")
def log_url(new_database: NewDatabase) -> str:
    return new_database()


@pytest.fixture(scope="module")
def state_url(new_database: NewDatabase) -> str:
    return new_database()


@pytest.fixture(scope="module")
def stack_of_two_databases(
    tmp_path_factory: pytest.TempPathFactory, log_url: str, state_url: str, new_redis: Callable[[], str]
) -> Iterator[Stack]:
    """Three gateways, for a module alone; the states of groups lie in another database than the log."""
    with settling_stack(tmp_path_factory.mktemp("stack"), log_url, state_url, new_redis()) as stack:
        yield stack


@pytest.fixture
def cluster(stack: Stack) -> GatewayCluster:
    """Three gateways that know each other; those that an earlier test stopped are started again."""
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

"""One stack with default settings for all modules here that change nothing about it, and the gateway as tests call it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import Gateway


@pytest.fixture(scope="package")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared stack keeps its logs and its cluster token."""
    return tmp_path_factory.mktemp("shared-stack")


@pytest.fixture(scope="package")
def shared_database(new_database: Callable[[], str]) -> str:
    """The shared stack's database, to look behind its back."""
    return new_database()


@pytest.fixture(scope="package")
def shared_stack(data_dir: Path, shared_database: str, new_redis: Callable[[], str]) -> Iterator[Stack]:
    """The three services with default settings. Tests use topics and groups of their own and stop nothing."""
    with temporary_stack(data_dir, postgres_url=shared_database, redis_url=new_redis()) as stack:
        yield stack


@pytest.fixture(scope="package")
def gateway(shared_stack: Stack) -> Iterator[Gateway]:
    """The shared stack's gateway. Connections are dropped before the gateway, which keeps idle ones for 5 s, does so."""
    limits = httpx.Limits(keepalive_expiry=2.5)
    with httpx.Client(base_url=shared_stack.url, timeout=40, limits=limits) as http:
        yield Gateway(http)


@pytest.fixture
def own_gateway(client: httpx.Client) -> Gateway:
    """The gateway of the module's own stack, which `stack_settings` shapes."""
    return Gateway(client)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    """Runs calls that wait while the test goes on."""
    with ThreadPoolExecutor(4) as executor:
        yield executor

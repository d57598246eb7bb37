"""Clusters of three gateways and two coordinators of each kind, to be broken."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.chaos.run import SETTINGS
from tests.kafka_log.brokers import Brokers

CLUSTER: dict[str, Any] = {"gateways": 3, "coordinators": 2, "share_coordinators": 2, "settings": SETTINGS}


@pytest.fixture
def cluster(tmp_path: Path, database_url: str, new_redis: Callable[[], str]) -> Iterator[Stack]:
    with temporary_stack(tmp_path / "data", postgres_url=database_url, redis_url=new_redis(), **CLUSTER) as stack:
        yield stack


@pytest.fixture
def cluster_with_stores(tmp_path: Path) -> Iterator[Stack]:
    """The stores are its own: they may be broken too."""
    with temporary_stack(tmp_path / "data", **CLUSTER) as stack:
        yield stack


@pytest.fixture
def three_brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path / "brokers", 3)
    yield brokers
    brokers.close()


@pytest.fixture
def cluster_on_kafka(tmp_path: Path, three_brokers: Brokers) -> Iterator[Stack]:
    """Its records are in Kafka."""
    with temporary_stack(tmp_path / "data", kafka=three_brokers.address, **CLUSTER) as stack:
        yield stack


@pytest.fixture
def cluster_with_keys(tmp_path: Path, database_url: str, new_redis: Callable[[], str]) -> Iterator[Stack]:
    """Its callers need keys."""
    stores = {"postgres_url": database_url, "redis_url": new_redis()}
    with temporary_stack(tmp_path / "data", **stores, **CLUSTER, require_keys=True) as stack:
        yield stack

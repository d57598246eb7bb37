"""One broker for all tests of this folder, and one for those that need three."""

from collections.abc import Iterator

import pytest

from tests.kafka_log.brokers import NEWEST, VERSION, Brokers

collect_ignore = [] if VERSION == NEWEST else ["test_native_groups.py"]
"""Older brokers have no share groups."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """A broker that runs all the time: use topics of your own."""
    brokers = Brokers(tmp_path_factory.mktemp("kafka"))
    yield brokers
    brokers.close()


@pytest.fixture(scope="session")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers, for tests that kill or pause one and leave all three running."""
    brokers = Brokers(tmp_path_factory.mktemp("three"), 3)
    yield brokers
    brokers.close()

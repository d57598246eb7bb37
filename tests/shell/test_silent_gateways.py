"""A gateway asks others that do not answer."""

import asyncio
import logging
from typing import Any

import pytest
from sharequeue_gateway.cluster.cluster import Cluster
from sharequeue_gateway.cluster.generation import Node

from sharequeue.protocol import apis


def test_a_gateway_that_does_not_answer_has_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Each `/readyz` asks it while a dependency is missing, and needs no key."""
    caplog.set_level(logging.INFO)
    coordinator: Any = None

    async def ask() -> None:
        cluster = Cluster(coordinator, "a", "http://127.0.0.1:2", cluster_token="a-token-of-this-test")
        for _ in range(3):
            assert await cluster.asked(Node("b", "http://127.0.0.1:1"), apis.READYZ, None, 1.0) is None

    asyncio.run(ask())
    assert [record.message for record in caplog.records] == ["another gateway does not answer"]

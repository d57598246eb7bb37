"""A new share-partition has no locks: the first fetch does not ask a Redis that hangs for them."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from sharequeue.stack.stack import Stack, temporary_stack
from tests.http.calls import HANG_S, Gateway


@pytest.fixture
def stack(tmp_path: Path, new_database: Callable[[], str]) -> Iterator[Stack]:
    """It waits for its own Redis for longer than a test."""
    settings = {
        "SHAREQUEUE_GATEWAY_REDIS_TIMEOUT_MS": "100000",
        "SHAREQUEUE_GATEWAY_STATE_WRITE_DEADLINE_MS": "200000",
    }
    with temporary_stack(tmp_path / "data", postgres_url=new_database(), settings=settings) as stack:
        yield stack


def test_a_new_group_begins_while_redis_hangs(stack: Stack, name: str) -> None:
    assert stack.redis is not None
    with httpx.Client(base_url=stack.url, timeout=HANG_S, verify=False) as http:
        gateway = Gateway(http)
        gateway.create_topic(name, 2)
        os.kill(stack.redis.pid, signal.SIGSTOP)
        try:
            answer = gateway.fetch(name, name)  # it is repeated while a busy machine loads, for a minute at most
            assert answer["errors"] == []
        finally:
            os.kill(stack.redis.pid, signal.SIGCONT)
        gateway.produce(name, "first")
        assert len(gateway.acquire(name, name, max_wait_ms=10_000)) == 1

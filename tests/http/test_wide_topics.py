"""Fetches from topics of many partitions: a bounded number is loaded at once, and empty ones are not read again."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sharequeue_gateway.delivery.delayed_fetch import LOADED_AT_ONCE

from sharequeue.stack.stack import Stack
from tests.http.calls import HANG_S, LONG_MS, Gateway, ranges, wait_until, woken

PARTITIONS = 2 * LOADED_AT_ONCE + 200
LAST = PARTITIONS - 1


@pytest.fixture(scope="module")
def gateway(stack: Stack) -> Iterator[Gateway]:
    """A gateway of the module's own: its counts move with no group that another module left."""
    with httpx.Client(base_url=stack.url, timeout=40, verify=False) as http:
        yield Gateway(http)


@pytest.fixture(scope="module")
def wide(gateway: Gateway) -> str:
    """A topic with one record, in its last partition."""
    gateway.create_topic("wide", PARTITIONS)
    gateway.produce("wide", "here", partition=LAST)
    return "wide"


def led(gateway: Gateway) -> int:
    return int(gateway.metrics()["sharequeue_led_share_partitions"])


def looks(gateway: Gateway) -> int:
    """How often a fetch has looked into a share-partition."""
    return int(gateway.metrics()["sharequeue_fetch_lock_seconds_count"])


@pytest.fixture
def loaded(gateway: Gateway, wide: str, name: str) -> str:
    """A group that has all of the wide topic loaded, and has looked at it."""
    for _ in range(PARTITIONS // LOADED_AT_ONCE + 2):
        gateway.fetch(name, wide)
    return name


def test_a_fetch_without_wait_loads_some_partitions_and_the_next_fetch_more(
    gateway: Gateway, wide: str, name: str
) -> None:
    """The first fetch of 10,000 partitions was refused after 5 s and more, as they were still being loaded."""
    before = led(gateway)
    found = []
    for fetch in range(1, PARTITIONS // LOADED_AT_ONCE + 3):
        found += gateway.acquire(name, wide)
        assert led(gateway) - before <= fetch * LOADED_AT_ONCE
    assert found == [f"{LAST}:0-0×1"]
    assert led(gateway) - before == PARTITIONS


def test_a_waiting_fetch_loads_partitions_until_it_finds_records(gateway: Gateway, wide: str, name: str) -> None:
    answer = gateway.fetch(name, wide, max_wait_ms=LONG_MS)
    assert ranges(answer) == [f"{LAST}:0-0×1"]


def test_partitions_known_to_be_empty_are_not_read_again(gateway: Gateway, wide: str, loaded: str) -> None:
    before = looks(gateway)
    for _ in range(3):
        assert gateway.acquire(loaded, wide) == []
    assert looks(gateway) == before


def test_an_append_is_found_without_reading_other_partitions(
    gateway: Gateway, wide: str, loaded: str, background: ThreadPoolExecutor
) -> None:
    before = looks(gateway)
    with woken(gateway):
        waiting = background.submit(gateway.fetch, loaded, wide, max_wait_ms=LONG_MS)
        wait_until(lambda: gateway.metrics()["sharequeue_waiting_fetches"] == 1)
        gateway.produce(wide, "new", partition=LOADED_AT_ONCE)
        answer = waiting.result(HANG_S)
    assert [batch["partition"] for batch in answer["batches"]] == [LOADED_AT_ONCE]
    assert looks(gateway) - before <= 2


def test_records_released_in_an_empty_partition_are_found(gateway: Gateway, wide: str, loaded: str) -> None:
    """A release, the end of a lock or an append in a partition that was found empty is seen by the next fetch."""
    (again,) = gateway.produce(wide, "again", partition=0)
    assert gateway.acquire(loaded, wide) == [f"{again}-{again}×1"]
    assert gateway.acquire(loaded, wide) == []
    assert gateway.settle(loaded, wide, again, again, "release") == "applied"
    assert gateway.acquire(loaded, wide) == [f"{again}-{again}×2"]
    assert gateway.acquire(loaded, wide) == []
    assert gateway.settle(loaded, wide, again, again, "renew", lock_duration_ms=1000) == "applied"
    assert wait_until(lambda: gateway.acquire(loaded, wide)) == [f"{again}-{again}×3"]
    assert gateway.settle(loaded, wide, again, again, "accept") == "applied"
    assert gateway.acquire(loaded, wide) == []


def test_a_fetch_with_min_bytes_skips_empty_partitions(gateway: Gateway, wide: str, loaded: str) -> None:
    before = looks(gateway)
    for _ in range(2):
        assert gateway.fetch(loaded, wide, min_bytes=1000, max_wait_ms=50)["batches"] == []
    assert looks(gateway) == before

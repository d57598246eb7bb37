"""Batches of zeros: 1 MiB takes 4 KiB in the database. What the gateway reads at a time is bounded by what it takes in
memory, and by nothing that is stored."""

import httpx
import pytest

from bench.processes import peak_resident_bytes, reset_peak, resident_bytes
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, good, wait_until
from tests.http.database import sql

pytestmark = pytest.mark.soak  # bars of memory

MIB = 1 << 20
BATCHES, SIZE = 128, MIB - 64 * 1024
PAGE = 4 * MIB
"""The gateway reads so many bytes ahead."""
MOST = 12 * PAGE
"""Blocks, batches and the forms of an answer; half of the batches without the bound."""
TOGETHER = 60
"""One replacement takes 64 MiB of batches."""


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_RECORD_CACHE_BYTES": "1"}


@pytest.fixture(scope="module")
def topic(stack: Stack, database: str) -> str:
    name = "zeros"
    with httpx.Client(base_url=stack.url, timeout=60) as client:
        gateway = Gateway(client)
        gateway.create_topic(name, cleanup_policy="compact")
        for _ in range(BATCHES + 1):
            gateway.produce(name, "0" * SIZE, key="k")
        topic_id = gateway.describe_topic(name)["topic_id"]
    stored = "SELECT sum(octet_length(records)), sum(uncompressed_bytes) FROM log.record_batches WHERE topic_id = $1"
    ((stored_bytes, uncompressed_bytes),) = sql(database, stored, topic_id)
    assert stored_bytes < MIB < BATCHES * SIZE < uncompressed_bytes
    return name


class Growth:
    """How much the gateway has grown at its peak since this was made."""

    def __init__(self, stack: Stack) -> None:
        self._pid = stack.service("gateway").pid
        reset_peak(self._pid)
        self._before = resident_bytes(self._pid)

    def check(self) -> None:
        grown = peak_resident_bytes(self._pid) - self._before
        assert grown < MOST, f"{grown / MIB:.1f} MiB"


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("max_bytes", [1, PAGE])
def test_a_page_of_records(stack: Stack, own_gateway: Gateway, topic: str, level: str, max_bytes: int) -> None:
    growth = Growth(stack)
    for offset in range(0, BATCHES, 8):
        page = own_gateway.read(topic, offset=offset, max_bytes=max_bytes, isolation_level=level)
        assert [record["offset"] for record in page["records"]][:1] == [offset]
        assert len(page["records"]) <= max_bytes // SIZE + 1
    growth.check()


def test_copies_in_dead_letters(stack: Stack, own_gateway: Gateway, topic: str, name: str) -> None:
    """The records are read again to copy them."""
    held = 0
    while held < BATCHES:
        fetched = own_gateway.fetch(name, topic, max_records=4)["batches"]
        held = fetched[-1]["last_offset"] + 1
    growth = Growth(stack)
    assert own_gateway.settle(name, topic, 0, BATCHES - 1, "reject") == "applied"
    wait_until(
        lambda: own_gateway.metrics().get(f'sharequeue_dead_letter_records_total{{group="{name}"}}') == BATCHES, 60
    )
    growth.check()


def test_a_replacement(stack: Stack, own_gateway: Gateway, topic: str) -> None:
    path = f"/v1/topics/{topic}/partitions/0"
    listed = good(own_gateway.http.get(f"{path}/batches"))["batches"]
    assert all(batch["size_bytes"] > SIZE for batch in listed)
    batches = [
        {
            "base_offset": batch["base_offset"],
            "generation": 0,
            "remove": [{"first_offset": offset, "last_offset": offset}],
        }
        for offset, batch in enumerate(listed[:TOGETHER])
    ]
    growth = Growth(stack)
    good(own_gateway.http.post(f"{path}/replace-batches", json={"batches": batches}))
    growth.check()

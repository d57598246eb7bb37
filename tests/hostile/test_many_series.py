"""The cost of a scrape of /metrics: a few lines for each group with records in flight, none for an idle group."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from bench.processes import cpu_seconds
from sharequeue.service.series import MOST_SERIES, Counts
from sharequeue.stack.stack import Stack
from tests.http.calls import Gateway, wait_until

GROUPS = 100
BYTES_OF_A_GROUP = 300
"""10,000 groups are less than 3 MB."""


@pytest.fixture(scope="module")
def stack_settings() -> dict[str, str]:
    return {"SHAREQUEUE_GATEWAY_SHARE_PARTITION_IDLE_MS": "1000"}


def test_a_scrape_follows_the_groups_that_have_something_in_flight(
    client: httpx.Client, stack: Stack, name: str
) -> None:
    gateway = Gateway(client)
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    groups = [f"{name}-{number}" for number in range(GROUPS)]

    def scrape() -> str:
        return client.get("/metrics").text

    def of_groups() -> list[str]:
        return [line for line in scrape().splitlines() if f'group="{name}-' in line]

    before = len(scrape())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda group: gateway.acquire(group, name), groups))
    assert len(of_groups()) == 2 * GROUPS
    assert len(scrape()) - before < GROUPS * BYTES_OF_A_GROUP
    pid = next(service.pid for service in stack.services if service.name == "gateway")
    used = cpu_seconds(pid)
    for _ in range(10):
        scrape()
    assert (cpu_seconds(pid) - used) / 10 < 0.05
    for group in groups:
        assert gateway.settle(group, name, 0, 0, "accept") == "applied"
    assert of_groups() == []
    assert len(scrape()) - before < 5000  # calls that were not made before


def test_an_idle_group_loses_its_counters(client: httpx.Client, name: str) -> None:
    gateway = Gateway(client)
    gateway.configure(name, errors_deadletterqueue_topic_name=f"{name}-dead")
    gateway.produce(name, 1)
    gateway.acquire(name, name)
    assert gateway.settle(name, name, 0, 0, "reject") == "applied"
    written = f'sharequeue_dead_letter_records_total{{group="{name}"}}'
    wait_until(lambda: written in gateway.metrics())
    wait_until(lambda: not [sample for sample in gateway.metrics() if f'group="{name}"' in sample])


def test_a_family_writes_its_highest_numbers_alone() -> None:
    counts = Counts[str]("things", "Things.", ["name"])
    for number in range(MOST_SERIES + 5):
        counts[str(number)].inc(number)
    lines = list(counts.lines())
    assert len(lines) == 1 + MOST_SERIES
    assert f'things_total{{name="{MOST_SERIES + 4}"}} {MOST_SERIES + 4}.0\n' in lines
    assert not any('name="0"' in line for line in lines)


def test_labels_are_escaped() -> None:
    counts = Counts[tuple[str, ...]]("things", "Things.", ["group", "topic"])
    counts['a"b\\c\nd', "t"].inc()
    assert list(counts.lines())[1] == 'things_total{group="a\\"b\\\\c\\nd",topic="t"} 1.0\n'
